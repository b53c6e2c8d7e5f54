"""DSFL: without a server all come to what a server would have told them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.without_server.dsfl import DSFL
from fedpareto.config.errors import UserError
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import CLIENTS, largest_difference, trial


def stacked(done):
    return torch.stack([done.models[client] for client in sorted(done.models)])


def test_on_a_complete_graph_it_is_fedavg_with_equal_weights():
    """Not to the bit: one product of matrices adds in another order than one of a vector."""
    fedavg = trial(FedAvg(weighting="equal"), Convex())
    assert largest_difference(trial(DSFL(graph="complete"), Convex()).models, fedavg.models) <= 1e-12


def test_one_mixing_by_hand_and_the_mean_stays():
    done = trial(DSFL(graph="ring"), Convex(), rounds=1)
    trained, mixed = done.outcomes[0].replies["model"], done.states[-1].models
    before_and_after = trained.roll(1, 0) + trained.roll(-1, 0)
    assert torch.allclose(mixed, (trained + before_and_after) / 3, rtol=0, atol=1e-14)
    assert torch.allclose(mixed.mean(0), trained.mean(0), rtol=0, atol=1e-14)


def test_more_neighbours_bring_models_closer_together():
    spread = [
        float(stacked(trial(algorithm, Convex(), rounds=6)).std(dim=0).norm())
        for algorithm in (DSFL(graph="complete"), DSFL(graph="ring"), Local())
    ]
    assert spread[0] < 1e-12 < spread[1] < spread[2]


def test_who_did_not_train_keeps_its_model_and_the_others_mix_among_themselves():
    done = trial(DSFL(graph="ring"), Convex(), rounds=1)
    state, replies = done.states[0], done.outcomes[0].replies.only(np.array([0, 1, 4]))
    told = DSFL(graph="ring").tell(state, replies).models
    assert torch.equal(told[[2, 3, 5, 6]], state.models[[2, 3, 5, 6]])
    own, after = replies["model"][:2]
    assert torch.allclose(told[0], (2 * own + after) / 3, rtol=0, atol=1e-14), "the share of the silent one is its own"
    assert torch.equal(told[4], replies["model"][2]), "neither of its neighbours trained"


def test_edges_are_checked_when_it_begins():
    assert DSFL(graph="edges", edges=tuple(f"0-{i}" for i in range(1, CLIENTS))).neighbours(CLIENTS).degrees[0] == 6
    with pytest.raises(UserError, match="go together"):
        DSFL(graph="edges")
    with pytest.raises(UserError, match="not connected: clients 0, 1; client 2; client 3; client 4; … are apart"):
        trial(DSFL(graph="edges", edges=("0-1",)), Convex())
