"""Policy of the server: for whom a round waits, and what a late reply is worth. Part of a run's spec."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from fedpareto.config import kinds
from fedpareto.config.bounds import Bounded, Count, NotNegative, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, small_setting

MODELS = frozenset({"model", "models", "body"})
"""Names of models in replies."""


@dataclass(frozen=True)
class Policy(Bounded):
    """Rule for closing a round. A round is one step of the server, whatever it waited for."""

    prefix: ClassVar[str] = "policy: "

    kind: kinds.Policy = "sync"
    """`sync` waits for all who were asked; `deadline` for those who reply in time; `buffered` for any `buffer` replies,
    while others work on; `asynchronous` for one; `tiers` for all of those who are about equally fast; `planned` for as
    many, up to `buffer`, as cost least by what is known of arrivals and presence (see fedpareto.clock.planning).
    """
    deadline: NotNegative = 0.0
    """Seconds that a round waits (deadline)."""
    late: Literal["used", "dropped"] = "used"
    """Use of a reply that comes after the deadline: it counts in a later round, or is dropped (deadline)."""
    buffer: Whole = 0
    """Number of replies in a round, K (buffered), or at most (planned); 0: 10, or half of those at work if they are
    fewer than 20.
    """
    concurrency: Whole = 0
    """Number of clients at work at a time (buffered, asynchronous, planned); 0: as many as `participation` says."""
    least: Whole = 0
    """Least number of replies in a round (planned); 0: half of `buffer`."""
    idling: NotNegative = 1.0
    """Weight of the time of one training that a client idles, against an update that is lost to staleness (planned);
    near 0 rounds have `buffer` replies, unless nobody else is at work.
    """
    tiers: Count = 3
    """Number of tiers (tiers); those of the devices, where these have tiers."""
    lead: Count = 5
    """Number of rounds that a tier may be ahead of the slowest one (tiers)."""
    staleness: Literal["constant", "polynomial", "hinge"] = "polynomial"
    """s(τ), what an update counts that began τ rounds ago: 1; (1 + τ)^−exponent; or 1 up to `grace`, then
    1/(slope·(τ − grace) + 1).
    """
    exponent: NotNegative = 0.5
    """Exponent of the polynomial staleness."""
    grace: NotNegative = 4.0
    """Rounds without loss of weight (hinge staleness)."""
    slope: NotNegative = 10.0
    """Slope with which an update loses its weight after the grace (hinge staleness)."""
    compensation: Literal["none", "taylor"] = "none"
    """Treatment of a late update: as it is, or corrected for what the server has learnt since it began, as in FedGSM
    (see fedpareto.clock.staleness).
    """
    strength: NotNegative = 1.0
    """λ of taylor; 0 is none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.kind == "deadline") != bool(self.deadline):
            raise UserError(
                "policy: kind is deadline, but no time is given; set policy.deadline, in seconds"
                if self.kind == "deadline"
                else f"policy: deadline is for the kind deadline, not for {self.kind}"
            )

        if self.compensation != "none" and self.waits:
            raise UserError("policy: compensation is for late replies, but with the kind sync nobody is late")

    @property
    def waits(self) -> bool:
        """True if every round waits for all who were asked."""
        return self.kind == "sync"

    def at_work(self, count: int) -> int:
        """Number of clients that work at any time, where so many take part in a round."""
        return self.concurrency or count

    def replies(self, count: int) -> int:
        """Number of replies that close a round of buffered, asynchronous or planned, where so many take part."""
        if self.kind == "asynchronous":
            return 1
        return self.buffer or min(10, math.ceil(self.at_work(count) / 2))

    def at_least(self, count: int) -> int:
        """Least number of replies in a round of planned, where so many take part."""
        return self.least or math.ceil(self.replies(count) / 2)

    def in_a_round(self, count: int) -> int:
        """Most replies of a round that are compared, where so many take part."""
        return self.replies(count) if self.kind in _WITH["concurrency"] else count

    def weights(self, staleness: np.ndarray) -> np.ndarray:
        """s(τ), `[k]`."""
        late = np.asarray(staleness, dtype=np.float64)
        if self.staleness == "polynomial":
            return np.asarray((1 + late) ** -self.exponent)
        if self.staleness == "hinge":
            return np.asarray(1 / (self.slope * np.maximum(late - self.grace, 0) + 1))
        return np.ones_like(late)

    def must_fit(self, algorithm: Algorithm[Any], clients: int) -> None:
        """Raises UserError if an algorithm cannot have this policy, or there are too few clients for it."""
        why = "" if self.waits else _why_not(algorithm)
        if why:
            raise UserError(f"policy.kind={self.kind} does not fit {algorithm.name}: {why}")
        if self.compensation != "none" and not _is_brought_along(algorithm):
            raise UserError(
                f"policy.compensation={self.compensation} does not fit {algorithm.name}: nobody else changes the model "
                "from which a client begins, or it sends none; leave it out"
            )
        for name, having in _WITH.items():
            if self.kind in having and getattr(self, name) > clients:
                raise UserError(f"policy: {name} is {getattr(self, name)}, but there are only {clients} clients")

    def must_be_met(self, seconds: np.ndarray) -> None:
        """Raises UserError if no client can meet a deadline, which take so long for one training, `[n]`."""
        if self.kind == "deadline" and len(seconds) and seconds.min() > self.deadline:
            raise UserError(
                f"policy: deadline is {self.deadline:g} s, but the fastest client needs {seconds.min():.3g} s"
            )


_WITH = {
    "buffer": ("buffered", "planned"),
    "concurrency": ("buffered", "asynchronous", "planned"),
    "least": ("planned",),
}
"""Kinds that use each number of clients."""


def _why_not(algorithm: Algorithm[Any]) -> str:
    """Why a late reply has no meaning; or nothing."""
    if algorithm.channel.privacy.kind not in ("none", "local"):
        return "noise on a mean is made for updates of one round, and a late one is moved and weighed; kind=local does"
    if algorithm.channel.secure_sum.kind != "none":
        return algorithm.waits
    return algorithm.waits


def _is_brought_along(algorithm: Algorithm[Any]) -> bool:
    """Check whether a late reply holds a model that is brought to where its client would begin now."""
    plain, one = algorithm.method, torch.ones(1, 1)
    fresh = plain.refreshed({"model": one}, {"model": 0 * one}, {"model": 2 * one}, 0.5 * one[0])["model"]
    sends = plain.reply_shapes(small_setting()).get("train", {})
    return not torch.equal(fresh, one) and not MODELS.isdisjoint(sends)
