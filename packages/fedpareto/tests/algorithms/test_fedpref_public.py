"""FedPref with public preferences: what it is where everybody wants the same, and where two groups want opposites."""

from __future__ import annotations

import torch

from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.clustered.fedpref_public import FedPrefPublic
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies
from fedpareto.problems.convex import Convex
from fedpareto.testing.conformance import largest_difference, trial


def test_who_wants_the_same_is_similar_and_who_wants_the_opposite_is_not():
    algorithm = FedPrefPublic()
    state = algorithm.begin(trial(algorithm, Convex(), rounds=1).engine.settings[0])
    wanted = torch.zeros_like(state.preferences)
    wanted[:, 0] = 1
    wanted[2] = torch.tensor([0.0, 1.0])
    wanted[3] = torch.tensor([0.5, 0.5])
    models = state.models + torch.randn(state.models.shape, generator=torch.Generator().manual_seed(0))
    after = algorithm.tell(state, Replies(state.setting.clients, {"model": models, "preference": wanted}))
    rows = after.similarity[[0, 0, 0, 2], [1, 2, 3, 2]]
    assert torch.allclose(rows, rows.new_tensor([1.0, -1.0, 0.0, 1.0]))
    # Client 2 has weight on itself and half as much on client 3, and none on those who want the opposite.
    assert torch.allclose(after.models[2], (2 * models[2] + models[3]) / 3)


def test_with_one_preference_for_all_it_is_the_plain_mean():
    alike = Federation.create(Convex(), 7, 3, "0.3,0.7")
    public = trial(FedPrefPublic(clustering=False), Convex(), federation=alike)
    plain = trial(FedPref(weighting=False, clustering=False), Convex(), federation=alike)
    assert largest_difference(public.models, plain.models) <= 1e-12
