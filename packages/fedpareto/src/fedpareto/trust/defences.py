"""Server-side defences against malicious clients, between their replies and the algorithm: part of a run's spec.

It sees replies only, so it protects a federation on any engine, and every algorithm works with it unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.config import kinds
from fedpareto.config.bounds import AtLeast, Bounded, NotNegative, Positive, Share
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, model_sized, small_setting
from fedpareto.contract.messages import Message, Replies, Tasks, beginnings, places, take_rows, taken
from fedpareto.contract.privacy import Privacy
from fedpareto.moo import robust
from fedpareto.moo.updates import gram_of_updates, sum_of_updates
from fedpareto.trust.confidence import Standing

DEFENCE_PARAMETERS: Mapping[str, Sequence[str]] = {
    "norm": ("clip",),
    "attackers": ("trimmed-mean", "krum", "multi-krum"),
    "radius": ("median", "trimmed-mean", "krum", "fedmgda-plus"),
    "epsilon": ("fedmgda-plus",),
    "prior": ("confidence",),
    "width": ("confidence",),
    "widening": ("confidence",),
    "certainty": ("confidence",),
}
"""Rules that use each parameter."""
COMPARABLE = {"model", "models", "body", "updates"}
"""Names of tensors in replies of which a rule knows where they began."""
FEWEST = 3
"""Clients of whom one can be unlike the others; fewer are not compared, but clipped."""


@dataclass(frozen=True)
class Defence(Bounded):
    """A robust rule that replies go through before they reach the algorithm."""

    prefix: ClassVar[str] = "defence: "

    rule: kinds.Defence = "none"
    """`clip` shortens long updates; `median`, `trimmed-mean` and `fedmgda-plus` replace all updates by one robust
    update; `krum` and `multi-krum` keep only updates that lie close together; `confidence` weights clients by how
    often their updates were good, and blocks those who are bad more often than not.
    """
    norm: NotNegative = 0.0
    """Largest norm that an update may have under clip; 0: the median norm of the updates of a round."""
    attackers: float = 0.2
    """Number f of the replying clients that may be malicious, for trimmed-mean, krum and multi-krum; below 1 a share.
    """
    radius: Positive = 2.0
    """Multiple of the median distance from the rule's update that a client's own may have, to be kept; for rules but
    multi-krum, where the server tells clients apart.
    """
    epsilon: Share = 0.1
    """Largest distance of a client's weight from 1/n in fedmgda-plus; 0: equal weights, 1: free weights."""
    prior: Positive = 3.0
    """Prior α₀ = β₀ of confidence: as many good and as many bad updates every client is believed to have sent before.
    """
    width: Positive = 2.0
    """Width ξ of confidence: the standard deviations from the median that a cosine may be."""
    widening: NotNegative = 0.5
    """Widening Δξ of confidence: the addition to that each time that updates were discarded in a round."""
    certainty: Annotated[float, AtLeast(0.5, below=1)] = 0.95
    """Certainty δ of confidence that a client is bad more often than good, for it to be blocked."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 <= self.attackers < 0.5 or (self.attackers >= 1 and float(self.attackers).is_integer())):
            raise UserError(f"defence: attackers is {self.attackers:g}; it is a share below 0.5 or a whole number")

    @property
    def remembers(self) -> bool:
        """True if what it does depends on rounds before: it then has a Standing."""
        return self.rule == "confidence"

    def assumed(self, replies: int) -> int:
        """Number f of attackers among so many replies."""
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
        """Replies that the algorithm receives instead of those to these tasks; only replies with a model change.

        `standing` is what a rule that remembers has seen so far; None: nothing yet.
        """
        if self.rule == "none" or not len(replies):
            return Defended(replies, standing=standing)
        if self.remembers and standing is None:
            standing = Standing.unknown(np.unique(replies.clients))
        whole, done = replies.whole(), []
        for some in tasks:
            if len(own := whole.in_lane(some.lane)):
                done.append(self._of_lane(some, own, standing))
                standing = done[-1].standing
        told = Replies.cat([one.replies for one in done])
        left_out, shortened = (tuple(c for one in done for c in getattr(one, name)) for name in _NOTES)
        return Defended(told, left_out, shortened, standing)

    def trusted(self, standing: Standing) -> np.ndarray:
        """The clients who are not blocked, ascending."""
        found: np.ndarray = standing.clients[~standing.blocked(self.prior, self.certainty)]
        return found

    def _of_lane(self, tasks: Tasks, replies: Replies, standing: Standing | None) -> Defended:
        """The replies to one stack of tasks, after the rule."""
        begun = beginnings(tasks.only(places(tasks.clients, replies.clients)), replies.tensors)
        groups = compared(tasks, replies)
        if not begun or not groups:
            if not begun and replies.step == "train":
                raise UserError("defence: the clients' replies hold no model to compare with what they were sent")
            return Defended(replies, standing=standing)
        if self.rule == "clip":
            return self._clipped(begun, replies, self._limits(begun, replies))
        apart = keep_their_own(tasks, begun)
        alone = np.setdiff1d(np.arange(len(replies)), np.concatenate(groups))
        done = [Defended(replies.only(alone))] if len(alone) else []
        for rows in groups:
            own, start = replies.only(rows), taken(begun, rows)
            if len(rows) < FEWEST:
                done.append(self._clipped(start, _counted_alike(own), self._limits(begun, replies)))
                continue
            done.append((self._each if apart else self._together)(start, own, standing))
            standing = done[-1].standing
        return Defended.all_of(done, standing)

    def _together(self, begun: Message, replies: Replies, standing: Standing | None) -> Defended:
        """Defend clients that began from one model: one update for all, or only some of their replies."""
        name, origin = next((name, rows[0].flatten()) for name, rows in begun.items())
        models = replies[name].flatten(1)
        chosen = self._chosen(models, origin, replies.clients, standing)
        if self.rule not in ("krum", "multi-krum"):
            same = (origin + chosen.centre.to(origin)).expand_as(models).reshape(replies[name].shape)
            replies = replace(replies, tensors={**replies.tensors, name: same})
        if chosen.good is None:
            return Defended(_counted_alike(replies))
        # Where nobody is believed, everybody is told to have moved nowhere.
        told = replies.only(np.flatnonzero(chosen.good)) if chosen.good.any() else replies
        left_out = tuple(replies.clients[~chosen.good].tolist())
        return Defended(_counted_alike(told), left_out, standing=chosen.standing)

    def _each(self, begun: Message, replies: Replies, standing: Standing | None) -> Defended:
        """Defend clients that the server tells apart: everybody keeps its own update but those who are too far away.

        These get the update at the centre of the others, and what else they say is the median of what others say.
        """
        updates = torch.cat([(replies[name] - origin).flatten(1) for name, origin in begun.items()], dim=1)
        chosen = self._chosen(updates, torch.zeros_like(updates[0]), replies.clients, standing)
        good = chosen.good
        if good is None or self.rule == "krum":  # The nearest to all is a centre, and others may be near it.
            good = robust.near(updates, chosen.centre, self.radius).cpu().numpy()
        far = np.flatnonzero(~good)
        tensors, rows = dict(replies.tensors), torch.as_tensor(far, device=updates.device)
        parts = torch.split(chosen.centre.to(updates), [origin[0].numel() for origin in begun.values()])
        for (name, origin), centre in zip(begun.items(), parts, strict=True):
            moved = origin[rows] + centre.view_as(origin[0])
            tensors[name] = replies[name].index_copy(0, rows, moved)
        for name in tensors.keys() - begun.keys():
            if good.any():
                usual = robust.middle(take_rows(replies[name], np.flatnonzero(good)))
                tensors[name] = replies[name].index_copy(0, rows, usual.expand(len(far), *usual.shape).contiguous())
        told = _counted_alike(replace(replies, tensors=tensors))
        return Defended(told, tuple(replies.clients[far].tolist()), standing=chosen.standing)

    def _chosen(self, models: Tensor, origin: Tensor, clients: np.ndarray, standing: Standing | None) -> _Chosen:
        """Judgement of the rule on updates `[n, d]` of these clients."""
        f = min(self.assumed(len(models)), (len(models) - 1) // 2)
        if standing is not None:
            return self._believed(models, origin, clients, standing)
        if self.rule in ("krum", "multi-krum"):
            keep = 1 if self.rule == "krum" else len(models) - f
            good = np.zeros(len(models), dtype=bool)
            good[robust.krum(gram_of_updates(models, origin), f, keep)] = True
            centre = sum_of_updates(torch.as_tensor(good / keep), models, origin)
            return _Chosen(centre, good)
        if self.rule == "median":
            centre = robust.median(models, origin)
        elif self.rule == "trimmed-mean":
            centre = robust.trimmed_mean(models, origin, f)
        else:
            centre = robust.common_descent(models, origin, self.epsilon)
        return _Chosen(centre)

    def _believed(self, models: Tensor, origin: Tensor, clients: np.ndarray, standing: Standing) -> _Chosen:
        """Take clients that point where most do; at the centre is the mean of their updates by confidence, 0 without
        any.
        """
        good = np.isin(clients, self.trusted(standing))
        if not good.any():
            return _Chosen(torch.zeros_like(origin, dtype=torch.float64), good, standing)
        rows = np.flatnonzero(good)
        heard = take_rows(models, rows)
        known = standing.confidence(self.prior)[places(standing.clients, clients[rows])]
        weights, gram = torch.as_tensor(known), gram_of_updates(heard, origin).cpu()
        alike = robust.alike(gram, weights, self.width, self.widening)
        shares = torch.where(alike, weights, torch.zeros_like(weights))
        good[rows] = alike.numpy()
        centre = sum_of_updates(shares / shares.sum(), heard, origin)
        return _Chosen(centre, good, standing.seen(clients[rows], alike.numpy()))

    def _limits(self, begun: Message, replies: Replies) -> Message:
        """Longest update of each tensor: as the norm says, or the median length of the replies."""
        found = {name: robust.middle(robust.lengths(replies[name], origins)) for name, origins in begun.items()}
        return {name: torch.full_like(one, self.norm) if self.norm else one for name, one in found.items()}

    def _clipped(self, begun: Message, replies: Replies, limits: Message) -> Defended:
        """Each model (each one of several) no further from where it began than allowed."""
        tensors, long = dict(replies.tensors), np.zeros(len(replies), dtype=bool)
        for name, origins in begun.items():
            lengths = robust.lengths(replies[name], origins)
            tensors[name] = robust.clipped(replies[name], origins, limits[name])
            long |= (lengths > limits[name]).view(len(replies), -1).any(1).cpu().numpy()
        return Defended(replace(replies, tensors=tensors), shortened=tuple(replies.clients[long].tolist()))


@dataclass(frozen=True)
class _Chosen:
    """Judgement of a rule on updates."""

    centre: Tensor
    """The one robust update, `[d]`."""
    good: np.ndarray | None = None
    """Mask of the clients whose updates it takes, `[n]`; None: it does not choose."""
    standing: Standing | None = None


_NOTES = ("left_out", "shortened")


@dataclass(frozen=True)
class Defended:
    """Replies that the algorithm receives, and the clients that the rule treated differently."""

    replies: Replies
    left_out: tuple[int, ...] = ()
    shortened: tuple[int, ...] = ()
    standing: Standing | None = None
    """Standing of clients by now, if the rule remembers."""

    @classmethod
    def all_of(cls, parts: Sequence[Defended], standing: Standing | None) -> Defended:
        """Join several groups of the same clients' replies to the same tasks."""
        told = Replies.cat([one.replies for one in parts])
        told = told.only(np.argsort(told.clients, kind="stable"))
        left_out, shortened = (tuple(sorted(c for one in parts for c in getattr(one, name))) for name in _NOTES)
        return cls(told, left_out, shortened, standing)

    def notes(self) -> dict[str, list[int]]:
        """Notes for the round's record."""
        return {name: list(clients) for name in _NOTES if (clients := getattr(self, name))}


def _unfit(rule: str, algorithm: Algorithm[Any]) -> str:
    """Why a rule does not fit an algorithm's replies; empty if it does."""
    plain = algorithm.method
    if not plain.reply_shapes(small_setting()).get("train", {}):
        return "its clients send no model to the server"
    others = model_sized(plain, small_setting(), "train") - COMPARABLE
    if rule != "clip" and others:
        return f"its clients also send {', '.join(sorted(others))}, which no rule compares; clip is for all"
    if rule != "clip" and plain.neighbours(1) is not None:
        return "it has no server that could compare updates; clip is for all"
    if rule == "confidence" and plain.clusters_all:
        return "who is blocked does not reply, and a cluster is split only once all of it has; median does not block"
    return ""


def compared(tasks: Tasks, replies: Replies) -> list[np.ndarray]:
    """The rows of replies to these tasks whose updates can be compared, by group.

    Those who chose one of several models are compared with those who chose the same.
    """
    if "choice" in replies:
        groups = replies["choice"].long().cpu().numpy()
    elif len(tasks.groups):
        groups = tasks.groups[places(tasks.clients, replies.clients)]
    else:
        return [np.arange(len(replies))]
    return [np.flatnonzero(groups == number) for number in np.unique(groups[groups >= 0])]


def keep_their_own(tasks: Tasks, begun: Message) -> bool:
    """True if the server tells clients apart: each begins from a model of its own, or trains each of several models
    that the server then moves by weights for each client.
    """
    return any(
        name in tasks.own or name in tasks.begun or (name in tasks.shared and tasks.shared[name].dim() > 1)
        for name in begun
    )


def _counted_alike(replies: Replies) -> Replies:
    """Give all clients the same number of rows, as it may be false."""
    if "size" not in replies:
        return replies
    return replace(replies, tensors={**replies.tensors, "size": torch.ones_like(replies["size"])})
