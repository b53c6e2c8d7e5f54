"""Pieces of work as tasks of a Ray cluster. What they keep comes back to this machine.

A worker that sees the folder of the work, on this machine or on a shared disk, works in it. Any other gets what there
is of its piece, works in a folder of its own, and sends the files back when the piece is done or stopped.
"""

from __future__ import annotations

import itertools
import secrets
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedpareto.campaigns.parallel import KILLED, PATIENCE, Answer, Pieces, Stop, Work
from fedpareto.config.errors import UserError, in_words
from fedpareto.config.files import PART, write_atomically
from fedpareto.config.interrupts import Stopped
from fedpareto.config.version import VERSION
from fedpareto_ray import cluster

AHEAD = 1000
"""Tasks that wait in the cluster at most."""
TRIES = 3
"""Tries of a piece whose workers die."""
MARK = ".seen-by-"
"""Prefix of a file by which a worker knows that it sees the folder."""

Files = dict[str, bytes]
"""Contents of files by their paths in the folder of the work."""


@dataclass(frozen=True)
class _Back:
    """Answer that a task sends back."""

    answer: Any = None
    mistake: str = ""
    """Mistake of the user; then there is no answer."""
    stopped: bool = False
    files: Files = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    """Call that a task is sent, beside its piece."""

    do: Callable[[Path, Any, Stop], Any]
    out: Path
    mark: str
    own: str
    files: Files
    version: str = VERSION


@dataclass(frozen=True)
class OnRay:
    """The tasks of a Ray cluster, instead of processes of this machine."""

    address: str = ""
    """Address of the cluster; empty: RAY_ADDRESS, or a Ray of our own on this machine."""
    gpus: float = 0
    """GPUs that a piece has to itself."""

    def answers(self, pieces: Pieces[Work, Answer], stop: Stop) -> Iterator[tuple[int, Answer]]:
        """Index and result of each piece as it is done."""
        out = pieces.out.resolve()
        with cluster.connected(self.address) as ray, _marked(out) as mark:
            _must_suffice(ray.cluster_resources(), self)
            yield from _Campaign(ray, pieces, out, mark, self).answers(stop)


class _Campaign:
    """The tasks of some pieces."""

    def __init__(self, ray: Any, pieces: Pieces[Any, Any], out: Path, mark: str, jobs: OnRay) -> None:
        self.ray, self.pieces, self.out, self.mark = ray, pieces, out, mark
        self.wish = _wish(ray)
        # Retries are ours, not Ray's, which would try for ever what is killed for lack of memory.
        self.remote = ray.remote(num_cpus=1, num_gpus=jobs.gpus, max_retries=0)(_work)
        self.sends = not _is_seen(ray, out, mark)
        self.waiting: dict[Any, int] = {}
        self.tries: Counter[int] = Counter()

    def answers(self, stop: Stop) -> Iterator[tuple[int, Any]]:
        """Yield them as they come."""
        left, told, answered = iter(range(len(self.pieces.work))), False, 0
        while True:
            for number in itertools.islice(left, 0 if told else AHEAD - len(self.waiting)):
                self._submit(number)
            if not self.waiting:
                break
            done, _ = self.ray.wait(list(self.waiting), num_returns=1, timeout=PATIENCE)
            if stop() and not told:
                self.wish.ask.remote()
                told = True
            for task in done:
                for answer in self._settled(task, told):
                    answered += 1
                    yield answer
        if answered < len(self.pieces.work):
            raise Stopped(f"stopped after {answered} of {len(self.pieces.work)} pieces")

    def _submit(self, number: int) -> None:
        item = self.pieces.work[number]
        own = self.pieces.own(item)
        task = _Task(self.pieces.do, self.out, self.mark, own, _packed(self.out, own) if self.sends else {})
        self.tries[number] += 1
        self.waiting[self.remote.remote(task, item, self.wish)] = number

    def _settled(self, task: Any, told: bool) -> Iterator[tuple[int, Any]]:
        """The answer of a task that is over, with its files in their place; none if it was stopped or is tried again.

        Whatever becomes of a worker, its piece was not to blame: another one does it.
        """
        number, errors = self.waiting.pop(task), self.ray.exceptions
        try:
            back: _Back = self.ray.get(task)
        except errors.RayTaskError as problem:
            raise UserError(f"a worker of the Ray cluster cannot do its piece: {in_words(problem.cause)}") from None
        except errors.RayError as problem:
            if self.tries[number] < TRIES and not told:
                self._submit(number)
            elif self.pieces.lost is None:
                raise UserError(f"a worker of the Ray cluster died: {in_words(problem)}") from None
            else:
                yield number, self.pieces.lost(KILLED)
            return
        _unpack(self.out, back.files)
        if back.mistake:
            raise UserError(back.mistake)
        if not back.stopped:
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


def _is_seen(ray: Any, out: Path, mark: str) -> bool:
    """Check whether every machine of the cluster sees the folder."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0)(_sees)
    alive = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(node, soft=True) for node in alive]
    try:
        return all(ray.get([look.options(scheduling_strategy=one).remote(out, mark) for one in there]))
    except ray.exceptions.RayError as problem:
        last = str(problem).strip().splitlines()[-1]
        raise UserError(
            f"--jobs ray: a worker cannot begin; is the same fedpareto installed everywhere? ({last})"
        ) from None


# -- on a worker ---------------------------------------------------------------------------------------------------


def _work(task: _Task, item: Any, wish: Any) -> _Back:
    return carried_out(task, item, _Asked(wish))


def carried_out(task: _Task, item: Any, stop: Stop) -> _Back:
    """A piece in the folder of the work, or if that is not seen from here, in one whose files are sent back."""
    if task.version != VERSION:
        theirs = f"a worker on {socket.gethostname()} has fedpareto {VERSION}"
        return _Back(mistake=f"{theirs}, this process has {task.version}; install the same version everywhere")
    if (task.out / task.mark).exists():
        return _tried(task, task.out, item, stop)
    with tempfile.TemporaryDirectory(prefix="fedpareto-") as temporary:
        place = Path(temporary)
        _unpack(place, task.files)
        return replace(_tried(task, place, item, stop), files=_packed(place, task.own))


def _tried(task: _Task, place: Path, item: Any, stop: Stop) -> _Back:
    try:
        return _Back(stopped=True) if stop() else _Back(task.do(place, item, stop))
    except Stopped:
        return _Back(stopped=True)
    except UserError as problem:
        return _Back(mistake=str(problem))


def _sees(out: Path, mark: str) -> bool:
    return (out / mark).exists()


class _Asked:
    """Check whether the user wants to stop; the cluster is asked now and then."""

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
    """Read what there is of a piece: a file, or all of a folder."""
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
