"""A run is a folder. Everything in it is written atomically or appended, so a kill at any moment loses nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fedpareto.config.errors import DamagedFile, UserError, explained
from fedpareto.config.files import (
    PART,
    Lock,
    append,
    cut,
    for_writing,
    json_text,
    make_folder,
    must_hold_no_links,
    parse_object,
    quoted,
    read_bytes,
    read_object,
    write_atomically,
)
from fedpareto.config.interrupts import StopFile
from fedpareto.moo.tested import Tested
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.columns import FILE as COLUMNS_FILE
from fedpareto.record.parsing import FORMAT, must_be_readable
from fedpareto.spec import steps
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import PRIVATE, Spec
from fedpareto.trust.attacks import USUAL_STRENGTH

FILES = (
    "spec.yaml",
    "run.json",
    "status.json",
    "metrics.jsonl",
    COLUMNS_FILE,
    "events.jsonl",
    "checkpoint.safetensors",
    "models.safetensors",
    "conditioned.safetensors",
    "inputs.json",
    "solutions.json",
)


class RunFolder:
    """The files of one run, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock(path / ".lock")
        self._made = False

    # -- life ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, spec: Spec) -> RunFolder:
        """Make a new folder with its spec; refuse one that holds files of a run already."""
        folder, text = cls(path), spec.to_yaml()
        folder._made = not path.exists()
        make_folder(path)
        folder.lock()
        try:
            folder._refuse_if_taken()
            StopFile(path).clear()  # Meant for the process that worked here before.
            write_atomically(folder.spec_file, text)
        except BaseException:
            folder.close()
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        folder = cls(path)
        folder.must_be_run()
        must_be_readable(folder.read_json("run.json") or {"format": FORMAT}, path)
        must_hold_no_links(path)
        folder.lock()
        StopFile(path).clear()
        for half_written in path.glob(f".*{PART}"):  # Left by a killed process; the folder is locked.
            with suppress(OSError):
                half_written.unlink()
        return folder

    def must_be_run(self) -> None:
        if not self.path.is_dir():
            raise UserError(f"{self.path}: there is no such folder")
        if not self.spec_file.exists():
            raise UserError(f"{self.path} is not a run folder: it has no {self.spec_file.name}")

    def _refuse_if_taken(self) -> None:
        if self.spec_file.exists():
            is_over = (self.read_json("status.json") or {}).get("status") == "finished"
            word, command = ("a finished run; see", "show") if is_over else ("a run already; continue", "resume")
            raise UserError(f"{self.path} holds {word} it with 'fedpareto {command} {self.path}' or name another")
        for name in FILES:
            if (self.path / name).exists():
                raise UserError(f"{self.path} is not empty: its {name} would be overwritten; name another folder")

    def lock(self) -> None:
        """Locks the folder; the system releases the lock when this process ends, however it ends."""
        with explained(f"the folder {self.path} cannot be written"):
            is_mine = self._lock.take()
        if not is_mine:
            raise UserError(f"another process is working on {self.path}")

    def busy(self) -> bool:
        return self._lock.is_held()

    def close(self) -> None:
        self._lock.release()

    def discard(self) -> None:
        """Undo `create`: a run that could not even begin leaves nothing behind."""
        for name in FILES:
            with suppress(OSError):
                (self.path / name).unlink()
        self.close()  # Windows deletes no file that is open.
        with suppress(OSError):
            self._lock.path.unlink()
        if self._made:
            with suppress(OSError):
                self.path.rmdir()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def spec_file(self) -> Path:
        """The whole spec, every parameter spelled out."""
        return self.path / "spec.yaml"

    @property
    def checkpoint_file(self) -> Path:
        """The last saved round."""
        return self.path / "checkpoint.safetensors"

    @property
    def good_checkpoint_file(self) -> Path:
        """The last saved round from which all who replied could train."""
        return self.path / "checkpoint-good.safetensors"

    def keep_good_checkpoint(self) -> None:
        """Keep the last saved round, which has proved to be good, when the next one is saved."""
        if self.checkpoint_file.exists():
            write_atomically(self.good_checkpoint_file, self.checkpoint_file.read_bytes())

    def go_back(self) -> None:
        """Continues from the last good checkpoint instead of the last one."""
        if not self.good_checkpoint_file.exists():
            raise UserError(f"{self.path} has no earlier checkpoint to go back to")
        write_atomically(self.checkpoint_file, self.good_checkpoint_file.read_bytes())

    def spec(self) -> Spec:
        """Return the spec as it was when the run began."""
        self.must_be_run()
        draft = Draft.of_record(self.spec_file)
        if _is_deployed(draft):
            raise UserError(f"{self.path} is the run of a deployment; go on with: {self.way_on()}")
        return draft.finish()

    def way_on(self, change: str = "") -> str:
        """Return the command that continues this run, with a change of its spec where it may be given there."""
        if _is_deployed(Draft.read(self.spec_file)):
            return f"fedpareto server resume {quoted(self.path.resolve().parent)}"
        return f"fedpareto resume {quoted(self.path)}" + (change and f" --set {change}")

    def checkpoint(self) -> Checkpoint | None:
        if not self.checkpoint_file.exists():
            return None
        try:
            return Checkpoint.load(self.checkpoint_file)
        except DamagedFile as problem:
            raise DamagedFile(f"{problem}; delete it to begin the run again") from None

    def write_json(self, name: str, value: Any) -> None:
        write_atomically(self.path / name, json_text(value, indent=1) + "\n")

    def read_json(self, name: str) -> dict[str, Any] | None:
        path = self.path / name
        return read_object(path) if path.exists() else None

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            text = "".join(json_text(row, separators=(",", ":")) + "\n" for row in rows)
            append(self.path / name, text.encode())

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        path = self.path / name
        if not path.exists():
            return []
        lines = enumerate(read_bytes(path).splitlines(), start=1)
        return [parse_object(line, f"{path}, line {number}") for number, line in lines]

    def settle(self, name: str) -> int:
        """Waits until what was appended is on the disk; returns the file's length, 0 without a file.

        A checkpoint notes this length. Without the wait, a power cut could keep the checkpoint and lose the lines.
        """
        path = self.path / name
        if not path.exists():
            return 0
        with explained(f"{path} cannot be written"), for_writing(path, "rb+") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def cut(self, name: str, length: int) -> None:
        """Drops what was appended after a checkpoint: the resumed run writes it again."""
        path = self.path / name
        found = path.stat().st_size if path.exists() else 0
        if length < 0:
            raise DamagedFile(f"the checkpoint in {self.path} is damaged: it says that {name} has {length} bytes")
        if found < length:
            raise DamagedFile(f"{path} is damaged: {found} bytes are left of at least {length}")
        if found > length:
            with explained(f"{path} cannot be written"):
                cut(path, length)

    def status(self, status: str, rounds: int, seconds: float, message: str = "") -> None:
        """The run's status, and while it is running, by which process."""
        about = {"status": status, "round": rounds, "seconds": seconds, "message": message}
        process = {"pid": os.getpid(), "host": platform.node() or "localhost"}
        self.write_json("status.json", about | ({"process": process} if status == "running" else {}))


def describe(
    spec: Spec, splits: Sequence[str], choices: Mapping[str, int], tested: Sequence[Tested] = ()
) -> dict[str, Any]:
    """Return the content of run.json: enough for a report to be written without the code that made the run."""
    front = spec.problem.known_front()
    return {
        "format": FORMAT,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "algorithm": spec.algorithm.name,
        "problem": spec.problem.name,
        "parameters": spec.to_mapping()["problem"],
        "seeds": list(spec.seeds),
        "clients": spec.clients,
        "rounds": spec.rounds,
        "objectives": [asdict(objective) for objective in spec.problem.objectives],
        "outputs": [output.to_json() for output in spec.problem.outputs()],
        "splits": list(splits),
        "tested": [one.to_plain() for one in tested],
        "names": spec.problem.client_names(spec.clients) if tested else [],
        "known_front": None if front is None else np.asarray(front).tolist(),
        "layout": spec.problem.layout.dense.to_json(),
        "connections": {one.name: one.count for one in spec.problem.layout.connections},
        "versions": versions(),
        "choices": dict(choices),
        **({"step_sizes": tried} if (tried := steps.in_words(spec.algorithm, spec.learner)) else {}),
        **({"tiers": list(spec.devices.tiers)} if spec.devices.kind == "tiers" else {}),
        **_disturbed(spec),
    }


def _is_deployed(draft: Draft) -> bool:
    return draft.values.get("preferences") == PRIVATE


def _disturbed(spec: Spec) -> dict[str, Any]:
    """The attackers, their attack and the server's defence; nothing where there is none."""
    found: dict[str, Any] = {}
    attack = spec.attack
    if attack.kind != "none":
        strength = {"strength": attack.force} if attack.kind in USUAL_STRENGTH else {}
        found["attackers"] = spec.attackers()
        found["attack"] = {"kind": attack.kind, **strength, "from_round": attack.from_round}
    if spec.defence.rule != "none":
        found["defence"] = spec.defence.rule
    return found


def versions() -> dict[str, str]:
    """Versions of everything that can change a number."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in ("fedpareto", "torch", "numpy", "scikit-learn", "moocore"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
