"""CFL against its paper, and against the mistakes of its published code."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from small_problems import replies_with, setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.cfl import CFL, bipartition
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.moo.similarity import cosines
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

PLANE = Layout.of({"all": (2,)})
OPPOSED = "groups:4,3@1,0;0,1"


def random_similarities(n, seed, dimension=3):
    stream = torch.Generator().manual_seed(seed)
    return cosines(torch.randn(n, dimension, generator=stream, dtype=torch.float64))


def largest_across(similarity, half):
    other = [i for i in range(len(similarity)) if i not in half]
    return float(similarity[list(half)][:, other].max())


def least_possible(similarity):
    """Over all bipartitions, one by one."""
    n = len(similarity)
    halves = (half for size in range(1, n // 2 + 1) for half in combinations(range(n), size))
    return min(largest_across(similarity, half) for half in halves)


# -- the bipartition ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 4, 5, 7, 8])
@pytest.mark.parametrize("seed", range(5))
def test_the_bipartition_minimises_the_largest_similarity_across(n, seed):
    similarity = random_similarities(n, seed)
    first, second = bipartition(similarity)
    assert sorted(first + second) == list(range(n))
    assert first
    assert second
    assert largest_across(similarity, first) == pytest.approx(least_possible(similarity), abs=1e-12)


def test_complete_linkage_as_in_the_published_code_is_not_optimal():
    gaps = []
    for seed in range(30):
        similarity = random_similarities(7, seed)
        first, _ = bipartition(similarity, "complete")
        gaps.append(largest_across(similarity, first) - least_possible(similarity))
    assert min(gaps) >= -1e-12
    assert max(gaps) > 0.1


@pytest.mark.parametrize("linkage", ["single", "complete"])
def test_two_opposed_groups_are_told_apart_and_ties_still_give_two_halves(linkage):
    updates = torch.tensor([[1.0, 0], [-1, 0.1], [1, 0.2], [-1, 0], [0.9, 0]])
    assert bipartition(cosines(updates), linkage) == [[0, 2, 4], [1, 3]]
    halves = bipartition(torch.ones(4, 4), linkage)
    assert sorted(halves[0] + halves[1]) == [0, 1, 2, 3]
    assert len(halves) == 2


# -- the splits --------------------------------------------------------------------------------------------------------

EAST, WEST, NORTH, SOUTH = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)


def test_second_and_later_splits_use_the_right_client_ids():
    """Eight clients in three groups; the second cut falls inside a cluster whose positions are not its client ids.

    The published code takes the positions inside a cluster for ids; what it would find is worked out beside.
    """
    ids = (2, 3, 5, 8, 11, 12, 20, 31)
    algorithm = CFL(threshold=0.05)
    state = algorithm.begin(setting_of(ids, PLANE))
    east, west = {2, 5, 12, 20}, {3, 8, 11, 31}
    state = algorithm.tell(state, replies_with(state, {i: EAST if i in east else WEST for i in ids}))
    assert {frozenset(cluster) for cluster in algorithm.describe(state)["clusters"]} == {
        frozenset(east),
        frozenset(west),
    }

    north = {3, 31}  # Of the western cluster (3, 8, 11, 31), at its positions 0 and 3; the eastern one moves on.
    updates = {i: (EAST if i in east else NORTH if i in north else SOUTH) for i in ids}
    after = algorithm.tell(state, replies_with(state, updates))
    found = {frozenset(cluster) for cluster in algorithm.describe(after)["clusters"]}
    assert found == {frozenset(east), frozenset(north), frozenset(west - north)}
    mistaken = {frozenset(ids[position] for position in half) for half in ((0, 3), (1, 2))}
    assert not mistaken & found, "the case cannot tell the two apart"

    # And each member of a new cluster has the mean of that cluster's own models.
    rows = {client: row for row, client in enumerate(ids)}
    for cluster, place in ((east, (2, 0)), (north, (-1, 1)), (west - north, (-1, -1))):
        for client in cluster:
            assert after.models[rows[client]].tolist() == pytest.approx(list(place))

    third = {i: NORTH if i in (2, 20) else SOUTH if i in east else EAST for i in ids}
    last = algorithm.tell(after, replies_with(after, third))
    assert {frozenset(cluster) for cluster in algorithm.describe(last)["clusters"]} == {
        frozenset({2, 20}),
        frozenset({5, 12}),
        frozenset(north),
        frozenset(west - north),
    }


def clusters_after(algorithm, *rounds):
    """How many clusters there are after each round of updates of the clients 0, 1, 2, …"""
    state, counts = algorithm.begin(setting_of(range(len(rounds[0])), PLANE)), []
    for updates in rounds:
        state = algorithm.tell(state, replies_with(state, dict(enumerate(updates))))
        counts.append(len(state.clusters))
    return counts


PULLING = [EAST, WEST, EAST, WEST]
CALM = [(0.01, 0.0), (-0.01, 0.0), (0.01, 0.0), (-0.01, 0.0)]
TOGETHER = [EAST, EAST, EAST, EAST]


def test_a_cluster_is_cut_when_its_mean_stands_still_and_a_member_still_pulls():
    assert clusters_after(CFL(threshold=0.1, largest_update=0.5), PULLING) == [2]
    assert clusters_after(CFL(threshold=0.1, largest_update=0.5), CALM) == [1], "nobody pulls"
    assert clusters_after(CFL(threshold=0.1, largest_update=0.5), TOGETHER) == [1], "the mean moves"
    assert clusters_after(CFL(threshold=0.1), CALM) == [2], "one threshold, as in the thesis"
    assert clusters_after(CFL(threshold=0.1), [EAST, WEST]) == [1], "a pair stays together"
    assert clusters_after(CFL(threshold=0.0), PULLING) == [1], "nothing is shorter than 0"


def test_patience_counts_rounds_in_a_row():
    assert clusters_after(CFL(threshold=0.1, patience=2), PULLING, PULLING) == [1, 2]
    assert clusters_after(CFL(threshold=0.1, patience=2), PULLING, TOGETHER, PULLING) == [1, 1, 1]


def test_thresholds_in_percent_are_relative_to_the_clusters_mean_model():
    """After one round together the mean model has the norm 1, so an update of 0.03 is 3 percent."""
    small = [(0.03, 0.5), (0.03, -0.5), (0.03, 0.5), (0.03, -0.5)]
    assert clusters_after(CFL(threshold=2.9, threshold_in="percent"), TOGETHER, small) == [1, 1]
    assert clusters_after(CFL(threshold=3.1, threshold_in="percent"), TOGETHER, small) == [1, 2]
    assert clusters_after(CFL(threshold=3.1, largest_update=60, threshold_in="percent"), TOGETHER, small) == [1, 1]


@pytest.mark.parametrize("absent", ["keep", "follow"])
def test_absent_clients_keep_their_cluster_and_a_split_needs_everyone(absent):
    algorithm = CFL(threshold=0.1, absent=absent)
    state = algorithm.begin(setting_of(range(5), PLANE))
    updates = dict(enumerate([EAST, WEST, EAST, WEST, EAST]))
    assert len(CFL(threshold=0.3).tell(state, replies_with(state, updates)).clusters) == 2
    del updates[4]
    after = algorithm.tell(state, replies_with(state, {0: EAST, 1: EAST, 2: NORTH, 3: NORTH}))
    assert len(after.clusters) == 1
    assert after.models[:4].tolist() == [[0.5, 0.5]] * 4
    assert after.models[4].tolist() == ([0, 0] if absent == "keep" else [0.5, 0.5])
    short = algorithm.tell(state, replies_with(state, updates))
    assert len(short.clusters) == 1, "the four that replied stand still, but the fifth might not"


def test_without_a_split_it_is_equal_weight_fedavg():
    problem = Convex(heterogeneity=0.4)
    cfl, fedavg = trial(CFL(threshold=0.0), problem), trial(FedAvg(weighting="equal"), problem)
    assert largest_difference(cfl.models, fedavg.models) <= 1e-12


# -- what it is for ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("linkage", ["single", "complete"])
def test_two_groups_of_opposed_preferences_are_separated_and_each_reaches_its_optimum(linkage):
    problem = Convex(heterogeneity=0.05, noise=0.0)
    federation = Federation.create(problem, 7, 0, OPPOSED)
    algorithm = CFL(threshold=0.01, largest_update=0.1, linkage=linkage)
    done = trial(algorithm, problem, federation=federation, learner=Supervised(lr=0.3, batch_size=1000), rounds=40)
    assert algorithm.describe(done.states[-1])["clusters"] == [[0, 1, 2, 3], [4, 5, 6]]
    centres, shifts = problem.centres(), problem.shifts(7, 0)
    for members, centre in (([0, 1, 2, 3], centres[0]), ([4, 5, 6], centres[1])):
        optimum = centre + shifts[members].mean(dim=0)
        for client in members:
            assert torch.allclose(done.models[client], optimum, atol=1e-4)


def test_equal_preferences_are_not_cut_while_the_second_threshold_holds():
    problem = Convex(heterogeneity=0.05, noise=0.0)
    federation = Federation.create(problem, 7, 0, "0.5,0.5")
    learner = Supervised(lr=0.3, batch_size=1000)
    done = trial(CFL(threshold=0.01, largest_update=0.2), problem, federation=federation, learner=learner, rounds=30)
    assert len(done.states[-1].clusters) == 1


def test_fine_tuning_replaces_the_last_average_by_local_training():
    problem = Convex(heterogeneity=0.4)
    plain, tuned = trial(CFL(), problem), trial(make_algorithm("cfl+ft", {}), problem)
    trained = plain.outcomes[-1].replies.by_client("model")
    assert largest_difference(tuned.models, trained) == 0


@pytest.mark.parametrize("bad", [{"threshold": -1.0}, {"largest_update": -0.1}, {"patience": 0}])
def test_senseless_hyper_parameters_are_refused(bad):
    with pytest.raises(UserError):
        CFL(**bad)
