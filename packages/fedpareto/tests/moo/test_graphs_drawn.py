"""Graphs of neighbours: what is true of each kind."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.moo import graphs


@pytest.mark.parametrize(
    "graph",
    [
        graphs.ring(9),
        graphs.grid(12),
        graphs.torus(12),
        graphs.complete(5),
        graphs.random_regular(12, 3, 0),
        graphs.random_regular(11, 4, 1),
        graphs.random_regular(2, 1, 0),
        graphs.small_world(20, 4, 0.3, 0),
    ],
)
def test_every_graph_is_symmetric_connected_and_nobodys_neighbour_is_itself(graph):
    matrix = graph.matrix()
    assert np.array_equal(matrix, matrix.T)
    assert not matrix.diagonal().any()
    assert len(graphs.parts(graph)) == 1


def test_a_grid_is_a_torus_cut_open_and_one_row_of_it_a_line():
    grid, torus = graphs.grid(12, 3).matrix(), graphs.torus(12, 3).matrix()
    assert (grid <= torus).all()
    assert grid.sum() == 2 * (3 * 3 + 2 * 4)
    line = graphs.grid(5, 1)
    assert line.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_drawn_graphs_have_the_degree_that_was_asked_for_and_another_seed_draws_another():
    for degree in (2, 3, 5):
        assert set(graphs.random_regular(10, degree, 0).degrees) == {degree}
    first, *same = (graphs.random_regular(10, 3, seed).edges for seed in (0, 1, 1))
    assert not np.array_equal(first, same[0])
    assert np.array_equal(*same)


def test_a_small_world_has_all_its_edges_and_without_rewiring_it_is_a_circle():
    world, circle = graphs.small_world(20, 4, 0.5, 3), graphs.small_world(20, 4, 0.0, 3)
    assert len(world.edges) == len(circle.edges) == 40
    assert circle.beside(0).tolist() == [1, 2, 18, 19]
    assert not np.array_equal(world.edges, circle.edges)


def test_a_file_of_edges_is_read_as_the_list_that_it_holds(tmp_path):
    file = tmp_path / "net.edges"
    file.write_text("# who hears whom\n0-1\n1 2\n\n2,3\n", encoding="utf-8")
    for given in ([str(file)], ["0-1", "1-2", "2-3"], ["0-1,1-2,2-3"]):
        assert graphs.of_edges(4, given).edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    file.write_text("0-1\n1-2-3\n", encoding="utf-8")
    with pytest.raises(UserError, match="has '1-2-3'; an edge is two clients such as 0-3"):
        graphs.of_edges(4, [str(file)])


def test_breadth_first_goes_around_a_ring_on_both_sides():
    assert graphs.breadth_first(graphs.ring(6)).tolist() == [0, 1, 5, 2, 4, 3]
