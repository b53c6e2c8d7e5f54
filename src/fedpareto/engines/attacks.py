"""Malicious clients, for studying how robust an algorithm is. Part of a run's spec.

An attack on the loss changes what its clients train on and report, an attack on the update changes their reply; no
algorithm knows of either. Measurements stay true: an attacker's own model is evaluated on its real rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.core import rng
from fedpareto.core.clients import Clients, Tampering
from fedpareto.core.messages import Message, Task, beginnings
from fedpareto.core.problem import Problem, Rows, Splits, SupervisedProblem
from fedpareto.errors import UserError

USUAL_STRENGTH: Mapping[str, float] = {
    "bias": 10.0,
    "scaling": 10.0,
    "sign-flip": 1.0,
    "gaussian": 10.0,
    "inflated-count": 10.0,
    "collusion": 1.0,
}
"""Default strength by kind; other kinds have none."""
FORGERIES = ("sign-flip", "gaussian", "collusion")
"""Kinds that change replies."""
PURPOSE = "attack"
"""The name of the random streams for attackers' noise."""


@dataclass(frozen=True)
class Attack:
    """What attackers do, and from which round on."""

    kind: Literal["none", "bias", "scaling", "sign-flip", "gaussian", "label-flip", "inflated-count", "collusion"] = (
        "none"
    )
    """`bias` adds to the loss, `scaling` multiplies it; `sign-flip` sends the opposite update, `gaussian` noise instead
    of one, `collusion` the opposite of the attackers' mean update, all the same; `label-flip` trains on labels in
    reverse order; `inflated-count` claims more rows."""
    clients: tuple[int, ...] = ()
    """Which clients; empty: as many as `share` says, drawn from the seed."""
    share: float = 0.2
    """Share of the clients that attack, if none are named; at least one, and never all."""
    from_round: int = 1
    """The first round in which they do."""
    always: bool = False
    """Whether they take part in every round, in place of other clients that were drawn."""
    strength: float | None = None
    """The constant added to or the factor on a loss, the length of a false update relative to the true one, or the
    factor on a count; none: 1 for sign-flip and collusion, else 10.
    """

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise UserError(f"attack: share is {self.share:g}; it is a share between 0 and 1, never all, such as 0.2")
        if self.from_round < 1:
            raise UserError(f"attack: from_round is {self.from_round}; the first round is 1")
        if len(set(self.clients)) < len(self.clients):
            raise UserError(f"attack: clients is {list(self.clients)}; each client may be listed once")
        if self.strength is None:
            return
        if self.kind not in ("none", *USUAL_STRENGTH):
            raise UserError(f"attack: {self.kind} has no strength")
        if not math.isfinite(self.strength) or (self.kind == "inflated-count" and self.strength <= 0):
            raise UserError(f"attack: strength is {self.strength:g}; it should be a finite number, of a count positive")
        if self.kind in FORGERIES and self.strength < 0:
            raise UserError(
                f"attack: strength is {self.strength:g}; of {self.kind} it is a length, not negative: "
                "a negative one would be an honest client's direction"
            )

    @property
    def force(self) -> float:
        """The strength, given or usual; 1 where the kind has none."""
        return USUAL_STRENGTH.get(self.kind, 1.0) if self.strength is None else self.strength

    def must_fit(self, problem: Problem, clients: int) -> None:
        """Raises UserError if the problem or the number of clients does not allow it."""
        if self.kind == "none":
            return
        unknown = [client for client in self.clients if not 0 <= client < clients]
        if unknown:
            raise UserError(f"attack: clients names {unknown[0]}, but the clients are 0 to {clients - 1}")
        if len(self.clients) == clients or clients == 1:
            raise UserError(f"attack: all {clients} clients attack; at least one has to be honest")
        if self.kind in ("bias", "scaling") and not isinstance(problem, SupervisedProblem):
            raise UserError(f"attack: {self.kind} needs losses on rows, which {problem.name} does not have")
        if self.kind == "label-flip" and (not isinstance(problem, SupervisedProblem) or problem.classes() is None):
            raise UserError(
                f"attack: label-flip needs rows with a label of some class, which {problem.name} does not have"
            )

    def attackers(self, clients: Sequence[int], seed: int) -> frozenset[int]:
        """The attackers among these clients of the federation with this seed."""
        if self.kind == "none":
            return frozenset()
        if self.clients:
            return frozenset(self.clients)
        count = min(max(1, round(self.share * len(clients))), len(clients) - 1)
        drawn = rng.generator(rng.Address(seed), "attackers").choice(sorted(clients), size=count, replace=False)
        return frozenset(int(client) for client in drawn)


@dataclass(frozen=True)
class Answer:
    """A client's reply before it is sent, and the task that it answers."""

    address: rng.Address
    task: Task
    reply: Message
    lies: bool
    """Whether its client attacks in this round."""
    group: Hashable = ()
    """Identifies the work; other clients with the same key do the same work."""

    def updates(self) -> dict[str, tuple[Tensor, Tensor]]:
        """By name of a trained tensor, where it began and its update."""
        begun = beginnings(self.task, self.reply)
        return {name: (origin, self.reply[name] - origin) for name, origin in begun.items()}


@dataclass
class Raid:
    """An attack on several federations whose clients share one stack."""

    attack: Attack
    attackers: Sequence[frozenset[int]]
    """Of each federation."""
    twins: dict[int, int] = field(default_factory=dict)
    """Maps an attacker's position in the rows to that of its copy with flipped labels."""

    def lies(self, run: int, client: int, round_: int) -> bool:
        """Whether a client of a federation attacks in a round; never in round 0, which only measures."""
        return round_ >= self.attack.from_round and client in self.attackers[run]

    @property
    def forges(self) -> bool:
        """Whether replies are changed."""
        return self.attack.kind in FORGERIES

    def with_twins(self, splits: Splits, problem: Problem, position: Mapping[tuple[int, int], int]) -> Splits:
        """The rows, and under new positions the attackers again, with flipped labels in what they train on."""
        if self.attack.kind != "label-flip":
            return splits
        assert isinstance(problem, SupervisedProblem), "asked for by must_fit"
        labels = problem.classes()
        assert labels is not None, "asked for by must_fit"
        attackers = [position[run, client] for run, of_run in enumerate(self.attackers) for client in sorted(of_run)]
        first = len(splits["train"].counts)
        self.twins.update({place: first + number for number, place in enumerate(attackers)})
        return {
            name: _flipped(rows, attackers, *labels) if name == "train" else _repeated(rows, attackers)
            for name, rows in splits.items()
        }

    def join(self, clients: Clients, lies: Sequence[bool]) -> Clients:
        """The same clients, with attackers falsifying their loss, their number of rows or their labels."""
        if not any(lies) or self.forges:
            return clients
        if self.attack.kind == "label-flip":
            pairs = zip(clients.positions, lies, strict=True)
            positions = np.array([self.twins[int(place)] if lie else place for place, lie in pairs])
            return replace(clients, positions=positions)
        return replace(clients, tampering=self._tampering(torch.tensor(lies), clients.preferences))

    def _tampering(self, lies: Tensor, like: Tensor) -> Tampering:
        def where_they_lie(kind: str, honest: float) -> Tensor:
            values = torch.full((len(lies),), honest, dtype=torch.float64)
            if self.attack.kind == kind:
                values[lies] = self.attack.force
            return values.to(like)

        return Tampering(
            where_they_lie("scaling", 1.0), where_they_lie("bias", 0.0), where_they_lie("inflated-count", 1.0)
        )

    def forged(self, answers: Sequence[Answer]) -> list[Message]:
        """What is sent instead of the replies to one exchange; honest ones are unchanged."""
        agreed = _mean_updates([answer for answer in answers if answer.lies]) if self.attack.kind == "collusion" else {}
        return [self._false(answer, agreed) if answer.lies else answer.reply for answer in answers]

    def _false(self, answer: Answer, agreed: Mapping[tuple[Hashable, str], Tensor]) -> Message:
        """A reply with false models; colluding attackers use the update in `agreed`."""
        reply = dict(answer.reply)
        for name, (origin, update) in answer.updates().items():
            if self.attack.kind == "gaussian":
                false = self._noise(answer.address, name, update)
            else:
                false = -self.attack.force * agreed.get((answer.group, name), update)
            reply[name] = origin + false
        return reply

    def _noise(self, address: rng.Address, name: str, update: Tensor) -> Tensor:
        """N(0, s² ‖Δ‖² / d) in each of the d entries: about s times as long as the true update Δ."""
        stream = rng.generator(address, f"{PURPOSE} {name}")
        noise = torch.as_tensor(stream.standard_normal(tuple(update.shape))).to(update)
        deviation = self.attack.force * float(update.norm()) / math.sqrt(max(update.numel(), 1))
        return deviation * noise


def _mean_updates(answers: Sequence[Answer]) -> dict[tuple[Hashable, str], Tensor]:
    """The mean update of the attackers with the same work, by work and tensor."""
    found: dict[tuple[Hashable, str], list[Tensor]] = {}
    for answer in answers:
        for name, (_, update) in answer.updates().items():
            found.setdefault((answer.group, name), []).append(update)
    return {key: torch.stack(updates).mean(dim=0) for key, updates in found.items()}


def _flipped(rows: Rows, positions: Sequence[int], column: str, classes: int) -> Rows:
    """With copies of some clients' rows at the end, their labels y replaced by classes − 1 − y."""
    copies = [rows.of_client(position) for position in positions]
    for copy in copies:
        copy[column] = classes - 1 - copy[column]
    columns = {name: torch.cat([whole, *(copy[name] for copy in copies)]) for name, whole in rows.columns.items()}
    counts = rows.counts[list(positions)]
    starts = len(next(iter(rows.columns.values()))) + np.cumsum(counts) - counts
    return Rows(columns, np.concatenate([rows.starts, starts]), np.concatenate([rows.counts, counts]))


def _repeated(rows: Rows, positions: Sequence[int]) -> Rows:
    """The same rows, with some clients a second time."""
    again = list(positions)
    return replace(
        rows,
        starts=np.concatenate([rows.starts, rows.starts[again]]),
        counts=np.concatenate([rows.counts, rows.counts[again]]),
    )
