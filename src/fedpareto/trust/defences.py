"""Server-side defences against malicious clients, between their replies and the algorithm: part of a run's spec.

It sees replies only, so it protects a federation on any engine, and every algorithm works with it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.core.algorithm import Algorithm, small_setting
from fedpareto.core.messages import Message, Replies, Tasks, beginnings, places
from fedpareto.errors import UserError
from fedpareto.moo import robust
from fedpareto.trust.privacy import Privacy

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

    def applied(self, tasks: Sequence[Tasks], replies: Replies) -> Defended:
        """What the algorithm receives instead of the replies to these tasks; only replies with a model change."""
        if self.rule == "none" or not len(replies):
            return Defended(replies)
        whole = replies.whole()
        done = [self._of_group(some, own) for some in tasks if len(own := whole.in_lane(some.lane))]
        told = Replies.cat([one.replies for one in done])
        left_out, shortened = (tuple(c for one in done for c in getattr(one, name)) for name in _NOTES)
        return Defended(told, left_out, shortened)

    def _of_group(self, tasks: Tasks, replies: Replies) -> Defended:
        """The replies to one stack of tasks, after the rule."""
        begun = beginnings(tasks.only(places(tasks.clients, replies.clients)), replies.tensors)
        if not begun:
            if replies.step == "train":
                raise UserError("defence: the clients' replies hold no model to compare with what they were sent")
            return Defended(replies)
        if self.rule == "clip":
            return self._clipped(begun, replies)
        origin, models = _one_origin(tasks), replies["model"]
        f = self.assumed(len(replies))
        if self.rule in ("krum", "multi-krum"):
            keep = 1 if self.rule == "krum" else max(len(replies) - f, 1)
            heard = np.array(robust.krum(models, origin, f, keep))
            left_out = np.setdiff1d(np.arange(len(replies)), heard)
            return Defended(_counted_alike(replies.only(heard)), tuple(replies.clients[left_out].tolist()))
        if self.rule == "median":
            update = robust.median(models, origin)
        elif self.rule == "trimmed-mean":
            update = robust.trimmed_mean(models, origin, min(f, (len(replies) - 1) // 2))
        else:
            update = robust.common_descent(models, origin, self.epsilon)
        same = (origin + update.to(origin)).expand_as(models)
        return Defended(_counted_alike(replace(replies, tensors={**replies.tensors, "model": same})))

    def _clipped(self, begun: Message, replies: Replies) -> Defended:
        """Each model (each one of several) no further from where it began than the norm allows."""
        tensors, long = dict(replies.tensors), np.zeros(len(replies), dtype=bool)
        for name, origins in begun.items():
            lengths = robust.lengths(replies[name], origins)
            limit = torch.full_like(lengths[0], self.norm) if self.norm else robust.middle(lengths)
            tensors[name] = robust.clipped(replies[name], origins, limit)
            long |= (lengths > limit).view(len(replies), -1).any(1).cpu().numpy()
        return Defended(replace(replies, tensors=tensors), shortened=tuple(replies.clients[long].tolist()))


_NOTES = ("left_out", "shortened")


@dataclass(frozen=True)
class Defended:
    """What the algorithm receives, and which clients the rule treated differently."""

    replies: Replies
    left_out: tuple[int, ...] = ()
    shortened: tuple[int, ...] = ()

    def notes(self) -> dict[str, list[int]]:
        """For the round's record."""
        return {name: list(clients) for name in _NOTES if (clients := getattr(self, name))}


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


def _one_origin(tasks: Tasks) -> Tensor:
    """The one model from which all clients began."""
    if "model" not in tasks.shared or "model" in tasks.begun:
        raise UserError(
            "defence: the clients did not train one and the same model, so their updates cannot be compared"
        )
    return tasks.shared["model"]


def _counted_alike(replies: Replies) -> Replies:
    """With the same number of rows for all clients, as it may be false."""
    if "size" not in replies:
        return replies
    return replace(replies, tensors={**replies.tensors, "size": torch.ones_like(replies["size"])})
