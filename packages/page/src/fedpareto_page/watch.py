"""The shelf: which runs there are below some folders, and what changed in them since they were last looked at."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpareto.config.errors import UserError
from fedpareto_page.other_runs import OTHERS, Other
from fedpareto_page.run import Run

DIGITS = 8


def id_of(folder: Path, root: Path, what: str = "") -> str:
    """The id of a run's folder below a root, or of `what` else is in the folder: never a path."""
    return hashlib.sha256(f"{folder.relative_to(root).as_posix()}{what}".encode()).hexdigest()[:DIGITS]


DEEPEST = 4
"""Folders below a root, down to which runs are looked for."""
MOST_RUNS = 1000
"""On one shelf."""
AT_ONCE = 2**18
"""Bytes of lines that one look reads at most: other work waits meanwhile."""
AT_WORK = 0.33
"""Seconds between two looks while a process is at work: eyes need no more, and each look costs every open page."""
LOOKS, LOOKS_WHILE_BUSY = 64, 3
"""Folders, and runs that are over, that are looked at each time; the others have their turn later."""
NODE = "node.json"
"""In the folder of a deployment's node."""
FRESH = 2 * 10**9
"""Nanoseconds within which two changes of a folder may bear the same time."""


class Unknown(UserError):
    """There is nothing of this id, or not any more."""


class Folder:
    """A folder in which there may be runs; its content is listed again only when its time says so."""

    def __init__(self, path: Path, depth: int) -> None:
        self.path, self.depth = path, depth
        self.files: frozenset[str] = frozenset()
        self.folders: frozenset[str] = frozenset()
        self._seen = -1

    def look(self) -> bool:
        """Read the names in it; return whether they changed; FileNotFoundError without it."""
        seen = os.stat(self.path).st_mtime_ns
        if seen == self._seen and seen < time.time_ns() - FRESH:
            return False
        before, self._seen = (self.files, self.folders), seen
        with os.scandir(self.path) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        self.files = frozenset(name for name, is_folder in entries if not is_folder)
        self.folders = frozenset(name for name, is_folder in entries if is_folder and not name.startswith("."))
        return before != (self.files, self.folders)

    @property
    def is_run(self) -> bool:
        """Return whether a run is here, or is just about to begin; what a node keeps for itself is none."""
        return NODE not in self.files and ("run.json" in self.files or {"spec.yaml", ".lock"} <= self.files)


class Shelf:
    """The runs, deployments, matrices, sweeps and missions below some folders."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(Path(root).resolve() for root in roots)
        self.lock = threading.RLock()
        """Held while anything is read."""
        self.runs: dict[str, Run] = {}
        """Runs by id, in the order of their names."""
        self.others: dict[str, Other] = {}
        """Entries by id that are not runs."""
        self.changes = 0
        """Number of looks that have found anything new."""
        self._folders = {root: Folder(root, 0) for root in self.roots}
        self._turn = 0

    @property
    def title(self) -> str:
        return ", ".join(root.name or str(root) for root in self.roots)

    @property
    def reading(self) -> dict[str, int] | None:
        """Bytes of lines that were read, and of all; None when all are."""
        left = sum(run.following.left for run in self.runs.values())
        done = sum(run.following.done for run in self.runs.values())
        return {"done": done, "of": done + left} if left else None

    @property
    def busy(self) -> bool:
        return any(run.busy for run in self.runs.values()) or any(other.busy for other in self.others.values())

    @property
    def pause(self) -> float:
        """Seconds to wait until the next `poll`."""
        return 0.0 if self.reading else AT_WORK if self.busy else 1.0

    def run(self, id: str) -> Run:
        """The run with this id; Unknown if there is none."""
        found = self.runs.get(id)
        if found is None:
            raise Unknown(f"there is no run '{id}' on this page, or not any more")
        return found

    def other(self, id: str) -> Other:
        """The matrix, sweep, mission or deployment with this id; Unknown if there is none."""
        found = self.others.get(id)
        if found is None:
            raise Unknown(f"there is nothing called '{id}' on this page, or not any more")
        return found

    def deployment_of(self, run: Run) -> str | None:
        return next((one.id for one in self.others.values() if one.is_deployment_of(run.folder)), None)

    # -- looking ---------------------------------------------------------------------------------------------------

    def poll(self) -> list[dict[str, Any]]:
        """Reads what was appended, not too much at once; the events that tell of it.

        Each has "event": "changed" with run, lines, epoch and status, and numbers of lines since one if whoever has
        those before needs no more; "shelf"; or "other" with id.
        """
        with self.lock:
            events: list[dict[str, Any]] = [{"event": "shelf"}] if self._look_for_runs() else []
            left = AT_ONCE
            for run in self._due():
                before, lines, epoch = run.following.done, len(run.lines), run.following.epoch
                if run.look(max(left, 0)):
                    events.append({"event": "changed", **run.news, **run.told_since(lines, epoch)})
                left -= max(0, run.following.done - before)
            others = self._some(list(self.others.values()))
            events += [{"event": "other", "id": one.id} for one in others if one.look()]
            self._turn += 1
            self.changes += bool(events)
            return events

    def _due(self) -> list[Run]:
        """Runs that are at work or not read yet, and some of the others."""
        idle = [run for run in self.runs.values() if not run.is_due]
        return [run for run in self.runs.values() if run.is_due] + self._some(idle)

    def _look_for_runs(self) -> bool:
        """Look into some folders; return whether runs came or went."""
        is_new = False
        for folder in self._some(list(self._folders.values())):
            is_new |= self._look_at(folder)
        return is_new and self._put_up()

    def _look_at(self, folder: Folder) -> bool:
        try:
            is_new = folder.look()
        except OSError:
            gone = [path for path in self._folders if path == folder.path or folder.path in path.parents]
            for path in gone:
                if path not in self.roots:
                    del self._folders[path]
            folder.files = folder.folders = frozenset()
            return bool(gone)
        if is_new and folder.depth < DEEPEST and NODE not in folder.files:
            for name in folder.folders:
                path = folder.path / name
                if path not in self._folders:
                    self._folders[path] = Folder(path, folder.depth + 1)
                    self._look_at(self._folders[path])
        return is_new

    def _put_up(self) -> bool:
        """Runs of the folders that are known now, each with its old self if it has one."""
        before = {run.folder: run for run in self.runs.values()}
        paths = sorted(path for path, folder in self._folders.items() if folder.is_run)[:MOST_RUNS]
        runs = [before.get(path) or Run(self.id_of(path), self._name(path), path) for path in paths]
        self.runs = {run.id: run for run in runs}
        others = [
            Other(self.id_of(path, kind), kind, self._name(path), path)
            for path, folder in sorted(self._folders.items())
            for file, kind in OTHERS.items()
            if file in folder.files
        ]
        is_new = before.keys() != set(paths) or {one.id for one in others} != self.others.keys()
        self.others = {one.id: self.others.get(one.id, one) for one in others}
        return is_new

    def _some(self, all_of_them: list[Any]) -> list[Any]:
        """Take a few of them, each time the next ones; fewer where there are many looks a second."""
        most = LOOKS_WHILE_BUSY if self.busy else LOOKS
        if len(all_of_them) <= most:
            return all_of_them
        begin = self._turn * most % len(all_of_them)
        return (all_of_them + all_of_them)[begin : begin + most]

    # -- names -----------------------------------------------------------------------------------------------------

    def _name(self, path: Path) -> str:
        """Name of a folder relative to its root; the root's own name goes before where there are several, or nothing
        else.
        """
        root = self._root(path)
        below = path.relative_to(root).as_posix()
        if below == ".":
            return root.name or str(root)
        return f"{root.name}/{below}" if len(self.roots) > 1 else below

    def _root(self, path: Path) -> Path:
        return next(root for root in self.roots if path == root or root in path.parents)

    def id_of(self, path: Path, what: str = "") -> str:
        """The id of a run, or of `what` else is in a folder: a digest, by which no request can name a file."""
        root = self._root(path)
        if root == self.roots[0]:
            return id_of(path, root, what)
        # Below other roots there may be the same names, and the roots themselves may have the same.
        return id_of(path, Path(root.anchor), what)
