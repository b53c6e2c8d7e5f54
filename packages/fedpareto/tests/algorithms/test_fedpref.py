"""FedPref against what its paper says must happen."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedpref import FedPref, FedPrefWeighting, bipartition, similarities, top_entries
from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.contract.registry import make_algorithm
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

DIFFERENT = Convex(heterogeneity=0.5, dimension=10)
NO_SPLIT = {"clustering": False}


@pytest.mark.parametrize(("bound", "tolerance"), [(-1e3, 1e-2), (-1e6, 1e-5), (-math.inf, 1e-12)])
def test_similarity_bound_to_minus_infinity_tends_to_equal_weight_fedavg(bound, tolerance):
    fedpref = trial(FedPref(similarity_bound=bound, **NO_SPLIT), DIFFERENT)
    fedavg = trial(FedAvg(weighting="equal"), DIFFERENT)
    gap = largest_difference(fedpref.models, fedavg.models)
    assert gap <= tolerance
    by_size = trial(FedAvg(weighting="size"), DIFFERENT)
    assert largest_difference(fedavg.models, by_size.models) > 1e-3, "the clients are too alike to tell the two apart"


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_similarity_bound_to_one_is_local_training(precision):
    fedpref = trial(FedPref(similarity_bound=1 - 1e-9, **NO_SPLIT), DIFFERENT, precision=precision)
    assert largest_difference(fedpref.models, trial(Local(), DIFFERENT, precision=precision).models) <= 1e-12


def test_default_bound_is_neither_limit():
    fedpref = trial(FedPref(**NO_SPLIT), DIFFERENT).models
    assert largest_difference(fedpref, trial(Local(), DIFFERENT).models) > 1e-3
    assert largest_difference(fedpref, trial(FedAvg(weighting="equal"), DIFFERENT).models) > 1e-3


def test_clustering_only_without_a_split_is_equal_weight_fedavg():
    never = make_algorithm("fedpref-clustering", {"threshold": 0.0})
    fedavg = trial(FedAvg(weighting="equal"), DIFFERENT)
    assert largest_difference(trial(never, DIFFERENT).models, fedavg.models) <= 1e-12


LEANING = "0.7,0.1,0.1,0.1;0.1,0.7,0.1,0.1;0.1,0.1,0.7,0.1;0.1,0.1,0.1,0.7"


def clusters_when_there_are_four(name, problem, seed, sizes, preferences):
    """The cluster of each client when there are first at least four, and how many there are then."""
    groups = f"groups:{','.join(map(str, sizes))}{preferences}"
    federation = Federation.create(problem, sum(sizes), seed, groups)
    algorithm, setting = make_algorithm(name, {}), federation.setting(problem, rounds=40)
    options, choices = LocalOptions(precision="float64"), Choices(threads=1, chunk=sum(sizes))
    engine = LocalEngine(algorithm, problem, problem.learner(), [federation], [setting], options, choices=choices)
    state = algorithm.begin(engine.settings[0])
    while len(state.clusters) < 4 and state.round < 40:
        state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    first = state.clusters
    found = np.empty(sum(sizes), dtype=int)
    for label, cluster in enumerate(first):
        found[list(cluster.members)] = label
    return found, len(first)


@pytest.mark.parametrize("sizes", [(5, 5, 5, 5), (2, 3, 6, 9)], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize("seed", range(1, 6))
def test_four_groups_of_equal_preferences_are_separated(sizes, seed):
    """Of the first ten seeds, nine end like this with either sizes; minibatches decide about one client."""
    from sklearn.metrics import adjusted_rand_score

    problem = Convex(goals=4, heterogeneity=0.01)
    found, count = clusters_when_there_are_four("fedpref", problem, seed, sizes, f"@{LEANING}")
    assert count == 4
    assert adjusted_rand_score(np.repeat(range(4), sizes), found) == 1


@pytest.mark.parametrize("seed", range(3))
def test_four_balanced_groups_on_a_line_are_separated(seed):
    from sklearn.metrics import adjusted_rand_score

    problem = Convex(goals=2, heterogeneity=0.02)
    found, count = clusters_when_there_are_four("fedpref", problem, seed, (5, 5, 5, 5), "")
    assert count == 4
    assert adjusted_rand_score(np.repeat(range(4), 5), found) == 1


def test_top_entries_keeps_the_largest_in_magnitude():
    row = torch.tensor([[0.1, -3.0, 2.0, 0.5, -1.0]])
    assert top_entries(row, 0.4).tolist() == [[0, -3, 2, 0, 0]]
    assert top_entries(row, 0.41).tolist() == [[0, -3, 2, 0, -1]], "k is ⌈R·dim⌉"
    assert torch.equal(top_entries(row, 1.0), row)
    assert torch.equal(top_entries(row, 0.0), row), "R = 0 is the plain cosine"


def test_top_entries_of_a_hundred_are_as_many_as_the_ratio_says():
    row = torch.arange(1.0, 101.0)[None]
    kept = [int((top_entries(row, percent / 100) != 0).sum()) for percent in range(1, 101)]
    assert kept == list(range(1, 101)), "0.55 · 100 is 55, whatever the product of the floats is"


def test_similarity_is_the_mean_of_the_layers_cosines():
    layout = Layout.of({"a.weight": (2,), "a.bias": (1,), "b.weight": (2,)})
    updates = torch.tensor([[1.0, 0, 0, 3, 4], [1, 1, 0, -4, 3], [0, 0, 0, 0, 0]])
    similarity = similarities(updates, layout, 1.0)
    assert similarity[0, 1].item() == pytest.approx((1 / math.sqrt(2) + 0) / 2)
    assert similarity[0, 2].item() == 0, "who did not move resembles nobody"
    assert similarity.diagonal().tolist() == [1, 1, 1], "but itself"


def test_similarity_looks_at_the_top_entries_of_each_layer():
    layout = Layout.of({"a.weight": (4,)})
    updates = torch.tensor([[4.0, 3, 0.1, 0.2], [4, -3, 9, 0]])
    kept = torch.tensor([[4.0, 3, 0, 0], [4, 0, 9, 0]])
    expected = torch.nn.functional.cosine_similarity(kept[0], kept[1], dim=0)
    assert similarities(updates, layout, 0.5)[0, 1].item() == pytest.approx(float(expected))


def test_weights_are_clipped_at_the_bound_then_rescaled():
    similarity = torch.tensor([[1.0, 0.5, -0.8], [0.5, 1, 0], [-0.8, 0, 1]])
    weights = FedPref(similarity_bound=0.0)._scaled(similarity)
    assert torch.allclose(weights, torch.tensor([[1.0, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]))
    weights = FedPref(similarity_bound=-1.0)._scaled(similarity)
    assert torch.allclose(weights[0], torch.tensor([1.0, 0.75, 0.1]))


def test_aggregation_by_hand():
    models = torch.tensor([[0.0, 0], [4, 0], [0, 8]])
    similarity = torch.tensor([[1.0, 1, -1], [1, 1, -1], [-1, -1, 1]])
    weights = FedPref(similarity_bound=-1.0)._weights([np.arange(3)], similarity)
    assert (weights @ models).tolist() == [[2, 0], [2, 0], [0, 8]]


def test_patience_counts_rounds_in_a_row_below_the_threshold():
    problem = Convex(heterogeneity=0.0)
    federation = Federation.create(problem, 6, 0, "groups:3,3")
    first_split = {}
    for patience in (1, 3):
        done = trial(FedPref(patience=patience), problem, federation=federation, rounds=30, chunk=6)
        first_split[patience] = next(state.round for state in done.states if len(state.clusters) > 1)
    assert first_split[3] == first_split[1] + 2


def test_clusters_below_three_members_never_split():
    problem = Convex(heterogeneity=0.5)
    done = trial(FedPref(threshold=1e9), problem, rounds=12)
    sizes = [len(cluster.members) for cluster in done.states[-1].clusters]
    assert max(sizes) <= 2
    together = [cluster for state in done.states for cluster in state.clusters if len(cluster.members) == 2]
    assert together, "the run never had a pair"
    pair = together[0]
    assert any(set(cluster.members) == set(pair.members) for cluster in done.states[-1].clusters), "a pair was split"


def test_a_cluster_splits_only_on_a_full_set_of_replies():
    problem = Convex()
    done = trial(FedPref(threshold=1e9), problem, rounds=1)
    state, replies = done.states[0], done.outcomes[0].replies
    assert len(FedPref(threshold=1e9).tell(state, replies).clusters) == 2
    short = FedPref(threshold=1e9).tell(state, replies.only(np.arange(len(replies) - 1)))
    assert len(short.clusters) == 1
    absent = int(state.setting.rows(replies.clients)[-1])
    assert torch.equal(short.models[absent], state.models[absent]), "an absent client keeps its model"


def test_a_cluster_that_has_not_begun_to_learn_is_not_cut():
    """Who plays before the first update sends back what it got: standing still, but not converged."""
    algorithm = FedPref(threshold=1e9)
    done = trial(algorithm, Convex(), rounds=1)
    state, moved = done.states[0], done.outcomes[0].replies
    unmoved = replace(moved, tensors={"model": state.models})
    waiting = algorithm.tell(state, unmoved)
    assert [cluster.calm for cluster in waiting.clusters] == [0], "a round without learning is no calm round"
    assert len(algorithm.tell(waiting, moved).clusters) == 2
    assert (
        len(
            algorithm.tell(
                waiting, replace(moved, tensors={"model": torch.cat([moved["model"][:1], state.models[1:]])})
            ).clusters
        )
        == 2
    ), "one that moves is enough"


def test_a_cluster_nobody_replies_from_stays_as_it_is():
    problem = Convex()
    done = trial(FedPref(threshold=1e9), problem, rounds=2)
    state, replies = done.states[1], done.outcomes[1].replies
    silent = state.clusters[0]
    heard = replies.only(np.flatnonzero(~np.isin(state.setting.rows(replies.clients), silent.members)))
    told = FedPref(threshold=1e9).tell(state, heard)
    assert silent.members in [cluster.members for cluster in told.clusters]
    rows = list(silent.members)
    assert torch.equal(told.models[rows], state.models[rows])


def test_a_round_compares_those_who_replied_and_costs_what_they_cost():
    """Of many clients there is no matrix of all pairs: 100,000 of them would need 40 GB for it."""
    problem = Convex()
    federation = Federation.create(problem, 60, 3, "dirichlet")
    done = trial(FedPrefWeighting(), problem, federation=federation, participation=0.1, chunk=60)
    for before, after, outcome in zip(done.states[:-1], done.states[1:], done.outcomes, strict=True):
        rows = after.setting.rows(outcome.replies.clients)
        assert after.similarity.shape == (6, 6)
        assert after.compared.tolist() == rows.tolist()
        others = np.setdiff1d(np.arange(60), rows)
        assert torch.equal(after.models[others], before.models[others])
        reference = before.models.mean(dim=0)
        own = similarities(outcome.replies["model"] - reference, problem.layout, FedPref().top_ratio)
        assert torch.allclose(after.similarity, own)
        shown = FedPrefWeighting().describe(after)["similarity"]
        assert torch.equal(shown[rows][:, rows], after.similarity)
        assert torch.equal(shown[others][:, others], torch.eye(54, dtype=torch.float64))


def test_after_a_split_the_reference_is_the_new_clusters_mean():
    """Algorithm 5, lines 12 and 13: WeightedAggregation gets the mean of the previous models of C1, not of C."""
    problem = Convex()
    done = trial(FedPref(threshold=1e9), problem, rounds=2)
    before, after = done.states[1], done.states[2]
    trained = before.models.clone()
    trained[done.outcomes[1].replies.clients] = done.outcomes[1].replies["model"]
    for cluster in after.clusters:
        members = list(cluster.members)
        updates = trained[members] - before.models[members].mean(dim=0)
        own = similarities(updates, problem.layout, FedPref().top_ratio)
        assert torch.allclose(after.similarity[members][:, members], own)


def test_bipartition_separates_two_blocks_and_ignores_negative_affinity():
    block = torch.full((6, 6), -0.9)
    block[:2, :2] = block[2:, 2:] = 0.95
    assert bipartition(block.fill_diagonal_(1)) == [[0, 1], [2, 3, 4, 5]]


def test_bipartition_cuts_least_of_what_is_alike_counted_from_the_opposite_on():
    """Shi and Malik 2000: cut / vol(A) + cut / vol(B) of affinities (s + 1) / 2, of all halves of six one by one."""
    similarity = np.eye(6)
    upper = [0.5, -1, -1, -1, -1, 0.5, 0, 0.5, 0, 0, -0.5, -0.5, 0.5, 0, 0]
    similarity[np.triu_indices(6, 1)] = upper
    similarity = np.maximum(similarity, similarity.T) + np.minimum(similarity, similarity.T)
    np.fill_diagonal(similarity, 1)
    affinity = (similarity + 1) / 2

    def cost(half):
        other = [i for i in range(6) if i not in half]
        return affinity[np.ix_(half, other)].sum() * sum(1 / affinity[side].sum() for side in (list(half), other))

    halves = (half for size in (1, 2, 3) for half in combinations(range(6), size))
    assert min(halves, key=cost) == (0,)
    assert bipartition(torch.as_tensor(similarity)) == [[0], [1, 2, 3, 4, 5]]


def test_threshold_in_percent_is_relative_to_the_means_norm():
    problem = Convex()
    done = trial(FedPref(threshold=1e-6, threshold_in="percent"), problem)
    assert len(done.states[-1].clusters) == 1
    done = trial(FedPref(threshold=1e6, threshold_in="percent"), problem)
    assert len(done.states[-1].clusters) > 1


def test_fine_tuning_shares_all_training_but_the_last_step():
    plain, tuned = trial(FedPref(), DIFFERENT), trial(make_algorithm("fedpref+ft", {}), DIFFERENT)
    assert torch.equal(plain.states[-2].models, tuned.states[-2].inner.models)
    trained = plain.outcomes[-1].replies.by_client("model")
    assert largest_difference(tuned.models, trained) == 0
    assert len(plain.states) == len(tuned.states), "no round is added"


def agreement_in_the_end(split_level, seed):
    """The adjusted Rand index of clusters and four groups of like-minded clients after 20 rounds."""
    from sklearn.metrics import adjusted_rand_score

    problem = Convex(goals=4, heterogeneity=0.0)
    federation = Federation.create(problem, 20, seed, f"groups:2,3,6,9@{LEANING}")
    done = trial(FedPref(split_level=split_level), problem, federation=federation, rounds=20, chunk=20)
    cluster_of = {row: number for number, cluster in enumerate(done.states[-1].clusters) for row in cluster.members}
    return adjusted_rand_score([0] * 2 + [1] * 3 + [2] * 6 + [3] * 9, [cluster_of[row] for row in range(20)])


@pytest.mark.takes_long
def test_algorithm_4_splits_on_and_a_level_stops_where_no_difference_is_shown():
    assert agreement_in_the_end(1.0, seed=0) < 0.3
    assert np.mean([agreement_in_the_end(0.01, seed) for seed in range(3)]) > 0.75


@pytest.mark.parametrize("level", [0.0, -0.1, 1.5])
def test_a_level_is_a_probability(level):
    with pytest.raises(UserError, match="split_level"):
        FedPref(split_level=level)
