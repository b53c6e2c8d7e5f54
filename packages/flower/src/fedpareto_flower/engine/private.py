"""A node's private state on its own disk, so that a killed process loses nothing and a resumed server can continue its
round.

One file for every (run, lane, round, exchange). A task continues from the newest state before its own time: a server
that goes back to a checkpoint never trains on later state. Where rounds do not wait, it is the newest whose reply the
server has (`since`): one that was late and dropped, or lost with a killed server, does not count.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.files import write_atomically
from fedpareto.contract.messages import Message
from fedpareto.engines.single import Task
from fedpareto_flower.engine.wire import LARGEST_NUMBER

ROUNDS_KEPT = 2
"""Rounds that a server may repeat after a crash; the state before them is kept too."""

_NAME = re.compile(r"run(\d+)-lane(\d+)-round(\d+)-exchange(\d+)\.safetensors")
_CONTINUES, _FRESH, _DIGEST = "continues", "nothing", "digest"


class Moment(NamedTuple):
    """Moment of a run: moments are ordered, first by round."""

    round: int
    exchange: int


@dataclass(frozen=True)
class PrivateStore:
    """The states of one client of one federation."""

    folder: Path

    def before(self, run: int, lane: int, moment: Moment, since: int = LARGEST_NUMBER) -> Message | None:
        """The newest state before `moment`, of a round up to `since`; None if there was none yet."""
        kept = sorted(self._moments(run, lane))
        earlier = [one for one in kept if one < moment and one.round <= since]
        if earlier:
            return self._read(run, lane, earlier[-1])[0]
        if kept and self._read(run, lane, kept[0])[1] != _FRESH:
            raise UserError(
                f"the private state has advanced to round {kept[-1].round}, and that before round {moment.round} is "
                "no longer kept; the server has gone back too far"
            )
        return None

    def keep(self, run: int, lane: int, moment: Moment, state: Message, since: int = LARGEST_NUMBER) -> None:
        """Saves the state after `moment`, which continues from one of a round up to `since`.

        Other states before it were rolled back. So were later ones, unless there is a `since`: then this may be an old
        message that was delivered twice.
        """
        from safetensors.torch import save

        kept = sorted(self._moments(run, lane))
        earlier = [one for one in kept if one < moment and one.round <= since]
        origin = f"{earlier[-1].round}.{earlier[-1].exchange}" if earlier else _FRESH
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
        metadata = {_CONTINUES: origin, _DIGEST: digest_of(tensors, origin)}
        write_atomically(self._path(run, lane, moment), save(tensors, metadata))
        rounds = sorted({one.round for one in [*earlier, moment]})[-(ROUNDS_KEPT + 1) :]
        for one in kept:
            is_needed = one.round >= rounds[0] if one in earlier else one > moment and since < LARGEST_NUMBER
            if one != moment and not is_needed:
                self._path(run, lane, one).unlink(missing_ok=True)

    def _read(self, run: int, lane: int, moment: Moment) -> tuple[dict[str, torch.Tensor], str]:
        from safetensors import SafetensorError, safe_open

        path = self._path(run, lane, moment)
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
                origin, digest = metadata[_CONTINUES], metadata[_DIGEST]
        except (SafetensorError, OSError, ValueError, KeyError) as problem:
            raise DamagedFile(f"{path} is damaged and cannot be read ({problem})") from None
        if digest != digest_of(tensors, origin):
            raise DamagedFile(f"{path} was altered after it was written")
        return tensors, origin

    def _moments(self, run: int, lane: int) -> Iterator[Moment]:
        for path in self.folder.glob(f"run{run}-lane{lane}-round*"):
            match = _NAME.fullmatch(path.name)
            if match:
                yield Moment(int(match[3]), int(match[4]))

    def _path(self, run: int, lane: int, moment: Moment) -> Path:
        return self.folder / f"run{run}-lane{lane}-round{moment.round}-exchange{moment.exchange}.safetensors"


class AnsweredBefore(UserError):
    """A question was answered before, to other words; or as many as were agreed on."""


@dataclass(frozen=True)
class Ledger:
    """Answers that a node gave under local privacy or a secure sum: each question once, whatever a server asks for.

    The same task again, of a server that resumes, gets the same bytes. Any other task for that round, or in a secure
    sum for those `keys`, is refused: fresh noise could be averaged away, and whatever two answers have in common, noise
    or masks, subtracted.
    """

    folder: Path

    def recall(self, run: int, task: Task, keys: str = "") -> Message | None:
        """Answer that was given to this task; None if its round, or its keys, are new."""
        known = self._known().get(entry_of(run, task, keys))
        if known is None:
            return None
        if known == digest_of(task.message) and (path := self._path(run, task, keys)).exists():
            return _tensors(path)
        raise AnsweredBefore(
            f"round {task.round} was answered before, to another task; answering it again would cost more privacy "
            "than was agreed on"
        )

    def answered(self, run: int, step: str, round_: int | None = None) -> int:
        """Number of answers that a step of a run was given, in this round or in all."""
        parts = (entry.split("/") for entry in self._known())
        return sum(
            (one[0], one[3]) == (str(run), step) and (round_ is None or one[1] == str(round_))
            for one in parts
            if len(one) > 3
        )

    def keep(self, run: int, task: Task, answer: Message, keys: str = "") -> None:
        """Keep the answer before it leaves. After all rounds, nothing is forgotten."""
        from safetensors.torch import save

        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in answer.items()}
        write_atomically(self._path(run, task, keys), save(tensors))
        known = dict(self._known()) | {entry_of(run, task, keys): digest_of(task.message)}
        write_atomically(self._file, json.dumps(known, indent=1) + "\n")
        for path in self.folder.glob(f"run{run}-round*.safetensors") if task.round < LARGEST_NUMBER else ():
            if int(path.stem.partition("-round")[2].partition("-")[0]) < task.round - ROUNDS_KEPT:
                path.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.folder / "answered.json"

    def _known(self) -> Mapping[str, str]:
        """The digest of the task in every round that was answered."""
        try:
            known = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            known = None
        if not isinstance(known, dict):
            raise DamagedFile(f"{self._file} is damaged; without it nobody knows what was answered")
        return known

    def _path(self, run: int, task: Task, keys: str) -> Path:
        names = [f"run{run}", f"round{task.round}", f"lane{task.lane}", task.step, *filter(None, [keys])]
        return self.folder / f"{'-'.join(names)}.safetensors"


def entry_of(run: int, task: Task, keys: str = "") -> str:
    """Name by which a node knows a question again."""
    return "/".join([str(run), str(task.round), str(task.lane), task.step, *filter(None, [keys])])


def digest_of(message: Message, more: str = "") -> str:
    """Digest of all tensors, with their names and types."""
    digest = hashlib.sha256(more.encode())
    for name, tensor in sorted(message.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _tensors(path: Path) -> Message:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as problem:
        raise DamagedFile(f"{path} is damaged and cannot be read ({problem})") from None
