"""FedMTL, whose clients have private sets of tasks: limits, closed forms, a plain loop, and what the server sees."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small_problems import replies_with, setting_of

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.personal.fedmtl import FedMTL, beginning, reordered, task_layers
from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import UserError
from fedpareto.contract.federation import Federation
from fedpareto.problems.convex import Convex
from fedpareto.problems.multitask.digits import DigitPairs
from fedpareto.spec.draft import Draft
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import largest_difference, trial

SETS = "tasks:accuracy:left,accuracy:right,accuracy:left+accuracy:right"
LAYERS = Layout.of({"block": (2,), "one": (2,), "two": (2,)}, heads=[("one",), ("two",)])


@dataclass(frozen=True)
class EqualHeads(DigitPairs):
    """Whose task layers begin from the same values for every algorithm."""

    samples: int = 70
    test_samples: int = 20

    def initial(self, seed):
        return beginning(replace(setting_of([0], self.layout), initial=super().initial(seed)))


PAIRS = EqualHeads()
PLACES = task_layers(PAIRS.layout)


def clients_with_sets(clients=7):
    return Federation.create(PAIRS, clients, 3, SETS)


def in_order_of_tasks(models, seed=3):
    """What clients sent or were sent, with their secret orders undone."""
    count = torch.full((len(models),), len(PLACES))
    order = rng.Addresses.at(seed, np.arange(len(models)), 0).orders("task layers", count, 1, len(PLACES))[:, 0]
    return reordered(PAIRS.layout, models, order.argsort(dim=1)), order


# -- limits --------------------------------------------------------------------------------------------------------


def test_where_all_weigh_alike_the_shared_block_is_fedavgs():
    convex = Convex(heterogeneity=0.3)  # All of it is shared.
    one, other = (trial(algorithm, convex) for algorithm in (FedMTL(power=0.0), FedAvg(weighting="equal")))
    assert largest_difference(one.models, other.models) <= 1e-12
    one, other = (trial(algorithm, PAIRS, rounds=1) for algorithm in (FedMTL(power=0.0), FedAvg(weighting="equal")))
    shared = slice(int(PLACES.min()))
    assert all((one.models[client] - other.models[client])[shared].abs().max() <= 1e-12 for client in range(7))


def test_equal_clients_with_all_tasks_are_fedavg_whatever_the_power():
    alike = Federation.create(PAIRS, 1, 3, "uniform")
    everyone = replace(
        alike,
        ids=(0, 1, 2),
        splits={name: table.only(np.zeros(3, dtype=int)) for name, table in alike.splits.items()},
        preferences=np.repeat(alike.preferences, 3, axis=0),
    )
    learner = replace(PAIRS.learner(), batch_size=1000)  # Else each would have its own minibatches.
    one, other = (
        trial(algorithm, PAIRS, federation=everyone, learner=learner, rounds=2)
        for algorithm in (FedMTL(power=3.0), FedAvg())
    )
    assert largest_difference(one.models, other.models) <= 1e-6


@pytest.mark.parametrize("tasks", ["1,0", "uniform"])
def test_one_client_is_local_training(tasks):
    federation = Federation.create(PAIRS, 1, 3, tasks)
    one, other = (trial(algorithm, PAIRS, federation=federation) for algorithm in (FedMTL(), Local()))
    assert largest_difference(one.models, other.models) <= 1e-12


# -- what is mixed with what ----------------------------------------------------------------------------------------


def plainly_mixed(models, threshold, power):
    """The same by loops over clients and layers, from 0: two numbers of the block, then two for each of two tasks."""

    def cosine(one, other):
        lengths = np.linalg.norm(one) * np.linalg.norm(other)
        return one @ other / lengths if lengths else 0.0

    layers, mixed = models.reshape(len(models), 3, 2), models.reshape(len(models), 3, 2).copy()
    tasks_of = [sum(bool(layer.any()) for layer in one[1:]) for one in layers]
    for i, mine in enumerate(layers):
        weights, members = {1: [1.0], 2: [1.0]}, {1: [mine[1]], 2: [mine[2]]}
        similarity = np.ones(len(layers))
        for j in set(range(len(layers))) - {i}:
            scores = {(a, b): cosine(mine[a], layers[j][b]) for a in (1, 2) for b in (1, 2)}
            pairs = {
                (a, b): score
                for (a, b), score in scores.items()
                if score > threshold and score == max(scores[a, 1], scores[a, 2], scores[1, b], scores[2, b])
            }
            for (a, b), score in pairs.items():
                weights[a].append(score**power)
                members[a].append(layers[j][b])
            tasks = 2 * sum(pairs.values()) / (tasks_of[i] + tasks_of[j])
            similarity[j] = (max(cosine(mine[0], layers[j][0]), 0) + tasks) / 2
        mixed[i, 0] = np.average(layers[:, 0], axis=0, weights=similarity**power)
        for a in (1, 2):
            mixed[i, a] = np.average(members[a], axis=0, weights=weights[a])
    return mixed.reshape(models.shape)


def test_a_round_is_what_loops_over_clients_and_layers_make_of_it():
    algorithm, stream = FedMTL(threshold=0.2, power=2.0), np.random.default_rng(5)
    state = algorithm.begin(setting_of(range(6), LAYERS))
    updates = stream.standard_normal((6, 6))
    updates[1, 2:4] = updates[4, 4:6] = 0  # Clients with one task.
    after = algorithm.tell(state, replies_with(state, dict(enumerate(updates))))
    expected = plainly_mixed(updates, 0.2, 2.0)
    assert np.abs(after.models.numpy() - expected).max() <= 1e-12
    assert np.abs(expected - updates).max(axis=1).min() > 0.01, "nobody's model was mixed"


def test_layers_of_disjoint_tasks_are_mixed_within_their_groups_only():
    """Clients 0 and 1 have a task that 2 and 3 have not, each in whatever place it is sent."""
    east, north, nothing = (1.0, 0.1), (0.1, 1.0), (0.0, 0.0)
    sent = {0: (*east, *nothing), 1: (*nothing, 2.0, 0.2), 2: (*north, *nothing), 3: (*nothing, 0.2, 2.0)}
    state = FedMTL().begin(setting_of(sent, LAYERS))
    replies = replies_with(state, {client: (1.0, 0.0, *row) for client, row in sent.items()})
    mixed = FedMTL().tell(state, replies).models
    easts, norths = (1.5, 0.15), (0.15, 1.5)
    wanted = [(*easts, *nothing), (*nothing, *easts), (*norths, *nothing), (*nothing, *norths)]
    assert mixed[:, 2:].numpy() == pytest.approx(np.array(wanted), abs=1e-6)
    alone = FedMTL(threshold=1.0).tell(state, replies).models
    assert torch.equal(alone[:, 2:], replies["model"][:, 2:]), "nothing is above 1"


def test_clients_find_those_with_the_same_tasks():
    """After a few rounds the mixture of each task is the same at all who have it, and each has its own."""
    problem = EqualHeads(samples=600)
    done = trial(FedMTL(), problem, federation=Federation.create(problem, 6, 3, SETS), rounds=6)
    models, _ = in_order_of_tasks(done.states[-1].models)
    learnt = (models - done.states[0].models)[:, PLACES.flatten()].view(6, 2, -1)
    left, right = learnt[[0, 3, 2, 5], 0], learnt[[1, 4, 2, 5], 1]

    def least(one, other):
        return float(torch.nn.functional.cosine_similarity(one[:, None], other[None], dim=2).min())

    assert min(least(left, left), least(right, right)) > 0.95
    assert float(torch.nn.functional.cosine_similarity(left[:, None], right[None], dim=2).max()) < 0.5


def test_stacks_equal_loops_for_clients_with_sets_of_tasks():
    one, other = (
        trial(FedMTL(threshold=0.1), PAIRS, federation=clients_with_sets(), participation=0.6, chunk=chunk)
        for chunk in (7, 1)
    )
    assert largest_difference(one.models, other.models) <= 1e-9


# -- what the server sees ------------------------------------------------------------------------------------------


def test_no_message_says_which_tasks_a_client_has():
    done = trial(FedMTL(), PAIRS, federation=clients_with_sets(12), rounds=1, chunk=12)
    (tasks,), replies = FedMTL().ask(done.states[0]), done.outcomes[0].replies
    assert [*tasks.shared, *tasks.own, *replies.tensors] == ["model"] * 2, "nothing else goes over the wire"
    layers = tasks.stacked()["model"][:, PLACES.flatten()].view(12, *PLACES.shape)
    assert torch.equal(layers[:, 0], layers[:, 1]), "no place is told apart when training begins"
    moved = (replies["model"][:, PLACES.flatten()].view_as(layers) != layers).any(dim=2)
    assert moved.sum(1).tolist() == [1, 1, 2] * 4, "how many tasks a client has is seen …"
    places = [set(moved[kind::3].float().argmax(1).tolist()) for kind in (0, 1)]
    assert places == [{0, 1}, {0, 1}], "… which ones is not: the same task is in any place"


def test_a_client_uses_the_layers_of_its_tasks_and_never_trained_the_others():
    done = trial(FedMTL(), PAIRS, federation=clients_with_sets(), rounds=2)
    models, order = in_order_of_tasks(done.states[-1].models)
    assert sorted(map(tuple, order.tolist())) != [(0, 1)] * 7
    own = torch.stack([done.models[client] for client in range(7)])
    assert torch.equal(own, models)
    learnt = (own - done.states[0].models)[:, PLACES.flatten()].view(7, 2, -1).abs().amax(2) > 0
    assert learnt.tolist() == (clients_with_sets().preferences > 0).tolist()


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("preferences", "said"),
    [
        ("tasks:accuracy:left", "nobody has the objective 'accuracy:right'; add it to one of the sets"),
        ("tasks:accuracy:left,,accuracy:right", "the set at place 2 is empty; name an objective, such as 'accuracy:l"),
        ("tasks:", "the set at place 1 is empty"),
        ("tasks:accuracy:left,accuracy:rigth", "unknown objective 'accuracy:rigth'; did you mean 'accuracy:right'?"),
    ],
)
def test_sets_that_cannot_be_are_one_line(preferences, said):
    draft = {"algorithm": "fedmtl", "problem": "digit-pairs", "clients": 3, "preferences": preferences}
    with pytest.raises(UserError) as refused:
        Draft(draft).finish()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"threshold": 1.5}, "threshold is 1.5; it is at least 0 and at most 1"),
        ({"power": -1.0}, "power is -1; it is at least 0"),
        ({"power": np.inf}, "power is inf; it is at least 0"),
    ],
)
def test_wrong_parameters_are_refused(wrong, said):
    with pytest.raises(UserError, match=said):
        FedMTL(**wrong)


def test_task_layers_of_different_sizes_are_refused():
    layout = Layout.of({"one": (2,), "two": (3,)}, heads=[("one",), ("two",)])
    with pytest.raises(UserError, match="those of this network differ in size"):
        FedMTL().begin(setting_of([0, 1], layout))
