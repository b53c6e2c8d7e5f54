"""Differential privacy of whole clients: what a user requests, and the resulting ε."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from fedpareto.errors import UserError

ORDERS = (*range(2, 33), 40, 48, 64)
"""Rényi orders that the subsampled bound is minimised over; more of them cost seconds and change little."""


@dataclass(frozen=True)
class Privacy:
    """Clipped updates with Gaussian noise (McMahan et al., "Learning differentially private recurrent language
    models", 2018); the unit that is protected is a client, with all its rows."""

    kind: Literal["none", "central", "local"] = "none"
    """`central`: a trusted server adds the noise to the mean; `local`: each client adds it before its reply leaves."""
    clip: float = 1.0
    """C: a longer update is shortened to this norm, over the whole model."""
    noise: float = 1.0
    """z: the noise of each parameter has the deviation zC on one update, or on the sum of all of them."""
    delta: float = 1e-5
    """δ, for which ε is recorded; well below 1 / clients."""
    randomness: Literal["seed", "system"] = "seed"
    """`seed`: reproducible noise, for studies: anyone who knows the seed can subtract it; `system`: secret noise."""
    participants: Literal["public", "secret"] = "public"
    """`secret`: a smaller ε under partial participation, against those who know neither the seed nor who took part."""

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise UserError(f"privacy: clip is {self.clip}; the largest norm of an update is positive (inf: no limit)")
        if not 0 <= self.noise < math.inf:
            raise UserError(f"privacy: noise is {self.noise}; it is a multiple of clip, at least 0")
        if self.noise and math.isinf(self.clip):
            raise UserError("privacy: clip is inf; noise can only hide updates of limited length")
        if not 0 < self.delta < 1:
            raise UserError(f"privacy: delta is {self.delta}; it is a probability between 0 and 1")
        if self.kind == "local" and self.participants == "secret":
            raise UserError("privacy: participants cannot be secret with kind local: the server sees who replies")

    @property
    def deviation(self) -> float:
        """zC, of the noise on one update or on a sum of them."""
        return self.noise * self.clip if self.noise else 0.0


@dataclass(frozen=True)
class Exposure:
    """How often a run has used its clients so far, with all its seeds: they train on the same rows."""

    most: int
    """Rounds for which the most often selected client was selected."""
    rounds: int
    sampled: int
    """Clients selected in a round, always as many, and none twice."""
    clients: int
    drawn: bool = True
    """Whether all of them are drawn at random, each as likely as any other."""


def epsilon(privacy: Privacy, exposure: Exposure) -> float:
    """ε at the given δ, the smallest for which (ε, δ)-differential privacy was shown.

    Two federations are neighbours, if central, when they are equal but for one client, whose updates are zero in one
    of them (Kairouz et al., 2021): a sum of clipped updates then differs by at most C. If local, when a client's
    update is any other of norm C at most: it differs by 2C.
    """
    if not exposure.most:
        return 0.0
    if not privacy.noise:
        return math.inf
    z = privacy.noise / 2 if privacy.kind == "local" else privacy.noise
    known = _gaussian(z, exposure.most, privacy.delta)
    if privacy.participants == "public" or not exposure.drawn or exposure.sampled >= exposure.clients:
        return known
    return min(known, _sampled(z, exposure.rounds, exposure.sampled, exposure.clients, privacy.delta))


def need_accountant(privacy: Privacy) -> None:
    """Raises UserError if ε will be needed and cannot be computed; before a run, not in its first round."""
    if privacy.kind != "none" and privacy.noise:
        _accounting()


@lru_cache(maxsize=1024)
def _gaussian(z: float, times: int, delta: float) -> float:
    """Exactly (Balle, Wang, 2018): k Gaussian mechanisms are one with a noise that is √k times smaller."""
    return float(_accounting().get_epsilon_gaussian(z / math.sqrt(times), delta))


@lru_cache(maxsize=1024)
def _sampled(z: float, rounds: int, sampled: int, clients: int, delta: float) -> float:
    """A bound for clients drawn without replacement in every round, always as many: theorem 27 of Wang, Balle and
    Kasiviswanathan, "Subsampled Rényi differential privacy and analytical moments accountant", 2019, and from Rényi
    divergence to ε proposition 12 of Canonne, Kamath and Steinke, 2020.

    It is one for neighbours that differ in any way in one client, so the sum differs by 2C and z counts half.
    """
    dp = _accounting()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_ONE)
    round_ = dp.SampledWithoutReplacementDpEvent(clients, sampled, dp.GaussianDpEvent(z / 2))
    return float(accountant.compose(round_, rounds).get_epsilon(delta))


def _accounting() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ImportError:
        raise UserError("privacy needs an accountant for epsilon; try: pip install 'fedpareto[privacy]'") from None
    return dp_accounting
