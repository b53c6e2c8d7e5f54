"""Server-side defences against malicious clients, between their replies and the algorithm: part of a run's spec.

It sees replies only, so it protects a federation on any engine, and every algorithm works with it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, small_setting
from fedpareto.core.messages import Message, Reply, Task, beginnings
from fedpareto.core.privacy import Privacy
from fedpareto.errors import UserError
from fedpareto.moo import robust

DEFENCE_PARAMETERS: Mapping[str, Sequence[str]] = {
    "norm": ("clip",),
    "attackers": ("trimmed-mean", "krum", "multi-krum"),
    "epsilon": ("fedmgda-plus",),
}
"""Which rules use each parameter."""


@dataclass(frozen=True)
class Defence:
    """A robust rule that replies go through before they reach the algorithm."""

    rule: Literal["none", "clip", "median", "trimmed-mean", "krum", "multi-krum", "fedmgda-plus"] = "none"
    """`clip` shortens long updates; `median`, `trimmed-mean` and `fedmgda-plus` replace all updates by one robust
    update; `krum` and `multi-krum` keep only updates that lie close together.
    """
    norm: float = 0.0
    """Of clip: the largest norm an update may have; 0: the median norm of the updates of a round."""
    attackers: float = 0.2
    """Of trimmed-mean, krum and multi-krum, f: how many of the replying clients may be malicious; below 1 a share,
    else a number.
    """
    epsilon: float = 0.1
    """Of fedmgda-plus: how far a client's weight may be from 1/n; 0: equal weights, 1: free weights."""

    def __post_init__(self) -> None:
        if not 0 <= self.norm < math.inf:
            raise UserError(f"defence: norm is {self.norm:g}; it is a length, or 0 for the median length of a round")
        if not (0 <= self.attackers < 0.5 or (self.attackers >= 1 and float(self.attackers).is_integer())):
            raise UserError(f"defence: attackers is {self.attackers:g}; it is a share below 0.5 or a whole number")
        if not 0 <= self.epsilon <= 1:
            raise UserError(f"defence: epsilon is {self.epsilon:g}; it is between 0 (equal weights) and 1 (free)")

    def assumed(self, replies: int) -> int:
        """f for this number of replies."""
        return math.ceil(self.attackers * replies - 1e-9) if self.attackers < 1 else int(self.attackers)

    def must_fit(self, algorithm: Algorithm[Any], privacy: Privacy, asked: int) -> None:
        """Raises UserError if the rule does not fit an algorithm, its privacy or the number of clients in a round."""
        why = self.rule != "none" and (_unfit(self.rule, algorithm) or self._exposed(privacy) or self._too_few(asked))
        if why:
            raise UserError(f"defence.rule={self.rule} does not fit {algorithm.name}: {why}")

    def _exposed(self, privacy: Privacy) -> str:
        if privacy.kind == "central" and not (self.rule == "clip" and self.norm):
            return "noise on a mean (privacy.kind=central) protects nobody under another rule; kind=local does"
        return ""

    def _too_few(self, asked: int) -> str:
        f = self.assumed(asked)
        needed = {"trimmed-mean": 2 * f + 1, "krum": 2 * f + 3, "multi-krum": 2 * f + 3}.get(self.rule, 1)
        if asked >= needed:
            return ""
        liars = "1 attacker" if f == 1 else f"{f} attackers"
        return f"against {liars} it needs at least {needed} clients in a round, not {asked}"

    def applied(self, tasks: Sequence[Task], replies: Sequence[Reply]) -> Defended:
        """What the algorithm receives instead of the replies to these tasks; only replies with a model change."""
        if self.rule == "none":
            return Defended(list(replies))
        asked = {(task.client, task.step, task.lane): task for task in tasks}
        told: list[Reply] = []
        groups: dict[tuple[str, int], list[_Trained]] = {}
        for reply in replies:
            begun = beginnings(asked[reply.client, reply.step, reply.lane], reply.message)
            if begun:
                groups.setdefault((reply.step, reply.lane), []).append(_Trained(reply, begun))
            elif reply.step == "train":
                raise UserError("defence: the clients' replies hold no model to compare with what they were sent")
            else:
                told.append(reply)
        for group in groups.values():
            told += self._of_group(group)
        told.sort(key=lambda reply: (reply.lane, reply.client))
        return Defended(told, **self._notes(replies, told))

    def _of_group(self, group: Sequence[_Trained]) -> list[Reply]:
        """The replies to one group of tasks, after the rule."""
        if self.rule == "clip":
            return self._clipped(group)
        origin, models = _one_origin(group), [one.reply.message["model"] for one in group]
        f = self.assumed(len(group))
        if self.rule in ("krum", "multi-krum"):
            keep = 1 if self.rule == "krum" else max(len(group) - f, 1)
            return [_counted_alike(group[place].reply) for place in robust.krum(models, origin, f, keep)]
        if self.rule == "median":
            update = robust.median(models, origin)
        elif self.rule == "trimmed-mean":
            update = robust.trimmed_mean(models, origin, min(f, (len(group) - 1) // 2))
        else:
            update = robust.common_descent(models, origin, self.epsilon)
        model = origin + update.to(origin)
        return [_counted_alike(one.reply, {"model": model}) for one in group]

    def _clipped(self, group: Sequence[_Trained]) -> list[Reply]:
        """Each model (each one of several) no further from where it began than the norm allows."""
        messages: list[Message] = [dict(one.reply.message) for one in group]
        for name in group[0].begun:
            models, origins = [one.reply.message[name] for one in group], [one.begun[name] for one in group]
            lengths = robust.lengths(models, origins)
            limit = torch.full_like(lengths[0], self.norm) if self.norm else robust.middle(lengths)
            for row, (model, origin) in enumerate(zip(models, origins, strict=True)):
                if bool((lengths[row] > limit).any()):
                    messages[row][name] = robust.clipped(model, origin, limit)
        return [
            one.reply if _same(message, one.reply.message) else replace(one.reply, message=message)
            for one, message in zip(group, messages, strict=True)
        ]

    def _notes(self, replies: Sequence[Reply], told: Sequence[Reply]) -> dict[str, tuple[int, ...]]:
        """Which clients the rule has treated differently, where it does so."""
        if self.rule == "clip":
            unchanged = {id(reply) for reply in told}
            return {"shortened": tuple(reply.client for reply in replies if id(reply) not in unchanged)}
        heard = {(reply.client, reply.lane) for reply in told}
        return {"left_out": tuple(reply.client for reply in replies if (reply.client, reply.lane) not in heard)}


@dataclass(frozen=True)
class Defended:
    """What the algorithm receives, and which clients the rule treated differently."""

    replies: list[Reply]
    left_out: tuple[int, ...] = ()
    shortened: tuple[int, ...] = ()

    def notes(self) -> dict[str, list[int]]:
        """For the round's record."""
        named = {"left_out": self.left_out, "shortened": self.shortened}
        return {name: list(clients) for name, clients in named.items() if clients}


@dataclass(frozen=True)
class _Trained:
    """A reply, and where its models began."""

    reply: Reply
    begun: Message


def _unfit(rule: str, algorithm: Algorithm[Any]) -> str:
    """Why a rule does not fit an algorithm's replies; empty if it does."""
    if algorithm.name.endswith("+ft"):
        return "in its last round nothing is aggregated; take the algorithm without +ft"
    train = algorithm.reply_shapes(small_setting()).get("train", {})
    if not train:
        return "its clients send no model to the server"
    if rule != "clip" and (algorithm.personalised or "model" not in train):
        return (
            "its server does not make one model for all; this rule is for those that do, "
            "such as fedavg, fedprox, fedmgda-plus or q-fedavg, and clip is for all"
        )
    return ""


def _one_origin(group: Sequence[_Trained]) -> Tensor:
    """The one model from which all clients began."""
    first = group[0].begun.get("model")
    if first is None or any(one.begun["model"] is not first for one in group):
        raise UserError(
            "defence: the clients did not train one and the same model, so their updates cannot be compared"
        )
    return first


def _counted_alike(reply: Reply, message: Message | None = None) -> Reply:
    """The reply with some tensors replaced, and the same number of rows for all clients, as it may be false."""
    changed = {**reply.message, **(message or {})}
    if "size" in changed:
        changed["size"] = torch.ones_like(changed["size"])
    return replace(reply, message=changed)


def _same(one: Message, other: Message) -> bool:
    return all(one[name] is other[name] for name in other)
