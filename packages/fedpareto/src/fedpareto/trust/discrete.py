"""Noise in a ring of integers that adds up: each client's share of it is small, and the sum has all of it.

Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure aggregation",
2021. Numbers are drawn after Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", 2020.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.privacy import Privacy
from fedpareto.tensors import rng
from fedpareto.trust.hiding import PURPOSE

MARGIN = 1e-9
"""Relative, on sensitivity and variance: a clipped update is longer than the clip by less, in double precision, and a
sum of discrete Gaussians is one up to less.
"""
FEWEST = 4.0
"""The smallest deviation of one client's share. From there on a sum of n shares is a discrete Gaussian up to
τ = 10 Σ_k exp(−2π²σ²k / (k + 1)) < n·1e-67, which enters the cost of a reply as τD / 2 (theorem 1 of the paper).
"""


def reach(privacy: Privacy, unit: float, dimension: int) -> float:
    """The largest distance between whole numbers for an update and those for none, where 1 stands for `unit`: C / unit,
    and by rounding 1 more in each of D entries.
    """
    return privacy.clip / unit * (1 + MARGIN) + math.sqrt(dimension)


def enough(privacy: Privacy, clients: int) -> int:
    """Number of so many clients that have the whole noise together."""
    return max(1, math.ceil((1 - privacy.dropouts) * clients - 1e-9))


def deviation(privacy: Privacy, unit: float, dimension: int, clients: int) -> float:
    """Deviation of one client's share in each entry: z times the reach, over the root of those who are enough."""
    whole = privacy.noise * reach(privacy, unit, dimension) * (1 + MARGIN)
    return max(whole / math.sqrt(enough(privacy, clients)), FEWEST)


def shares(privacy: Privacy, addresses: rng.Addresses, like: Tensor, unit: float, counts: Tensor) -> Tensor:
    """Noise that each client adds to its whole numbers, `like` `[n, D]`; `counts` `[n]` clients add up theirs."""
    rows = []
    for row, count in enumerate(counts.tolist()):
        stream = np.random.default_rng()
        if privacy.randomness == "seed":
            columns = addresses.seed, addresses.client, addresses.round, addresses.lane
            stream = rng.generator(rng.Address(*(int(column[row]) for column in columns)), PURPOSE)
        rows.append(discrete_gaussian(stream, deviation(privacy, unit, like.shape[1], int(count)), like.shape[1]))
    return torch.as_tensor(np.stack(rows)).to(like.device)


def discrete_gaussian(stream: np.random.Generator, sigma: float, count: int) -> np.ndarray:
    """Whole numbers k with probabilities in proportion to exp(−k² / 2σ²), `[count]`."""
    scale = math.floor(sigma) + 1
    found: list[np.ndarray] = []
    while (missing := count - sum(map(len, found))) > 0:
        drawn = _discrete_laplace(stream, scale, 2 * missing + 16)
        excess = (np.abs(drawn) - sigma**2 / scale) ** 2 / (2 * sigma**2)
        found.append(drawn[stream.random(len(drawn)) < np.exp(-excess)][:missing])
    return np.concatenate(found)


def _discrete_laplace(stream: np.random.Generator, scale: int, tries: int) -> np.ndarray:
    """Whole numbers k with probabilities in proportion to exp(−|k| / scale): those of so many tries that are some."""
    rest = stream.integers(0, scale, tries)
    rest = rest[stream.random(tries) < np.exp(-rest / scale)]
    sizes = rest + scale * (stream.geometric(-math.expm1(-1.0), len(rest)) - 1)
    is_negative = stream.random(len(rest)) < 0.5
    signed = np.where(is_negative, -sizes, sizes)
    found: np.ndarray = signed[~(is_negative & (sizes == 0))]  # 0 would be there twice.
    return found
