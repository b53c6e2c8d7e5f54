"""What becomes of each tensor of a reply under local privacy, and that a reply costs the same however many it has."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Objective
from fedpareto.tensors.rng import Addresses
from fedpareto.trust.hiding import Hiding, draws, pure, ranges_of

N = 40_000
PARTS = {"models": "update", "losses": "losses", "values": "objectives", "size": "count", "lipschitz": "public"}
RANGES = torch.tensor([0.0, -2.0]).double(), torch.tensor([1.0, 3.0]).double()


def hidden(privacy, sent, reply, parts=PARTS, choices=None):
    draw = draws(privacy, Addresses.at(0, np.arange(len(next(iter(reply.values())))), round=1))
    return Hiding(privacy, {name: parts[name] for name in reply}, RANGES, choices or {}).hidden(sent, reply, draw)


def test_the_tensors_of_a_reply_share_its_cost():
    """(Δ / σ)² of each, with σ as measured, adds up to that of a reply with an update alone."""
    privacy = Privacy("local", clip=0.5, noise=0.05, largest_loss=4.0, values_share=0.2)
    sent = {"models": torch.ones(N, 2, 3).double()}
    low = torch.tensor([0.5, 0.5]).double().expand(N, 2)  # Far from both ends, where noise would be cut off.
    reply = {"models": sent["models"].clone(), "losses": 4 * low, "values": RANGES[0] + (RANGES[1] - RANGES[0]) * low}
    found = hidden(privacy, sent, reply)
    assert len({float(found[name].flatten()[0]) for name in found}) == 3
    spread = {name: (found[name] - reply[name]).std(dim=0) for name in found}
    cost = float((1.0 / spread["models"].mean()) ** 2)  # Δ = 2C over all entries.
    cost += float(((torch.full((2,), 4.0) / spread["losses"]) ** 2).sum())
    cost += float((((RANGES[1] - RANGES[0]) / spread["values"]) ** 2).sum())
    assert cost == pytest.approx(privacy.reply_cost, rel=0.02)


def test_values_stay_within_their_bounds_and_what_says_nothing_about_rows_is_as_it_was():
    privacy = Privacy("local", clip=0.5, noise=3.0, largest_loss=4.0)
    reply = {
        "losses": torch.tensor([[-1.0, 9.0], [math.nan, math.inf]]).double(),
        "values": torch.zeros(2, 3, 2).double(),
        "size": torch.tensor([17.0, 400.0]),
        "lipschitz": torch.tensor([3.0, 3.0]),
    }
    found = hidden(privacy, {}, reply)
    assert found["losses"].min() >= 0
    assert found["losses"].max() <= 4
    assert (found["values"] >= RANGES[0]).all()
    assert (found["values"] <= RANGES[1]).all()
    assert torch.equal(found["size"], torch.ones(2)), "not even the number of rows leaves"
    assert torch.equal(found["lipschitz"], reply["lipschitz"])
    bounded = hidden(Privacy("local", noise=0.0, largest_loss=4.0), {}, {"losses": reply["losses"]})["losses"]
    assert bounded.tolist() == [[0.0, 4.0], [0.0, 4.0]]


def test_all_models_of_a_reply_are_clipped_as_one():
    privacy = Privacy("local", clip=0.5, noise=0.0)
    sent = {"models": torch.zeros(1, 2, 3).double()}
    found = hidden(privacy, sent, {"models": torch.ones(1, 2, 3).double()})["models"]
    assert float(found.norm()) == pytest.approx(0.5)
    assert hidden(privacy, {}, {"updates": torch.ones(1, 4)}, {"updates": "update"})["updates"].norm() <= 0.5


def test_a_choice_is_true_as_often_as_pure_privacy_allows_and_takes_its_update_along():
    privacy, count = Privacy("local", clip=1.0, noise=0.5, values_share=0.3), 3
    models = torch.tensor([[0.0], [10.0], [20.0]]).double()
    sent = {"models": models.expand(N, 3, 1)}
    reply = {"model": torch.full((N, 1), 10.1).double(), "choice": torch.ones(N).double()}
    found = hidden(privacy, sent, reply, {"model": "update", "choice": "choice"}, {"choice": count})
    odds = math.exp(pure(math.sqrt(0.3 * privacy.reply_cost)))
    counts = torch.bincount(found["choice"].long(), minlength=3) / N
    assert counts.tolist() == pytest.approx([1 / (odds + 2), odds / (odds + 2), 1 / (odds + 2)], abs=0.012)
    assert float(counts[1] / counts[0]) == pytest.approx(odds, rel=0.05), "which is e^ε"
    moved = found["model"][:, 0] - models[found["choice"].long(), 0]
    assert float(moved.mean()) == pytest.approx(0.1, abs=5 * 0.5 / math.sqrt(0.7 * N))
    assert float(moved.std()) == pytest.approx(0.5 / math.sqrt(0.7), rel=0.02)


@pytest.mark.parametrize("mu", [0.01, 0.5, 2.0, 6.0])
def test_pure_privacy_is_never_worse_than_the_gaussian_it_stands_for(mu):
    """At every ε its δ is no larger: (e^ε₀ − e^ε) / (1 + e^ε₀) against Balle and Wang's closed form."""
    top = pure(mu)
    for value in np.linspace(0, top, 50):
        of_pure = (math.exp(top) - math.exp(value)) / (1 + math.exp(top))
        of_gaussian = ndtr(mu / 2 - value / mu) - math.exp(value) * ndtr(-mu / 2 - value / mu)
        assert of_pure <= of_gaussian + 1e-12
    assert pure(0.0) == 0


def test_an_objective_counts_up_to_its_bounds_or_its_reference():
    found = ranges_of([Objective("accuracy", maximise=True, lowest=0, highest=1), Objective("far", lowest=0.0)])
    assert [bound.tolist() for bound in found] == [[0, 0], [1, 1]]
    with pytest.raises(UserError, match="'speed' has no best value"):
        ranges_of([Objective("speed", maximise=True, reference=-100.0)])
