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
from fedpareto.moo.updates import gram_of_updates, sum_of_updates
from fedpareto.trust.confidence import Standing
from fedpareto.trust.privacy import Privacy

DEFENCE_PARAMETERS: Mapping[str, Sequence[str]] = {
    "norm": ("clip",),
    "attackers": ("trimmed-mean", "krum", "multi-krum"),
    "epsilon": ("fedmgda-plus",),
    "prior": ("confidence",),
    "width": ("confidence",),
    "widening": ("confidence",),
    "certainty": ("confidence",),
}
"""Which rules use each parameter."""


@dataclass(frozen=True)
class Defence:
    """A robust rule that replies go through before they reach the algorithm."""

    rule: Literal["none", "clip", "median", "trimmed-mean", "krum", "multi-krum", "fedmgda-plus", "confidence"] = "none"
    """`clip` shortens long updates; `median`, `trimmed-mean` and `fedmgda-plus` replace all updates by one robust
    update; `krum` and `multi-krum` keep only updates that lie close together; `confidence` weights clients by how
    often their updates were good, and blocks those who are bad more often than not.
    """
    norm: float = 0.0
    """Of clip: the largest norm an update may have; 0: the median norm of the updates of a round."""
    attackers: float = 0.2
    """Of trimmed-mean, krum and multi-krum, f: how many of the replying clients may be malicious; below 1 a share,
    else a number.
    """
    epsilon: float = 0.1
    """Of fedmgda-plus: how far a client's weight may be from 1/n; 0: equal weights, 1: free weights."""
    prior: float = 3.0
    """Of confidence, α₀ = β₀: as many good and as many bad updates every client is believed to have sent before."""
    width: float = 2.0
    """Of confidence, ξ: how many standard deviations from the median a cosine may be."""
    widening: float = 0.5
    """Of confidence, Δξ: how much wider that is each time that updates were discarded in a round."""
    certainty: float = 0.95
    """Of confidence, δ: how sure it has to be that a client is bad more often than good, for it to be blocked."""

    def __post_init__(self) -> None:
        if not 0 <= self.norm < math.inf:
            raise UserError(f"defence: norm is {self.norm:g}; it is a length, or 0 for the median length of a round")
        if not (0 <= self.attackers < 0.5 or (self.attackers >= 1 and float(self.attackers).is_integer())):
            raise UserError(f"defence: attackers is {self.attackers:g}; it is a share below 0.5 or a whole number")
        if not 0 <= self.epsilon <= 1:
            raise UserError(f"defence: epsilon is {self.epsilon:g}; it is between 0 (equal weights) and 1 (free)")
        for name in ("prior", "width"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"defence: {name} is {getattr(self, name):g}; it is a positive number")
        if not 0 <= self.widening < math.inf:
            raise UserError(f"defence: widening is {self.widening:g}; it is 0 or more")
        if not 0.5 <= self.certainty < 1:
            raise UserError(f"defence: certainty is {self.certainty:g}; it is a probability from 0.5 to below 1")

    @property
    def remembers(self) -> bool:
        """Whether what it does depends on rounds before: it then has a Standing."""
        return self.rule == "confidence"

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
        needed = {"trimmed-mean": 2 * f + 1, "krum": 2 * f + 3, "multi-krum": 2 * f + 3, "confidence": 3}
        if asked >= needed.get(self.rule, 1):
            return ""
        if self.rule == "confidence":
            return f"to say who is unlike the others it needs at least 3 clients in a round, not {asked}"
        liars = "1 attacker" if f == 1 else f"{f} attackers"
        return f"against {liars} it needs at least {needed[self.rule]} clients in a round, not {asked}"

    def applied(self, tasks: Sequence[Tasks], replies: Replies, standing: Standing | None = None) -> Defended:
        """What the algorithm receives instead of the replies to these tasks; only replies with a model change.

        `standing` is what a rule that remembers has seen so far; None: nothing yet.
        """
        if self.rule == "none" or not len(replies):
            return Defended(replies, standing=standing)
        if self.remembers and standing is None:
            standing = Standing.unknown(np.unique(replies.clients))
        whole, done = replies.whole(), []
        for some in tasks:
            if len(own := whole.in_lane(some.lane)):
                done.append(self._of_group(some, own, standing))
                standing = done[-1].standing
        told = Replies.cat([one.replies for one in done])
        left_out, shortened = (tuple(c for one in done for c in getattr(one, name)) for name in _NOTES)
        return Defended(told, left_out, shortened, standing)

    def trusted(self, standing: Standing) -> np.ndarray:
        """The clients who are not blocked, ascending."""
        found: np.ndarray = standing.clients[~standing.blocked(self.prior, self.certainty)]
        return found

    def _of_group(self, tasks: Tasks, replies: Replies, standing: Standing | None) -> Defended:
        """The replies to one stack of tasks, after the rule."""
        begun = beginnings(tasks.only(places(tasks.clients, replies.clients)), replies.tensors)
        if not begun:
            if replies.step == "train":
                raise UserError("defence: the clients' replies hold no model to compare with what they were sent")
            return Defended(replies, standing=standing)
        if self.rule == "clip":
            return self._clipped(begun, replies)
        origin, models = _one_origin(tasks), replies["model"]
        if standing is not None:
            return self._believed(origin, replies, standing)
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

    def _believed(self, origin: Tensor, replies: Replies, standing: Standing) -> Defended:
        """For all who are taken the mean of their updates by confidence; without any, nothing moves."""
        rows = np.flatnonzero(np.isin(replies.clients, self.trusted(standing)))
        update = torch.zeros_like(origin, dtype=torch.float64)
        told, left_out = replies, replies.clients
        if len(rows):
            heard = replies.only(rows)
            known = standing.confidence(self.prior)[places(standing.clients, heard.clients)]
            weights, gram = torch.as_tensor(known), gram_of_updates(heard["model"], origin).cpu()
            is_good = robust.alike(gram, weights, self.width, self.widening)
            shares = torch.where(is_good, weights, torch.zeros_like(weights))
            update = sum_of_updates(shares / shares.sum(), heard["model"], origin)
            standing = standing.seen(heard.clients, is_good.numpy())
            told = heard.only(np.flatnonzero(is_good.numpy()))
            left_out = np.setdiff1d(replies.clients, told.clients)
        same = (origin + update.to(origin)).expand_as(told["model"])
        told = _counted_alike(replace(told, tensors={**told.tensors, "model": same}))
        return Defended(told, tuple(left_out.tolist()), standing=standing)

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
    standing: Standing | None = None
    """What the rule has seen of clients by now, if it remembers."""

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
