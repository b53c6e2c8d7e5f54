"""A secure sum to which each client adds its share of the noise: the mean has all of it, and nobody is trusted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from secure_rounds import MASKED, played

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.wrappers.private import protected
from fedpareto.algorithms.wrappers.secured import secured
from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import make_algorithm
from fedpareto.spec.draft import Draft


def distributed(sums=MASKED, **values):
    return secured(protected(FedAvg("equal"), Privacy("distributed", clip=0.5, **values)), sums)


def test_the_mean_has_the_central_noise_and_a_margin_for_those_who_may_drop_out():
    """Of ten clients seven are enough, so ten have 10/7 of the variance; nothing is in the way of the noise but the
    sum itself.
    """
    quiet, noisy = (played(distributed(noise=noise)).states[-1] for noise in (0.0, 2.0))
    noise = (noisy.inner.inner.model - quiet.inner.inner.model).double()
    wanted = (2.0 * 0.5 / 10) ** 2 * 10 / 7
    assert float(noise.var()) == pytest.approx(wanted, rel=5 * math.sqrt(2 / len(noise)))


def test_those_who_drop_out_cost_nothing_up_to_the_agreed_share_and_more_beyond():
    algorithm = distributed(replace(MASKED, threshold=0.5), noise=2.0)
    few, many = (played(algorithm, {"train": list(range(gone))}).states[-1].inner.asked for gone in (3, 4))
    assert few.tolist() == [1.0] * 10
    assert many.tolist() == pytest.approx([7 / 6] * 10), "six shares of noise where seven were agreed"


def test_shares_of_clients_differ_and_secret_ones_differ_each_time():
    algorithm = protected(FedAvg("equal"), Privacy("distributed", noise=1.0, randomness="system"))
    whole, counts = torch.zeros(3, 50, dtype=torch.int64), torch.full((3,), 3)
    one, other = (algorithm.ring_noise(_Stack(), whole, 2.0**-20, counts) for _ in range(2))
    rows = {tuple(row) for noise in (one, other) for row in noise.tolist()}
    assert len(rows) == 6


class _Stack:
    addresses = None


def test_it_needs_a_secure_sum_and_an_algorithm_that_needs_no_more():
    with pytest.raises(UserError, match="needs a secure sum"):
        Draft({"algorithm": {"name": "fedavg", "weighting": "equal"}, "privacy": "distributed"}).finish()
    for name in ("fedpref", "ifca", "q-fedavg"):
        with pytest.raises(UserError, match="more than the sum of one update"):
            protected(make_algorithm(name), Privacy("distributed"))
    protected(make_algorithm("fsmgda"), Privacy("distributed"))
    protected(make_algorithm("praffl"), Privacy("distributed"))
