"""Graphs of neighbours, and weights that keep the mean."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.moo import graphs

GRAPHS = {
    "ring": graphs.ring(7),
    "two": graphs.ring(2),
    "one": graphs.ring(1),
    "torus": graphs.torus(12, 3),
    "complete": graphs.complete(5),
    "star": graphs.of_edges(4, ["0-1", "0-2", "3-0"]),
}


def metropolis(graph):
    """As a matrix."""
    near, weights = graph.neighbourhoods, np.zeros((len(graph), len(graph)))
    weights[near.who, near.whom] = graphs.metropolis(near, graph.degrees)
    return weights


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_graphs_are_symmetric_connected_and_without_loops(graph):
    matrix = graph.matrix()
    assert np.array_equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    graphs.must_be_connected(graph)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_metropolis_weights_are_doubly_stochastic_and_mixing_ends_at_the_mean(graph):
    weights = metropolis(graph)
    assert weights.min() >= 0
    assert np.array_equal(weights, weights.T)
    assert np.allclose(weights.sum(axis=1), 1, rtol=0, atol=1e-15)
    assert np.array_equal(weights > 0, graph.matrix() | (weights.diagonal() > 0) * np.eye(len(graph), dtype=bool))
    values = np.arange(len(graph), dtype=np.float64)
    mixed = np.linalg.matrix_power(weights, 500) @ values
    assert np.allclose(mixed, values.mean(), rtol=0, atol=1e-9)


def test_neighbours_by_hand():
    assert graphs.ring(5).beside(0).tolist() == [1, 4]
    # Three planes of four: 0 follows 3 and leads 1 in its plane, and is beside 4 and 8.
    assert graphs.torus(12, 3).beside(0).tolist() == [1, 3, 4, 8]
    assert np.array_equal(graphs.torus(12).edges, graphs.torus(12, 3).edges)
    assert np.array_equal(graphs.torus(7).edges, graphs.ring(7).edges)
    assert np.allclose(metropolis(graphs.complete(4)), 1 / 4)
    assert metropolis(GRAPHS["star"])[0].tolist() == pytest.approx([1 / 4] * 4)
    assert metropolis(GRAPHS["star"])[1].tolist() == pytest.approx([1 / 4, 3 / 4, 0, 0])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: graphs.must_be_connected(graphs.of_edges(4, ["0-1", "2-3"])),
            "clients 0, 1; clients 2, 3 are apart",
        ),
        (lambda: graphs.of_edges(3, ["0-3"]), "of 3 the last one is 2"),
        (lambda: graphs.of_edges(3, ["0:1"]), "neither a pair such as 0-3 nor a file"),
        (lambda: graphs.torus(10, 3), "do not fit"),
    ],
)
def test_what_is_no_graph_is_refused(make, words):
    with pytest.raises(UserError, match=words):
        make()
