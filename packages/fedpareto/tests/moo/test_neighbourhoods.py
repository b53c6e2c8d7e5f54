"""Sums over neighbours: of all clients at once what a loop over clients gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.algorithms.clustered.fedpref import scaled, similarities
from fedpareto.algorithms.without_server.gossip_fedavg import GossipFedAvg
from fedpareto.algorithms.without_server.gossip_fedpref import mixtures
from fedpareto.contract.federation import Federation
from fedpareto.moo import graphs
from fedpareto.problems.convex import Convex

STAR = graphs.of_edges(9, [f"3-{other}" for other in range(9) if other != 3] + ["5-6"])
GRAPHS = {"ring": graphs.ring(9), "star": STAR, "one": graphs.complete(1), "world": graphs.small_world(30, 4, 0.5, 1)}


def drawn(graph, dtype=torch.float64, width=5):
    return torch.randn(len(graph), width, generator=torch.Generator().manual_seed(len(graph))).to(dtype)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_means_are_those_of_a_plain_loop_over_clients(graph):
    rows, sizes, near = drawn(graph), drawn(graph)[:, 0].abs() + 1, graph.neighbourhoods
    found = near.mean(sizes[torch.as_tensor(near.whom)], rows)
    for client in range(len(graph)):
        heard = sorted({client, *graph.beside(client).tolist()})
        share = sizes[heard] / sizes[heard].sum()
        assert torch.allclose(found[client], share @ rows[heard], rtol=0, atol=1e-14)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_clients_sum_is_the_same_to_the_bit_whoever_else_is_in_the_stack(graph, dtype):
    """So a node that knows its neighbours only comes to what one stack of all comes to."""
    rows, shares = drawn(graph, dtype), drawn(graph, dtype)[:, 1]
    whole = graph.neighbourhoods.mixed(shares[torch.as_tensor(graph.neighbourhoods.whom)], rows)
    for client in range(len(graph)):
        here = np.sort(np.append(graph.beside(client), client))
        near = graph.among(here).neighbourhoods
        found = near.mixed(shares[here][torch.as_tensor(near.whom)], rows[here])
        assert torch.equal(found[int(np.searchsorted(here, client))], whole[client])


@pytest.mark.parametrize("ratio", [0.4, 1.0])
def test_similarities_with_neighbours_are_those_of_fedpref(ratio):
    problem = Convex()
    setting = Federation.create(problem, 9, 0, "uniform").setting(problem, rounds=1)
    before, trained = drawn(STAR, width=setting.layout.size), drawn(STAR, width=setting.layout.size).flip(0)
    trained[2] = before[2]  # It did not move; a cosine would be undefined.
    found = mixtures(
        PersonalState(setting, models=before), np.arange(9), trained, STAR.neighbourhoods, bound=-1.0, ratio=ratio
    )
    for client in range(9):
        heard = sorted({client, *STAR.beside(client).tolist()})
        alike = similarities(trained[heard] - before[client], setting.layout, ratio)[heard.index(client)]
        weights = scaled(alike, -1.0)
        assert torch.allclose(found[client], weights / weights.sum() @ trained[heard], rtol=0, atol=1e-13)


def test_what_is_left_among_some_are_their_own_edges_in_their_order():
    rows = np.array([6, 3, 5, 0])
    assert STAR.among(rows).edges.tolist() == [[0, 1], [0, 2], [1, 2], [1, 3]]
    assert STAR.among(np.arange(9)) is STAR


def test_a_graph_is_drawn_once_and_another_file_is_another_graph(tmp_path):
    drawn_twice = [GossipFedAvg(graph="random-regular").neighbours(12) for _ in range(2)]
    assert drawn_twice[0] is drawn_twice[1]
    file = tmp_path / "net.edges"
    for text in ("0-1\n1-2\n", "0-2\n1-2\n"):
        file.write_text(text, encoding="utf-8")
        edges = GossipFedAvg(graph="edges", edges=(str(file),)).neighbours(3).edges.tolist()
        assert edges == [[int(end) for end in line.split("-")] for line in text.split()]
