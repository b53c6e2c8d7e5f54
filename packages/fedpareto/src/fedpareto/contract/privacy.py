"""Differential privacy of whole clients: what a user requests, and the resulting ε.

All noise is Gaussian, so that everything a client gives away adds up: a release whose noise has the deviation σ, of
something that one client can change by at most Δ, costs (Δ / σ)², and any number of them, each chosen in view of those
before it, is one Gaussian mechanism with the sum of their costs (Dong, Roth and Su, "Gaussian differential privacy",
2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeAlias

from fedpareto.config import kinds
from fedpareto.config.bounds import Bounded, Endless, NotNegative, OpenShare, Positive, ShareBelowOne, Whole
from fedpareto.config.errors import UserError

Part: TypeAlias = Literal["update", "losses", "objectives", "choice", "count", "public"]
"""The kind of a tensor of a reply, so that privacy knows how to hide a client in it: something that is clipped as a
whole (measured from where it began, see contract.messages.origins); losses, cut off at `largest_loss`; objectives,
within their ranges; one of several possible answers, by its number; a number of rows, for which 1 is sent; or nothing
about rows.
"""
Objectives: TypeAlias = Literal["exact", "rounded", "noised", "withheld"]
"""Ways in which clients report the objectives of models."""

ORDERS = (*range(2, 33), 40, 48, 64)
"""Rényi orders that the subsampled bound is minimised over; more of them cost seconds and change little."""


@dataclass(frozen=True)
class Privacy(Bounded):
    """Clipped updates with Gaussian noise (McMahan et al., "Learning differentially private recurrent language
    models", 2018); the unit that is protected is a client, with all its rows."""

    prefix: ClassVar[str] = "privacy: "

    kind: kinds.Privacy = "none"
    """`central`: a trusted server adds the noise to the mean; `local`: each client adds it before its reply leaves;
    `distributed`: each adds a share of the central noise, and a secure sum hides all but the sum.
    """
    clip: Endless = 1.0
    """C: a longer update is shortened to this norm, over the whole model."""
    noise: NotNegative = 1.0
    """Noise z: on each parameter it has the deviation zC on one update, or on the sum of all of them."""
    delta: OpenShare = 1e-5
    """δ, for which ε is recorded; well below 1 / clients."""
    randomness: Literal["seed", "system"] = "seed"
    """`seed`: reproducible noise, for studies: anyone who knows the seed can subtract it; `system`: secret noise."""
    participants: Literal["public", "secret"] = "public"
    """`secret`: a smaller ε under partial participation, against those who know neither the seed nor who took part."""

    largest_loss: Positive = 1.0
    """B: a loss that a client sends beside its update counts as this if it is larger, and as 0 if it is negative."""
    values_share: OpenShare = 0.1
    """Share of a reply's privacy that its losses, objectives and choices have together; its updates have the rest."""
    objectives: Objectives = "exact"
    """Report of objectives by clients: as they are; rounded, which is no protection by itself; with noise; or not."""
    objectives_noise: Positive = 1.0
    """Noise z of a report: one that holds k values has the deviation z√k on each, times the objective's range."""
    objectives_digits: Whole = 2
    """Decimals of a rounded report."""
    dropouts: ShareBelowOne = 0.3
    """Share of a round's clients whose noise may be missing in `distributed`, because they drop out or are in league
    with the server; beyond it, ε grows faster.
    """
    budget: Endless = math.inf
    """The largest ε that a node may spend; it refuses to answer what would cost more. A node may have a lower one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise and math.isinf(self.clip):
            raise UserError("privacy: clip is inf; noise can only hide updates of limited length")
        if self.kind in ("local", "distributed") and self.participants == "secret":
            raise UserError(
                f"privacy: participants cannot be secret with kind {self.kind}: the server sees who replies"
            )
        if self.budget < math.inf:
            self.must_be_countable()

    def must_be_countable(self) -> None:
        """Raises UserError if no budget could cover what clients send."""
        if self.kind == "none" or not self.noise:
            raise UserError("privacy: a budget needs noise to count, and here is none; see kind and noise")
        if math.isinf(self.report_cost):
            raise UserError(
                f"privacy: objectives is {self.objectives}, and no budget covers objectives without noise; "
                "take noised or withheld"
            )

    @property
    def deviation(self) -> float:
        """Deviation zC of the noise on one update or on a sum of them."""
        return self.noise * self.clip if self.noise else 0.0

    @property
    def reply_cost(self) -> float:
        """(Δ / σ)² of one reply, however many tensors it has.

        Two federations are neighbours, if central or distributed, when they are equal but for one client, whose updates
        are zero in one of them (Kairouz et al., 2021): a sum of clipped updates then differs by at most C. If local,
        when a client's reply is any other: its update differs by at most 2C.
        """
        if not self.noise:
            return math.inf
        return (2 / self.noise if self.kind == "local" else 1 / self.noise) ** 2

    @property
    def report_cost(self) -> float:
        """Cost of the objectives of one model: a client's rows may move each of them over its whole range."""
        if self.objectives == "withheld":
            return 0.0
        return self.objectives_noise**-2 if self.objectives == "noised" else math.inf

    def longest_mean(self, clients: int, numbers: int, parts: int) -> float:
        """Largest length of the mean update of so many clients, over `numbers` entries in `parts` that are clipped
        each; with room for noise and rounding that is never used up.
        """
        if self.kind == "none":
            return math.inf
        each = {"central": 0.0, "local": math.sqrt(parts / (1 - self.values_share)), "distributed": 1.0}[self.kind]
        noise = each * self.deviation / math.sqrt(clients)
        return 1.001 * math.sqrt(parts) * self.clip + 2 * noise * (math.sqrt(numbers) + 10)

    def epsilon_of(self, cost: float) -> float:
        """ε at the given δ of releases that cost so much together; exactly for Gaussians (Balle and Wang, 2018)."""
        if not cost or math.isinf(cost):
            return cost
        return _concentrated(cost, self.delta) if self.kind == "distributed" else _gaussian(cost**-0.5, self.delta)


@dataclass(frozen=True)
class Exposure:
    """Uses that a run has made of its clients so far, with all its seeds: they train on the same rows."""

    most: float
    """Replies for which the most often selected client was selected; one whose noise was less than agreed counts more.
    """
    rounds: int
    sampled: int
    """Clients selected in a round, always as many, and none twice."""
    clients: int
    drawn: bool = True
    """True if all of them are drawn at random, each as likely as any other."""
    reports: int = 0
    """Models whose objectives a client has reported, at the most."""


def epsilon(privacy: Privacy, exposure: Exposure) -> float:
    """ε at the given δ of replies, and of reports where these have noise: the smallest for which (ε, δ)-differential
    privacy was shown.
    """
    reports = exposure.reports if privacy.objectives == "noised" else 0
    told = reports * privacy.report_cost if reports else 0.0
    known = privacy.epsilon_of(told + (exposure.most * privacy.reply_cost if exposure.most else 0.0))
    if privacy.participants == "public" or not exposure.drawn or exposure.sampled >= exposure.clients:
        return known
    if not exposure.most or not privacy.noise:
        return known
    return min(known, _sampled(privacy, replace(exposure, reports=reports)))


def epsilon_of_all(privacy: Privacy, exposure: Exposure) -> float:
    """ε of everything that leaves a client: infinite where it reports objectives as they are, or rounded."""
    if exposure.reports and math.isinf(privacy.report_cost):
        return math.inf
    return epsilon(privacy, exposure)


def need_accountant(privacy: Privacy) -> None:
    """Raises UserError if ε will be needed and cannot be computed; before a run, not in its first round."""
    if privacy.kind != "none" and (privacy.noise or privacy.objectives == "noised"):
        _accounting()


@lru_cache(maxsize=1024)
def _gaussian(z: float, delta: float) -> float:
    """ε of a Gaussian mechanism whose noise has z times the deviation of its sensitivity."""
    return float(_accounting().get_epsilon_gaussian(z, delta))


def _concentrated(cost: float, delta: float) -> float:
    """ε of whatever has a Rényi divergence of at most α·cost / 2 for each order α, as discrete Gaussians have: Canonne,
    Kamath and Steinke, 2020, proposition 12.
    """
    # A fine grid around the order that is best for the simpler bound, cost α / 2 + log(1/δ) / (α − 1).
    best = 1 + math.sqrt(-2 * math.log(delta) / cost)
    orders = [1 + (best - 1) * 1.01**step for step in range(-200, 201)]
    return max(0.0, min(a * cost / 2 + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in orders))


@lru_cache(maxsize=1024)
def _sampled(privacy: Privacy, exposure: Exposure) -> float:
    """A bound for clients drawn without replacement in every round, always as many: theorem 27 of Wang, Balle and
    Kasiviswanathan, "Subsampled Rényi differential privacy and analytical moments accountant", 2019, and from Rényi
    divergence to ε proposition 12 of Canonne, Kamath and Steinke, 2020.

    It is one for neighbours that differ in any way in one client, so the sum differs by 2C and z counts half.
    """
    dp = _accounting()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    mean = dp.GaussianDpEvent(privacy.noise / 2)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(exposure.clients, exposure.sampled, mean), exposure.rounds)
    if exposure.reports:
        accountant.compose(dp.GaussianDpEvent(privacy.objectives_noise), exposure.reports)
    return float(accountant.get_epsilon(privacy.delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise UserError("privacy needs an accountant for epsilon; try: pip install 'fedpareto[privacy]'") from None
    return dp_accounting
