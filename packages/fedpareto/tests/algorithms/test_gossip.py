"""Without a server: what gossip among neighbours comes to, and a front of which each client owns a part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedpref import FedPrefWeighting
from fedpareto.algorithms.fronts.dmoead import DMOEAD
from fedpareto.algorithms.personal.local import Local
from fedpareto.algorithms.without_server.gossip_fedavg import GossipFedAvg
from fedpareto.algorithms.without_server.gossip_fedpref import GossipFedPref
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Replies, traffic
from fedpareto.problems.convex import Convex
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft
from fedpareto.testing.conformance import CLIENTS, largest_difference, trial


@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_on_a_complete_graph_it_is_fedavg_to_the_bit(weighting, precision):
    gossip = trial(GossipFedAvg(graph="complete", weighting=weighting), Convex(), precision=precision)
    fedavg = trial(FedAvg(weighting=weighting), Convex(), precision=precision)
    assert largest_difference(gossip.models, fedavg.models) == 0


def test_gossip_fedpref_is_gossip_fedavg_or_local_training_at_the_ends_and_fedpref_in_its_first_round():
    plain = trial(GossipFedAvg(weighting="equal"), Convex())
    assert largest_difference(trial(GossipFedPref(similarity_bound=-np.inf), Convex()).models, plain.models) <= 1e-14
    alone = trial(GossipFedPref(similarity_bound=1 - 1e-9), Convex())
    assert largest_difference(alone.models, trial(Local(), Convex()).models) <= 1e-12
    one, fedpref = (
        trial(algorithm, Convex(), rounds=1) for algorithm in (GossipFedPref(graph="complete"), FedPrefWeighting())
    )
    assert largest_difference(one.models, fedpref.models) <= 1e-12
    assert largest_difference(trial(GossipFedPref(), Convex()).models, plain.models) > 1e-4


@pytest.mark.parametrize("algorithm", [GossipFedAvg(), GossipFedPref(graph="grid"), DMOEAD(graph="grid", planes=1)])
def test_what_a_client_makes_of_a_round_depends_on_its_neighbours_alone(algorithm):
    """Whatever strangers reply, and whatever is known of them: so each node can compute it for itself."""
    done = trial(algorithm, Convex(), rounds=1)
    state, replies = done.states[0], done.outcomes[0].replies
    near = algorithm.neighbours(CLIENTS).matrix()[2] | (np.arange(CLIENTS) == 2)
    models = replies["model"].clone()
    models[torch.as_tensor(~near)] = 1e3
    strange = replace(replies, tensors={**replies.tensors, "model": models})
    lost = replace(state, models=torch.where(torch.arange(CLIENTS)[:, None] == 2, state.models, 1e3))
    told = [algorithm.tell(*both) for both in ((state, replies), (state, strange), (lost, strange))]
    if isinstance(algorithm, DMOEAD):
        asked = [algorithm.ask(one)[0][2] for one in told]
        assert all(torch.equal(asked[0]["models"], one["models"]) for one in asked)
    else:
        assert all(torch.equal(told[0].models[2], one.models[2]) for one in told)


def test_bytes_are_those_between_neighbours():
    algorithm = GossipFedAvg(graph="edges", edges=tuple(f"0-{i}" for i in range(1, CLIENTS)), weighting="equal")
    done = trial(algorithm, Convex(), rounds=1)
    size = done.outcomes[0].replies.size
    graph, everyone = algorithm.neighbours(CLIENTS), done.states[0].setting.clients
    cost = traffic([], done.outcomes[0].replies, graph, everyone)
    assert cost.up.tolist() == cost.down.tolist() == [(CLIENTS - 1) * size, *[size] * (CLIENTS - 1)]
    half = traffic([], done.outcomes[0].replies.only(np.array([1])), graph, everyone)
    assert (half.up.sum(), half.down.tolist()) == (size, [size, *[0] * (CLIENTS - 1)])


@pytest.mark.parametrize("given", [{"graph": "small-world"}, {"graph": "edges", "edges": ["0-1,0-2,0-3,0-4,4-5"]}])
def test_a_run_with_a_graph_that_two_clients_cannot_have(given):
    """A run tries first whether its algorithm can begin, and of most others with two clients."""
    draft = {"algorithm": {"name": "dmoead"} | given, "problem": "convex", "clients": 6, "rounds": 1}
    result = runner.start(Draft(draft | {"engine": {"threads": 1, "chunk": 6}}).finish())
    assert result.models[0]


# -- decentralised MOEA/D ----------------------------------------------------------------------------------------------

EXACT = Convex(heterogeneity=0.0, noise=0.0)
"""Clients that are alike, so that what is better for one is better for all."""


def test_neighbours_in_a_ring_own_near_weights_and_all_of_the_lattice_is_owned():
    weights = DMOEAD().begin(trial(DMOEAD(), EXACT, rounds=1).states[0].setting).weights
    steps = (weights - weights.roll(-1, 0)).abs().sum(1) / 2
    assert steps.max() <= 2 / (CLIENTS - 1) + 1e-9, "two places of the lattice at the most, also where the ring closes"
    assert torch.allclose(weights.sort(dim=0).values[:, 0], torch.linspace(0, 1, CLIENTS).double())


def test_a_client_goes_on_with_what_is_best_under_its_weights_by_a_plain_loop():
    done = trial(DMOEAD(graph="grid", planes=1), Convex(), rounds=2)
    trained = done.outcomes[-2].replies["model"]
    state, last = done.states[-2], done.states[-1]
    clients = done.engine._probe(CLIENTS)
    for i in range(CLIENTS):
        near = [j for j in (i - 1, i + 1) if 0 <= j < CLIENTS]
        message = DMOEAD(graph="grid", planes=1).ask(state)[0][i]
        candidates = [trained[i], *(trained[j] for j in near), message["models"][-1]]
        worth = []
        for model in candidates:
            values = clients.evaluate(model.expand(CLIENTS, -1))[i]
            worth.append(float(-(values[1 if len(values) > 2 else 0] * state.weights[i]).sum()))
        assert torch.equal(last.models[i], candidates[int(np.argmax(worth))])
    kept = set(last.choices.long().tolist())
    assert kept <= {0, 1, 2, 3}, "its own, one of two neighbours', or the mixture"


def test_who_does_not_say_what_it_chose_keeps_what_it_trained_and_nobody_knows_what_that_is_worth():
    """Of seven clients four reply to what they trained, and two of these to what they were sent by their neighbours."""
    algorithm = DMOEAD(graph="grid", planes=1)
    done = trial(algorithm, Convex(), rounds=2)
    before, outcome = done.states[2], done.outcomes[2]
    trained = outcome.replies.only(np.array([1, 2, 4, 5]))
    state = algorithm.tell(before, trained)
    (tasks,) = algorithm.ask(state)
    assert tasks.clients.tolist() == [1, 2, 4, 5]
    said = {"choice": torch.tensor([1.0, 3.0]).double(), "values": torch.arange(12).view(2, 3, 2).double()}
    after = algorithm.tell(state, Replies(np.array([2, 5]), said, "choose"))
    assert torch.equal(after.models[[1, 4]], trained["model"][[0, 2]])
    assert torch.equal(after.models[2], trained["model"][0]), "its only neighbour who trained"
    assert torch.equal(after.models[5], tasks.own["models"][3, 3]), "its mixture"
    assert torch.equal(after.models[[0, 3, 6]], before.models[[0, 3, 6]])
    assert torch.equal(after.values[[2, 5]], said["values"])
    assert torch.equal(after.values[[0, 3, 6]], before.values[[0, 3, 6]])
    assert after.values[[1, 4]].isinf().all(), "what was measured is of models that are gone"
    assert after.choices.tolist() == [*before.choices[:1], 0, 1, before.choices[3], 0, 3, before.choices[6]]


def test_the_front_is_found_without_preferences_and_its_ends_are_its_clients_of_one_objective():
    federation = Federation.create(EXACT, CLIENTS, 3, "uniform")
    done = trial(DMOEAD(), EXACT, federation=federation, rounds=12)
    found = DMOEAD().found(done.states[-1])
    assert len(found.models) >= CLIENTS - 2
    order = found.weights[:, 0].argsort()
    assert (found.values[order][:, 1, 0].diff() <= 1e-3).all(), "who cares more for a distance has less of it"


# -- graphs that cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"graph": "edges", "edges": ("0-1", "2-3", "3-4", "4-5", "5-6")},
            "clients 0, 1; clients 2, 3, 4, 5, 6 are apart",
        ),
        ({"graph": "random-regular", "degree": 3}, "7 clients with as many neighbours each are no graph"),
        ({"graph": "random-regular", "degree": 7}, "degree is 7; of 7 clients each has 1 to 6"),
        ({"graph": "small-world", "degree": 3}, "a small world has an even degree"),
        ({"graph": "edges", "edges": ("nowhere.txt",)}, "neither a pair such as 0-3 nor a file"),
        ({"graph": "edges", "edges": ("0-9",)}, "edges has a client 9; of 7 the last one is 6"),
        ({"graph": "grid", "planes": 2}, "7 clients do not fit"),
    ],
    ids=str,
)
def test_a_graph_that_cannot_be_is_refused_in_a_line(given, message):
    with pytest.raises(UserError) as refused:
        GossipFedAvg(**given).neighbours(CLIENTS)
    assert message in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
