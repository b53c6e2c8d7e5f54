"""Fronts that clients lead, and MOFL/D with any algorithm inside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mofld_runs import spec_of

from fedpareto.algorithms.fronts.client_mofld import ClientMOFLD
from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.config.errors import UserError
from fedpareto.moo.updates import ENTRIES
from fedpareto.problems.convex import Convex
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.testing.conformance import CLIENTS, check_algorithm, trial

LATTICE = {"generator": "lattice", "samples": 3, "training_rounds": 2}


def solved(done):
    """The models of the lanes at the end of each training, `[n, s, d]` each."""
    return [state.models for state in done.states if state.due == "measure"]


def test_if_all_clients_search_alike_the_candidates_are_those_of_mofld():
    led, server = trial(ClientMOFLD(**LATTICE), Convex(), rounds=4), trial(MOFLD(**LATTICE), Convex(), rounds=4)
    for iteration, models in enumerate(solved(led)):
        candidates = server.states[-1].models[3 * iteration :][:3]
        assert (models - candidates).abs().max() <= 1e-12


def test_with_radius_0_nobody_is_near_and_with_1_one_lane_of_each_client_is():
    alone = trial(ClientMOFLD(samples=2, training_rounds=1, radius=0.0), Convex(), rounds=1)
    trained = alone.outcomes[1].replies
    models = alone.states[2].models
    assert torch.equal(models[:, 0], trained.in_lane(0)["model"])
    assert len(alone.states[1].weights.flatten(0, 1).unique(dim=0)) == 2 * CLIENTS, "each client drew its own"
    all_ = trial(ClientMOFLD(samples=1, training_rounds=1, radius=1.0), Convex(), rounds=1).states[2].models
    assert (all_ - all_[:1]).abs().max() <= 1e-14


def test_a_lane_is_averaged_with_the_nearest_one_of_each_client_within_the_radius_by_hand():
    weights = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.2, 0.8], [0.3, 0.7], [0.9, 0.1]]).double()
    clients, sizes = np.array([0, 0, 1, 1, 2]), torch.tensor([10.0, 10.0, 30.0, 30.0, 10.0]).double()
    share = ClientMOFLD(radius=0.1)._averaged(weights, clients, sizes, torch.eye(5).double())
    expected = [[1, 0, 3, 0, 0], [0, 1, 0, 0, 1], [1, 0, 3, 0, 0], [0, 0, 0, 1, 0], [0, 1, 0, 0, 1]]
    rows = torch.tensor(expected).double()
    assert torch.allclose(share, rows / rows.sum(dim=1, keepdim=True))


def test_how_near_lanes_are_is_half_the_sum_of_their_differences_also_where_they_come_in_blocks():
    """So many lanes that not all distances are there at a time, against a loop over clients."""
    stream = np.random.default_rng(5)
    weights = stream.dirichlet(np.ones(3), 1500)
    clients, sizes = np.repeat(np.arange(500), 3), np.repeat(stream.integers(1, 9, 500), 3).astype(float)
    assert len(weights) ** 2 > ENTRIES
    found = ClientMOFLD(radius=0.1)._averaged(
        torch.tensor(weights), clients, torch.tensor(sizes), torch.tensor(weights[:, :1])
    )
    assert len(found) == len(weights)
    for lane in (0, 700, 1397, 1398, 1499):
        apart = abs(weights - weights[lane]).sum(1) / 2
        nearest = [3 * client + apart[3 * client :][:3].argmin() for client in range(500)]
        near = [one for one in nearest if apart[one] <= 0.1]
        assert float(found[lane]) == pytest.approx(np.average(weights[near, 0], weights=sizes[near]))


def test_a_client_learns_nothing_from_lanes_that_it_did_not_train_as_many_lanes_as_there_may_be():
    algorithm = ClientMOFLD(generator="annealing", samples=CLIENTS, training_rounds=1)
    done = trial(algorithm, Convex(), rounds=2)
    clients, (tasks,) = done.engine._probe(CLIENTS), algorithm.ask(done.states[2])
    assert done.states[2].due == "measure"

    def next_weights(trained):
        return algorithm.search(clients, {**tasks.stacked(), "trained": torch.tensor(trained)})["weights"]

    all_, none = (next_weights([one] * CLIENTS) for one in (1.0, 0.0))
    mixed = next_weights([1.0, 0.0] * (CLIENTS // 2) + [1.0])
    assert torch.equal(mixed[::2], all_[::2])
    assert torch.equal(mixed[1::2], none[1::2])
    assert not torch.equal(all_[1::2], none[1::2])


def test_a_client_searches_by_what_it_measured_itself_and_posts_it_with_noise():
    exact, noisy = (
        trial(ClientMOFLD(samples=2, training_rounds=1, noise=noise), Convex(), rounds=1) for noise in (0.0, 0.1)
    )
    posted = exact.states[-1].posted
    clients = exact.engine._probe(CLIENTS)
    measured = clients.evaluate(solved(exact)[0][:, 0])[:, 0]
    assert torch.allclose(posted[:, 0, 0], measured, atol=1e-12)
    noise = noisy.states[-1].posted - posted
    assert 0.05 < float(noise.std()) < 0.2
    front = ClientMOFLD().found(exact.states[-1])
    assert 0 < len(front.models) <= 2 * CLIENTS


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"samples": 0}, "samples"),
        ({"radius": 2.0}, "radius is 2; it is at least 0 and at most 1"),
        ({"noise": -1.0}, "noise is -1; it is at least 0"),
    ],
)
def test_bad_values_are_named(given, message):
    with pytest.raises(UserError, match=message):
        ClientMOFLD(**given)


# -- any algorithm inside MOFL/D ---------------------------------------------------------------------------------------

INNER = [
    "cfl",
    "fedadam",
    "fedavg-groups",
    "feddyn",
    "fedmgda-plus",
    "fedpref",
    "fedprox",
    "mat-fl",
    "q-fedavg",
    "scaffold",
]
REFUSED = {
    "ditto": "its clients use other models than they are sent",
    "dsfl": "it has no server",
    "fedavg+ft": "it looks for a front itself, or does in its last round",
    "fedbuff": "its rounds wait for nobody",
    "fedcmoo": "a round of it has several exchanges",
    "lft-fedavg": "its clients train on a loss of its own",
}


def test_fedprox_without_its_term_is_fedavg_inside_as_well_and_with_it_is_not():
    plain = trial(MOFLD(**LATTICE), Convex(), rounds=2).states[-1].models
    assert torch.equal(
        trial(MOFLD(**LATTICE, inner="fedprox", inner_set=("mu=0",)), Convex(), rounds=2).states[-1].models, plain
    )
    near = trial(MOFLD(**LATTICE, inner="fedprox", inner_set=("mu=5",)), Convex(), rounds=2).states[-1].models
    assert (near - plain).abs().max() > 1e-3


@pytest.mark.parametrize("name", INNER)
def test_whoever_exchanges_one_model_trains_candidates_and_its_state_survives_a_file(name):
    algorithm = MOFLD(generator="lattice", samples=2, training_rounds=2, inner=name)
    done = trial(algorithm, Convex(), rounds=2)
    assert not any(outcome.failures for outcome in done.outcomes)
    assert (done.states[-1].models[0] - done.states[-1].models[1]).abs().max() > 1e-4, "weights matter"
    kept = Checkpoint()
    kept.put_state(done.states[1], "")
    again = kept.get_state(algorithm.begin(done.states[0].setting), "")
    assert [type(one) for one in again.inner] == [type(one) for one in done.states[1].inner]


def test_who_does_not_fit_is_refused_with_a_reason():
    for name, why in REFUSED.items():
        with pytest.raises(UserError) as refused:
            spec_of(inner=name)
        assert f"inner is {name}, which cannot train a candidate: {why}" in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
    with pytest.raises(UserError, match=r"inner_set is mu; it has hyper-parameters of fedprox such as mu=0\.1"):
        spec_of(inner="fedprox", inner_set=["mu"])


def test_with_private_state_of_each_candidate_it_keeps_the_contract():
    check_algorithm(replace(MOFLD(generator="lattice", samples=2, training_rounds=1), inner="scaffold"))
