"""A run is a folder. Everything in it is written atomically or appended, so a kill at any moment loses nothing."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedpareto.errors import DamagedFile, UserError
from fedpareto.experiments.checkpoint import Checkpoint, write_atomically
from fedpareto.experiments.spec import Spec, load

FORMAT = 1


class RunFolder:
    """The files of one run, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[bytes] | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path, spec: Spec) -> RunFolder:
        """A new folder with its spec; refuses one that holds a run already."""
        folder = cls(path)
        if folder.spec_file.exists():
            raise UserError(f"{path} holds a run already; continue it with 'fedpareto resume {path}' or name another")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError(f"the folder {path} cannot be made: {problem.strerror or problem}") from None
        folder.lock()
        write_atomically(folder.spec_file, spec.to_yaml())
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run's folder."""
        folder = cls(path)
        if not folder.spec_file.exists():
            raise UserError(f"{path} is not a run folder: it has no spec.yaml")
        folder.lock()
        return folder

    def lock(self) -> None:
        """Keeps other processes out; the system lets go when this process ends, however it ends."""
        import fcntl

        try:
            self._lock = (self.path / ".lock").open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is working on {self.path}") from None
        except OSError as problem:
            raise UserError(f"the folder {self.path} cannot be written: {problem.strerror or problem}") from None

    def close(self) -> None:
        """Lets other processes in."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- files -----------------------------------------------------------------------------------------------------

    @property
    def spec_file(self) -> Path:
        """The whole spec, every parameter spelled out."""
        return self.path / "spec.yaml"

    @property
    def checkpoint_file(self) -> Path:
        """The last round that is safe."""
        return self.path / "checkpoint.safetensors"

    def spec(self) -> Spec:
        """As it was when the run began."""
        return load(self.spec_file)

    def checkpoint(self) -> Checkpoint | None:
        """The last checkpoint, if there is one yet."""
        return Checkpoint.load(self.checkpoint_file) if self.checkpoint_file.exists() else None

    def write_json(self, name: str, value: Any) -> None:
        """A JSON file, in one step."""
        write_atomically(self.path / name, json.dumps(value, indent=1) + "\n")

    def read_json(self, name: str) -> Any | None:
        """A JSON file's value, if it is there."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise DamagedFile(f"{path} is damaged: {problem}") from None

    def append(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Lines at the end of a JSON-lines file."""
        if rows:
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The rows of a JSON-lines file."""
        path = self.path / name
        if not path.exists():
            return []
        rows = []
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                raise DamagedFile(f"{path}, line {number}: not a whole JSON line") from None
        return rows

    def length(self, name: str) -> int:
        """Bytes in a file, 0 if it is not there."""
        path = self.path / name
        return path.stat().st_size if path.exists() else 0

    def cut(self, name: str, length: int) -> None:
        """Drops what was appended after a checkpoint: the resumed run writes it again."""
        if self.length(name) > length:
            os.truncate(self.path / name, length)

    def status(self, status: str, rounds: int, seconds: float, message: str = "") -> None:
        """How the run stands."""
        self.write_json("status.json", {"status": status, "round": rounds, "seconds": seconds, "message": message})


def describe(spec: Spec, splits: Sequence[str], choices: Mapping[str, int]) -> dict[str, Any]:
    """What run.json holds: enough for a report to be written without the code that made the run."""
    front = spec.problem.known_front()
    return {
        "format": FORMAT,
        "algorithm": spec.algorithm.name,
        "problem": spec.problem.name,
        "seeds": list(spec.seeds),
        "clients": spec.clients,
        "rounds": spec.rounds,
        "objectives": [
            {"name": o.name, "maximise": o.maximise, "reference": o.reference} for o in spec.problem.objectives
        ],
        "splits": list(splits),
        "known_front": None if front is None else np.asarray(front).tolist(),
        "layout": spec.problem.layout.to_json(),
        "versions": versions(),
        "choices": dict(choices),
    }


def versions() -> dict[str, str]:
    """Of everything that can change a number."""
    found = {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
    for package in ("fedpareto", "torch", "numpy", "scikit-learn", "moocore"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
