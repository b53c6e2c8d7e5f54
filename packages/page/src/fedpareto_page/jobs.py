"""Runs that are started, stopped and resumed from the page.

Each is a process of its own, which the page neither ends nor takes along when it ends: its folder tells how it goes.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, HTTPException
from pydantic import BaseModel

from fedpareto.config.errors import UserError
from fedpareto.config.files import (
    Lock,
    for_writing,
    free_folder,
    must_hold_no_links,
    python,
    quoted,
    read_object,
    write_atomically,
)
from fedpareto.config.interrupts import StopFile
from fedpareto.contract import consent
from fedpareto_page.form import Wanted, command_of, folder_name
from fedpareto_page.watch import Unknown, id_of
from fedpareto_page.worker import Worker

ASKED, OUTPUT = "asked.yaml", "output.log"
"""In the folder of a run that was started here: what differs from the defaults, until it has begun; what it prints."""
LONGEST_WAIT, PAUSE = 5.0, 0.05
"""Seconds that a question whether a run has begun may wait for the answer, and between two looks."""
TAIL = 4000
"""Bytes at the end of what a process printed that hold its last line."""


@dataclass
class Job:
    """A run whose process was started here."""

    process: subprocess.Popen[bytes]
    folder: Path
    printed_before: int
    """Bytes of its output that are of processes before it."""

    def state(self) -> dict[str, Any]:
        """State of the process: beginning, running or over; with its last words if it ended with an error."""
        code = self.process.poll()
        if code is None:
            return {"state": "running" if self._has_begun() else "beginning", "message": None}
        return {"state": "over", "message": self._last_words() if code else None}

    def _has_begun(self) -> bool:
        try:
            worker = read_object(self.folder / "status.json").get("process")
        except UserError:  # Not there yet.
            return False
        return isinstance(worker, dict) and worker.get("pid") == self.process.pid

    def _last_words(self) -> str:
        try:
            printed = (self.folder / OUTPUT).read_bytes()[self.printed_before :][-TAIL:]
        except OSError:
            printed = b""
        lines = printed.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return said.removeprefix("Error: ") or f"the process ended with code {self.process.returncode}"


@dataclass
class Jobs:
    """Starts, stops and resumes runs; knows those whose processes it started."""

    root: Path
    """Folder of new runs."""
    started: dict[str, Job] = field(default_factory=dict)
    """Runs that were started here, by id."""
    failed: dict[str, str] = field(default_factory=dict)
    """Reasons why runs could not begin, by id; their folders are gone again."""

    def must_have_room(self) -> None:
        """Raises UserError if the folder for new ones is a run's own."""
        if (self.root / "spec.yaml").exists():
            above = quoted(self.root.resolve().parent)
            raise UserError(f"this page shows one run; open the folder above for others: fedpareto page {above}")

    def start(self, yaml: str, name: str, values: dict[str, Any]) -> Path:
        """Start a run in a new folder; `values` are those that the user gave."""
        folder = free_folder(self.root, name)
        write_atomically(folder / ASKED, yaml)
        arguments = ["run", "--spec", str(folder / ASKED), "--out", str(folder)]
        self._begin(id_of(folder, self.root), folder, arguments, values)
        return folder

    def resume(self, id: str, folder: Path, changes: Sequence[str]) -> None:
        """Goes on with a run. What is wrong with the changes, or the run, the process itself will say."""
        if is_busy(folder):
            raise UserError(f"a process is working on {folder} already")
        self._begin(id, folder, [*way_on(folder), *changes])

    def stop(self, folder: Path, now: bool) -> None:
        """Asks whoever works on a run to stop."""
        if not is_busy(folder):
            raise UserError(f"no process is working on {folder}; there is nothing to stop")
        StopFile(folder).write(now)

    def state(self, id: str) -> dict[str, Any]:
        """State of the process of a run; waits a little while it is beginning."""
        for _ in range(round(LONGEST_WAIT / PAUSE)):
            found = self._state(id)
            if found["state"] != "beginning":
                break
            time.sleep(PAUSE)
        return found

    def _state(self, id: str) -> dict[str, Any]:
        if id in self.failed:
            return {"state": "over", "message": self.failed[id]}
        if id not in self.started:
            raise Unknown(f"no process of '{id}' was started by this page")
        return self.started[id].state()

    def _begin(self, id: str, folder: Path, arguments: Sequence[str], values: Any = ()) -> None:
        must_hold_no_links(folder)
        with for_writing(folder / OUTPUT, "ab") as output:
            process = subprocess.Popen(
                python("fedpareto", *arguments),
                env=consent.named_too(values),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # It goes on when the page ends, whatever ends that.
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # The same on Windows.
            )
            job = Job(process, folder, output.tell())
        self.failed.pop(id, None)
        self.started[id] = job
        threading.Thread(target=self._see_off, args=(id, job), name=f"run {folder.name}", daemon=True).start()

    def _see_off(self, id: str, job: Job) -> None:
        """Waits for a process to end, and tidies up after it if the run never began."""
        while job.state()["state"] == "beginning":
            time.sleep(PAUSE)
        with suppress(OSError):
            (job.folder / ASKED).unlink(missing_ok=True)
        job.process.wait()
        if (job.folder / "spec.yaml").exists():
            return
        self.failed[id] = job.state()["message"] or "the run ended before it began"
        for name in (OUTPUT, ".lock"):
            with suppress(OSError):
                (job.folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # Whatever else is in it is not ours.
            job.folder.rmdir()


def way_on(folder: Path) -> list[str]:
    """The arguments that go on with a run; that of a deployment has a server of its own."""
    is_deployed = (folder.parent / "deployment.json").is_file()
    return ["server", "resume", str(folder.parent)] if is_deployed else ["resume", str(folder)]


def is_busy(folder: Path) -> bool:
    return Lock(folder / ".lock").is_held()


class Stopping(BaseModel):
    """A request to stop a run."""

    now: bool = False
    """Without waiting for the round under way."""


class Resuming(BaseModel):
    """A request to go on with a run."""

    set: list[str] = []
    """Changes, such as "quorum=3"."""


def routes(folder_of: Callable[[str], Path], root: Path, worker: Worker, read_only: bool = False) -> APIRouter:
    """Start, stop and resume; `folder_of` gives a run's folder by its id, a new one's is made in `root`."""
    router = APIRouter(dependencies=[Depends(_refuse)] if read_only else [])
    jobs = Jobs(root)

    @router.post("/api/start")
    def start(wanted: Wanted) -> dict[str, Any]:
        jobs.must_have_room()
        settled = worker.ask("settle", wanted.values)
        folder = jobs.start(settled["yaml"], folder_name(wanted, settled), wanted.values)
        return {"command": command_of(settled["words"], folder), "id": id_of(folder, jobs.root)}

    @router.get("/api/jobs/{id}")
    def state(id: str) -> dict[str, Any]:
        return jobs.state(id)

    @router.post("/api/runs/{id}/stop")
    def stop(id: str, stopping: Stopping) -> dict[str, Any]:
        folder = folder_of(id)
        jobs.stop(folder, stopping.now)
        return {"command": quoted("fedpareto", "stop", folder, *(["--now"] if stopping.now else [])), "id": id}

    @router.post("/api/runs/{id}/resume")
    def resume(id: str, resuming: Resuming) -> dict[str, Any]:
        folder = folder_of(id)
        changes = [word for text in resuming.set for word in ("--set", text)]
        jobs.resume(id, folder, changes)
        return {"command": quoted("fedpareto", *way_on(folder), *changes), "id": id}

    return router


def _refuse() -> None:
    raise HTTPException(403, "this page only watches: it was started with --read-only")
