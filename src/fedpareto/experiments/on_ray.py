"""Pieces of work as tasks of a Ray cluster. What they keep comes back to this machine.

A worker that sees the folder of the work, on this machine or on a shared disk, works in it. Any other gets what there
is of its piece, works in a folder of its own, and sends the files back when the piece is done or stopped.
"""

from __future__ import annotations

import secrets
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpareto import __version__, cluster
from fedpareto.errors import UserError, in_words
from fedpareto.experiments.parallel import KILLED, PATIENCE, Answer, OnRay, Pieces, Stop, Work
from fedpareto.experiments.progress import Stopped
from fedpareto.files import PART, write_atomically

AHEAD = 1000
"""Tasks that wait in the cluster at most."""
MARK = ".seen-by-"
"""Prefix of a file by which a worker knows that it sees the folder."""

Files = dict[str, bytes]
"""By their paths in the folder of the work."""


@dataclass(frozen=True)
class _Back:
    """What a task sends back."""

    answer: Any = None
    problem: BaseException | None = None
    files: Files = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    """What a task is sent, beside its piece."""

    do: Callable[[Path, Any, Stop], Any]
    out: Path
    mark: str
    own: str
    files: Files
    version: str


def as_tasks(pieces: Pieces[Work, Answer], jobs: OnRay, stop: Stop) -> Iterator[tuple[int, Answer]]:
    """Index and result of each piece as it is done."""
    with cluster.connected(jobs.address) as ray, _marked(pieces.out.resolve()) as mark:
        _must_suffice(ray.cluster_resources(), jobs)
        wish = _wish(ray)
        remote = ray.remote(num_cpus=1, num_gpus=jobs.gpus)(_work)
        left = iter(enumerate(pieces.work))
        waiting: dict[Any, int] = {}
        told, answered = False, 0
        while True:
            while len(waiting) < AHEAD and not told and (following := next(left, None)) is not None:
                number, item = following
                own = pieces.own(item)
                files = _packed(pieces.out, own)
                task = _Task(pieces.do, pieces.out.resolve(), mark, own, files, __version__)
                waiting[remote.remote(task, item, wish)] = number
            if not waiting:
                break
            done, _ = ray.wait(list(waiting), num_returns=1, timeout=PATIENCE)
            if stop() and not told:
                wish.ask.remote()
                told = True
            for one in done:
                for answer in _settled(ray, pieces, one, waiting.pop(one), told):
                    answered += 1
                    yield answer
        if answered < len(pieces.work):
            raise Stopped(f"stopped after {answered} of {len(pieces.work)} pieces")


def _settled(
    ray: Any, pieces: Pieces[Work, Answer], task: Any, number: int, told: bool
) -> Iterator[tuple[int, Answer]]:
    """The answer of a task that is over, with its files in their place; none of a piece that was stopped."""
    try:
        back: _Back = ray.get(task)
    except ray.exceptions.RayTaskError as problem:
        raise UserError(f"a worker of the Ray cluster cannot do the work: {in_words(problem.cause)}") from None
    except ray.exceptions.RayError as problem:
        if pieces.lost is None:
            raise UserError(f"a worker of the Ray cluster was lost: {in_words(problem)}") from None
        yield number, pieces.lost(KILLED)
        return
    _unpack(pieces.out, back.files)
    if isinstance(back.problem, Stopped) and told:
        return
    if back.problem is not None:
        raise back.problem
    yield number, back.answer


def _must_suffice(resources: Mapping[str, float], jobs: OnRay) -> None:
    for name, needed in (("CPU", 1), ("GPU", jobs.gpus)):
        if resources.get(name, 0) < needed:
            raise UserError(f"a piece needs {needed:g} {name}, the Ray cluster has {resources.get(name, 0):g}")


def _wish(ray: Any) -> Any:
    """An actor that knows whether the user wants to stop."""

    class Wish:  # In here, so that it travels whole, and its process imports nothing.
        def __init__(self) -> None:
            self.told = False

        def ask(self) -> None:
            self.told = True

        def asked(self) -> bool:
            return self.told

    return ray.remote(num_cpus=0)(Wish).remote()


# -- on a worker ---------------------------------------------------------------------------------------------------


def _work(task: _Task, item: Any, wish: Any) -> _Back:
    if task.version != __version__:
        theirs = f"the worker on {socket.gethostname()} has fedpareto {__version__}"
        return _Back(problem=UserError(f"{theirs}, this is {task.version}; install the same on all machines"))
    stop = _Asked(wish)
    if (task.out / task.mark).exists():
        return _tried(task, task.out, item, stop)
    with tempfile.TemporaryDirectory(prefix="fedpareto-") as temporary:
        place = Path(temporary)
        _unpack(place, task.files)
        back = _tried(task, place, item, stop)
        return _Back(back.answer, back.problem, _packed(place, task.own))


def _tried(task: _Task, place: Path, item: Any, stop: Stop) -> _Back:
    try:
        if stop():
            raise Stopped("stopped before it began")
        return _Back(task.do(place, item, stop))
    except (Stopped, UserError) as problem:
        return _Back(problem=problem)


class _Asked:
    """Whether the user wants to stop; the cluster is asked now and then."""

    def __init__(self, wish: Any) -> None:
        self.wish, self.known, self.last = wish, False, -PATIENCE

    def __call__(self) -> bool:
        import ray

        if not self.known and time.monotonic() - self.last >= PATIENCE:
            self.known, self.last = bool(ray.get(self.wish.asked.remote())), time.monotonic()
        return self.known


# -- files ---------------------------------------------------------------------------------------------------------


@contextmanager
def _marked(out: Path) -> Iterator[str]:
    """A file in the folder while the work is under way, with a name that no other machine has."""
    mark = out / f"{MARK}{secrets.token_hex(8)}"
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as problem:
        raise UserError(f"the folder {out} cannot be written: {problem.strerror or problem}") from None
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def _packed(out: Path, own: str) -> Files:
    """What there is of a piece: a file, or all of a folder."""
    if not own:
        return {}
    root = out / own
    every = [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in every
        if path.name != ".lock" and not path.name.endswith(PART)
    }


def _unpack(out: Path, files: Files) -> None:
    """The files in their place; that a run is finished is said last."""
    for name, content in sorted(files.items(), key=lambda entry: entry[0].endswith("status.json")):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
