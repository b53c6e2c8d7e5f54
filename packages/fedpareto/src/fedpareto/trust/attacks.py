"""Malicious and selfish clients, for studying how robust an algorithm is. Part of a run's spec.

An attack on the loss changes what its clients train on and report, an attack on the update changes their reply; who is
selfish sends little or nothing of worth. No algorithm knows of any of it. Measurements stay true: an attacker's own
model is evaluated on its real rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config import kinds
from fedpareto.config.bounds import Bounded, Count, Finite, OpenShare, PositiveShare, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Tasks, beginnings
from fedpareto.contract.problem import Problem, SupervisedProblem
from fedpareto.contract.solutions import held_out
from fedpareto.contract.stack import Tampering
from fedpareto.tensors import rng
from fedpareto.tensors.rows import Rows, Splits
from fedpareto.trust.backdoor import SPLIT, Trigger

USUAL_STRENGTH: Mapping[str, float] = {
    "bias": 10.0,
    "scaling": 10.0,
    "sign-flip": 1.0,
    "gaussian": 10.0,
    "inflated-count": 10.0,
    "collusion": 1.0,
    "free-rider": 1.0,
    "seldom": 5.0,
    "low-quality": 0.5,
    "backdoor": 1.0,
}
"""Default strength by kind; other kinds have none."""
ATTACK_PARAMETERS: Mapping[str, Sequence[str]] = dict.fromkeys(
    ("target", "columns", "value", "poisoned"), ("backdoor",)
)
"""Kinds that use each parameter which not all have."""
FORGERIES = ("sign-flip", "gaussian", "collusion", "free-rider")
"""Kinds that change replies."""
NOISE = ("gaussian", "free-rider")
"""Kinds that send noise."""
RELABELLINGS = ("label-flip", "low-quality", "backdoor")
"""Kinds that train on false labels."""
Position = Callable[[int, np.ndarray], np.ndarray]
"""Places of clients of a federation among the rows of all federations."""
PURPOSE = "attack"
"""The name of the random streams for attackers' noise."""


@dataclass(frozen=True)
class Attack(Bounded):
    """An attack: the work of attackers, and the round from which on they do it."""

    prefix: ClassVar[str] = "attack: "

    kind: kinds.Attack = "none"
    """`bias` adds to the loss, `scaling` multiplies it; `sign-flip` sends the opposite update, `gaussian` noise instead
    of one, `collusion` the opposite of the attackers' mean update, all the same; `label-flip` trains on labels in
    reverse order; `inflated-count` claims more rows; `free-rider` trains nothing and sends back what it got with noise
    on it; `seldom` replies now and then only; `low-quality` has false labels in some of its rows; `backdoor` teaches
    the model to answer a trigger with a class of its choice."""
    clients: tuple[int, ...] = ()
    """Attacking clients by number; empty: as many as `share` says, drawn from the seed."""
    share: OpenShare = 0.2
    """Share of the clients that attack, if none are named; at least one, and never all."""
    from_round: Count = 1
    """The first round in which clients attack."""
    always: bool = False
    """Take part in every round, in place of other clients that were drawn."""
    strength: Finite | None = None
    """The constant added to or the factor on a loss, the length of a false update relative to the true one, the factor
    on a count, of how many rounds a seldom client replies in one, or the share of false labels; none: 1 for sign-flip,
    collusion, free-rider and backdoor, 5 for seldom, 0.5 for low-quality, else 10.
    """
    target: Whole = 0
    """Class with which the trigger of a backdoor is to be answered."""
    columns: tuple[Whole, ...] = ()
    """Numbers of a row, or pixels counted through, that are the trigger of a backdoor; empty: the first number, or a
    patch of 3 by 3 pixels in the last corner.
    """
    value: Finite | None = None
    """Value to which the trigger of a backdoor is set; none: 3, of pixels 255."""
    poisoned: PositiveShare = 0.5
    """Share of an attacker's training rows that have the trigger of a backdoor."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.clients)) < len(self.clients):
            raise UserError(f"attack: clients is {list(self.clients)}; each client may be listed once")
        if self.strength is None:
            return
        if self.kind not in ("none", *USUAL_STRENGTH):
            raise UserError(f"attack: {self.kind} has no strength")
        if self.kind == "inflated-count" and self.strength <= 0:
            raise UserError(f"attack: strength is {self.strength:g}; of inflated-count it is above 0")
        if self.kind in (*FORGERIES, "backdoor") and self.strength < 0:
            raise UserError(
                f"attack: strength is {self.strength:g}; of {self.kind} it is a length, not negative: "
                "a negative one would be an honest client's direction"
            )
        if self.kind == "seldom" and not (self.strength >= 2 and float(self.strength).is_integer()):
            raise UserError(
                f"attack: strength is {self.strength:g}; of seldom it is of how many rounds a client replies in one: "
                "a whole number, at least 2"
            )
        if self.kind == "low-quality" and not 0 < self.strength <= 1:
            raise UserError(f"attack: strength is {self.strength:g}; of low-quality it is a share of rows, at most 1")

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
        if self.kind in RELABELLINGS and (not isinstance(problem, SupervisedProblem) or problem.classes() is None):
            raise UserError(
                f"attack: {self.kind} needs rows with a label of some class, which {problem.name} does not have"
            )
        if self.kind == "backdoor":
            self._must_open(problem)

    def _must_open(self, problem: Problem) -> None:
        """Raises UserError if nobody could say how often the backdoor opens."""
        assert isinstance(problem, SupervisedProblem), "asked for before"
        if problem.objectives[0].name != "accuracy":
            raise UserError(
                f"attack: how often a backdoor opens is measured as accuracy; the first objective of {problem.name} is "
                f"{problem.objectives[0].name}"
            )
        labels = problem.classes()
        if labels is not None and self.target >= labels[1]:
            raise UserError(
                f"attack: target is {self.target}, but the classes of {problem.name} are 0 to {labels[1] - 1}"
            )

    def attackers(self, clients: Sequence[int] | np.ndarray, seed: int) -> frozenset[int]:
        """The attackers among these clients of the federation with this seed."""
        if self.kind == "none":
            return frozenset()
        if self.clients:
            return frozenset(self.clients)
        count = min(max(1, round(self.share * len(clients))), len(clients) - 1)
        drawn = rng.generator(rng.Address(seed), "attackers").choice(sorted(clients), size=count, replace=False)
        return frozenset(int(client) for client in drawn)


@dataclass
class Raid:
    """An attack on several federations whose clients share one stack."""

    attack: Attack
    attackers: Sequence[frozenset[int]]
    """Attackers of each federation."""
    seeds: Sequence[int]
    twins: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Position of the copy with false labels, by a client's position in the rows; its own if it does not attack."""

    def among(self, clients: Sequence[Sequence[int]]) -> Raid:
        """The part of it that these clients of each federation take."""
        return replace(self, attackers=[one & set(some) for one, some in zip(self.attackers, clients, strict=True)])

    def lies(self, run: int, clients: np.ndarray, round_: int) -> np.ndarray:
        """Mask of the clients of a federation that attack in a round, `[n]`; none in round 0, which only measures."""
        if round_ < self.attack.from_round:
            return np.zeros(len(clients), dtype=bool)
        return np.isin(clients, list(self.attackers[run]))

    @property
    def forges(self) -> bool:
        """True if replies are changed."""
        return self.attack.kind in FORGERIES or (self.attack.kind == "backdoor" and self.attack.force != 1)

    def with_twins(self, splits: Splits, problem: Problem, position: Position) -> Splits:
        """The rows, and under new positions the attackers again, with false labels in what they train on; of a backdoor
        also the rows on which it is measured.
        """
        if self.attack.kind not in RELABELLINGS:
            return splits
        assert isinstance(problem, SupervisedProblem), "asked for by must_fit"
        labels = problem.classes()
        assert labels is not None, "asked for by must_fit"
        if self.attack.kind == "backdoor":
            trained, *others = splits
            measured = self._trigger(labels[0]).probe(splits[held_out(list(splits))])
            splits = {trained: splits[trained], SPLIT: measured, **{name: splits[name] for name in others}}
        numbers = [np.array(sorted(one), dtype=np.int64) for one in self.attackers]
        attackers = np.concatenate([position(run, one) for run, one in enumerate(numbers)])
        addresses = rng.Addresses.cat(
            [rng.Addresses.at(seed, one, round=0) for seed, one in zip(self.seeds, numbers, strict=True)]
        )
        first = len(splits["train"].counts)
        self.twins = np.arange(first)
        self.twins[attackers] = first + np.arange(len(attackers))
        return {
            name: self._relabelled(rows, attackers, addresses, *labels)
            if name == "train"
            else _repeated(rows, attackers)
            for name, rows in splits.items()
        }

    def _trigger(self, label: str) -> Trigger:
        return Trigger(label, self.attack.target, self.attack.columns, self.attack.value)

    def _relabelled(
        self, rows: Rows, positions: np.ndarray, addresses: rng.Addresses, column: str, classes: int
    ) -> Rows:
        """Append copies of some clients' rows, their labels false."""
        copies = [rows.of_client(position) for position in positions]
        for place, copy in enumerate(copies):
            address = addresses[place : place + 1]
            if self.attack.kind == "label-flip":
                copy[column] = classes - 1 - copy[column]
            elif self.attack.kind == "backdoor":
                drawn = _some(len(copy[column]), address, self.attack.poisoned)
                copies[place] = self._trigger(column).planted(copy, drawn.to(copy[column].device))
            else:
                copy[column] = _noisy(copy[column], address, self.attack.force, classes)
        columns = {name: torch.cat([whole, *(copy[name] for copy in copies)]) for name, whole in rows.columns.items()}
        counts = rows.counts[positions]
        starts = len(next(iter(rows.columns.values()))) + np.cumsum(counts) - counts
        return Rows(columns, np.concatenate([rows.starts, starts]), np.concatenate([rows.counts, counts]))

    def silent(self, run: int, clients: np.ndarray, round_: int) -> np.ndarray:
        """Mask of the clients of a federation that say nothing in a round, `[n]`: each in its turn they reply."""
        if self.attack.kind != "seldom":
            return np.zeros(len(clients), dtype=bool)
        found: np.ndarray = self.lies(run, clients, round_) & ((round_ + clients) % int(self.attack.force) != 0)
        return found

    def join(self, clients: Clients, lies: np.ndarray) -> Clients:
        """Make attackers (those that lie, `[n]`) falsify their loss, number of rows or labels."""
        if not lies.any() or self.attack.kind in (*FORGERIES, "seldom"):
            return clients
        if self.attack.kind in RELABELLINGS:
            return replace(clients, positions=np.where(lies, self.twins[clients.positions], clients.positions))
        return replace(clients, tampering=self._tampering(torch.as_tensor(lies), clients.preferences))

    def _tampering(self, lies: Tensor, like: Tensor) -> Tampering:
        def where_they_lie(kind: str, honest: float) -> Tensor:
            values = torch.full((len(lies),), honest, dtype=torch.float64)
            if self.attack.kind == kind:
                values[lies] = self.attack.force
            return values.to(like)

        return Tampering(
            where_they_lie("scaling", 1.0), where_they_lie("bias", 0.0), where_they_lie("inflated-count", 1.0)
        )

    def forged(self, tasks: Tasks, addresses: rng.Addresses, reply: Message, lies: np.ndarray) -> Message:
        """Replies that are sent instead of a stack `{name: [n, ...]}` to `tasks`, row by row; honest ones unchanged.

        `addresses` and `lies` `[n]` are of the same clients. All of them do the same work: colluding attackers agree.
        """
        rows = np.flatnonzero(lies)
        if not self.forges or not len(rows):
            return reply
        who = torch.as_tensor(rows, device=addresses.client.device)
        false = dict(reply)
        mine = {name: tensor[who] for name, tensor in reply.items()}
        for name, origin in beginnings(tasks.only(rows), mine).items():
            update = self._false(mine[name] - origin, addresses[who], name)
            false[name] = reply[name].index_copy(0, who, origin + update)
        return false

    def _false(self, updates: Tensor, addresses: rng.Addresses, name: str) -> Tensor:
        """False updates instead of true ones, `[n, ...]`."""
        if self.attack.kind == "backdoor":
            return self.attack.force * updates
        if self.attack.kind == "collusion":
            updates = updates.mean(dim=0, keepdim=True)
        if self.attack.kind not in NOISE:
            return -self.attack.force * updates
        # N(0, s² ‖Δ‖² / d) in each of the d entries: about s times as long as the true update Δ.
        entries = max(updates[0].numel(), 1)
        noise = addresses.normal(f"{PURPOSE} {name}", entries).view_as(updates).to(updates)
        lengths = updates.flatten(1).norm(dim=1).view(-1, *[1] * (updates.dim() - 1))
        scale: Tensor = self.attack.force / math.sqrt(entries) * lengths
        return scale * noise


def raid_on(settings: Sequence[Setting], attack: Attack, problem: Problem) -> Raid | None:
    """The attack on these federations; None without one."""
    if attack.kind == "none":
        return None
    attack.must_fit(problem, min(len(setting.clients) for setting in settings))
    attackers = [attack.attackers(setting.clients, setting.seed) for setting in settings]
    return Raid(attack, attackers, [setting.seed for setting in settings])


def without_work(setting: Setting, attack: Attack, problem: Problem) -> Callable[[int], np.ndarray] | None:
    """Mask of the clients `[n]` that reply without any work, by round; None where everybody works."""
    raid = raid_on([setting], attack, problem) if attack.kind == "free-rider" else None
    return None if raid is None else lambda round_: raid.lies(0, setting.clients, round_)


def _noisy(labels: Tensor, address: rng.Addresses, share: float, classes: int) -> Tensor:
    """Labels `[rows]`, of which a share, drawn from the client's stream, is any other class, each as likely."""
    rows = len(labels)
    drawn = _some(rows, address, share)
    shift = 1 + (address.uniform(f"{PURPOSE} labels", rows, dtype=torch.float64)[0] * (classes - 1)).floor()
    false = (labels[drawn].double() + shift[drawn].to(labels.device)) % classes
    return labels.index_copy(0, drawn.to(labels.device), false.to(labels))


def _some(rows: int, address: rng.Addresses, share: float) -> Tensor:
    """A share of so many rows, drawn from the client's stream."""
    order: Tensor = address.orders(f"{PURPOSE} rows", torch.tensor([rows]), 1, rows)[0, 0]
    return order[: round(share * rows)]


def _repeated(rows: Rows, positions: np.ndarray) -> Rows:
    return replace(
        rows,
        starts=np.concatenate([rows.starts, rows.starts[positions]]),
        counts=np.concatenate([rows.counts, rows.counts[positions]]),
    )
