"""What a late reply means to each algorithm, and what is the same where nobody is late."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from personal_models import NETWORK
from small_problems import replies_with, setting_of

from fedpareto.algorithms.clustered.cfl import CFL
from fedpareto.algorithms.clustered.fedpref import FedPref, similarities
from fedpareto.clock.policy import Policy
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Replies, beginnings, taken
from fedpareto.contract.registry import algorithms, make_algorithm
from fedpareto.moo.min_norm import project_to_simplex
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.runs.loop import Experiment
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.tensors.layout import Layout
from fedpareto.testing.conformance import gap, small_problem, trial
from little_work import LITTLE_WORK

PLANE = Layout.of({"all": (2,)})
EAST, WEST, NORTH = (1.0, 0.0), (-1.0, 0.0), (0.0, 1.0)
REFUSED = {
    "client-mofld",
    "dmoead",
    "dsfl",
    "fairfed",
    "fairtrade",
    "fedcmoo",
    "fedcmoo-pref",
    "feddyn",
    "fedfb",
    "fedmdfg",
    "fedpref-public",
    "gossip-fedavg",
    "gossip-fedpref",
    "lft-ensemble",
    "mofld",
    "scaffold",
    "rt-fedevonas",
}
PERSONAL = ["fedpref", "fedpref-clustering", "fedpref-weighting", "cfl", "mat-fl", "fedamp", "mocha", "fedmtl"]


def not_waiting(clients, layout=PLANE):
    return replace(setting_of(clients, layout), waits=False)


@functools.cache
def short(name):
    """Two rounds in which everybody replies, and the algorithm."""
    algorithm = make_algorithm(name, LITTLE_WORK.get(name, {}))
    return algorithm, trial(algorithm, small_problem(algorithm), rounds=2)


def late(algorithm, reply, begun, now, weight):
    """One late reply as `tell` gets it."""
    told = algorithm.refreshed(
        *(
            {name: torch.as_tensor(value).double()[None] for name, value in part.items()}
            for part in (reply, begun, now)
        ),
        torch.tensor([weight], dtype=torch.float64),
    )
    return {name: tensor[0] for name, tensor in told.items()}


# -- every algorithm -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(algorithms()) - REFUSED))
def test_with_nobody_late_and_all_here_nothing_changes_to_the_bit(name):
    algorithm, done = short(name)
    state = algorithm.begin(replace(done.engine.settings[0], waits=False))
    for outcome in done.outcomes:
        state = algorithm.tell(state, outcome.replies)
    sent, expected = algorithm.solutions(state).stacked(), algorithm.solutions(done.states[-1]).stacked()
    assert sent.keys() == expected.keys()
    assert all(torch.equal(sent[part], expected[part]) for part in sent)


@pytest.mark.parametrize("name", sorted(set(algorithms()) - REFUSED - {"local", "fedasync"}))
def test_a_late_client_that_did_not_move_moves_nothing_it_meets(name):
    """Whatever a model is called in its messages: what it began from is known, and so is what it meets.

    Local training sends nothing, and FedAsync mixes models rather than updates.
    """
    algorithm, done = short(name)
    first, second = (algorithm.ask(state)[0].only(np.arange(3)) for state in done.states[:2])
    reply = taken(done.outcomes[0].replies.tensors, np.arange(3))
    begun, now = beginnings(first, reply), beginnings(second, reply)
    assert begun, "nothing of a late reply can be rebased"
    if name in PERSONAL:
        now = begun  # See the next test.
    fresh = algorithm.refreshed({**reply, **begun}, begun, now, torch.full((3,), 0.5))
    assert all(gap(fresh[part], now[part]) == 0 for part in begun)
    assert all(torch.equal(fresh[part], reply[part]) for part in reply.keys() - begun.keys()), "numbers are as they are"


@pytest.mark.parametrize("name", PERSONAL)
def test_nobody_else_changes_a_personal_model_so_a_late_one_meets_what_it_began_from(name):
    algorithm, done = short(name)
    state = algorithm.begin(replace(done.engine.settings[0], waits=False))
    for rows in (np.arange(3), np.arange(2, 4)):
        before, state = state, algorithm.tell(state, done.outcomes[0].replies.only(rows))
        others = np.setdiff1d(np.arange(len(state.models)), rows)
        assert torch.equal(state.models[others], before.models[others])
    reply = {"model": torch.ones(1, 2)}
    assert (
        algorithm.refreshed(reply, {"model": torch.zeros(1, 2)}, {"model": torch.zeros(1, 2)}, torch.zeros(1)) == reply
    )


def test_what_has_no_meaning_is_refused_and_all_else_is_not():
    policy = Policy("asynchronous")
    for name in algorithms():
        if name not in REFUSED:
            policy.must_fit(make_algorithm(name), 5)
            continue
        with pytest.raises(UserError, match=f"policy.kind=asynchronous does not fit {name}: .+"):
            policy.must_fit(make_algorithm(name), 5)


def test_the_document_has_a_line_for_each_algorithm():
    text = (Path(__file__).parents[4] / "docs" / "time.md").read_text(encoding="utf-8")
    table = text.split("## What a late reply means")[1].split("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(algorithms())
    refused = {name for row in rows if "refused" in row for name in re.findall(r"`([a-z0-9-]+)`", row.split("|")[1])}
    assert refused == REFUSED


# -- one global model ------------------------------------------------------------------------------------------------


def state_and_replies(name, parameters, model, replies, clients=4):
    """An algorithm whose global model is `model`, told some replies; the model after it."""
    algorithm = make_algorithm(name, parameters)
    state = replace(algorithm.begin(not_waiting(range(clients))), model=torch.tensor(model, dtype=torch.float64))
    return algorithm.tell(state, Replies.of(replies)).model


@pytest.mark.parametrize("name", ["fedmgda", "fedmgda-plus"])
def test_fedmgda_finds_its_weights_over_the_updates_in_the_buffer_in_full(name):
    """The late one moved by (2, 0) from (5, 5). Shortened it would get more weight, not less."""
    algorithm, met = make_algorithm(name, {"epsilon": 1.0}), [1.0, 1.0]
    reply = late(algorithm, {"model": [7.0, 5.0]}, {"model": [5.0, 5.0]}, {"model": met}, 0.25)
    assert reply["model"].tolist() == [3.0, 1.0]
    found = state_and_replies(name, {"epsilon": 1.0}, met, {0: reply, 3: {"model": torch.tensor([1.0, 2.0]).double()}})
    # Of a ⟂ b the shortest mixture is λ = (‖b‖², ‖a‖²) / (‖a‖² + ‖b‖²); of directions it is (½, ½).
    step = [0.4, 0.8] if name == "fedmgda" else [0.5, 0.5]
    assert found.tolist() == pytest.approx([1 + step[0], 1 + step[1]])


def test_q_fedavg_with_a_late_reply_by_hand():
    """w ← w − Σ F^q Δ / Σ h with L = 2, q = 1: Δ_k = L s (begun − w_k), and F_k of the model that was begun from."""
    algorithm, met = make_algorithm("q-fedavg", {"q": 1.0, "lipschitz": 2.0}), [1.0, 1.0]
    sent = {"model": [5.0, 3.0], "loss_before": 3.0}
    reply = late(algorithm, sent, {"model": [5.0, 5.0]}, {"model": met}, 0.5)
    assert reply["model"].tolist() == [1.0, 0.0]
    assert reply["loss_before"] == 3
    fresh = {"model": torch.tensor([2.0, 1.0]).double(), "loss_before": torch.tensor(1.0).double()}
    found = state_and_replies("q-fedavg", {"q": 1.0, "lipschitz": 2.0}, met, {0: reply, 1: fresh})
    h = (2**2 * 1 + 2 * 3) + (2**2 * 1 + 2 * 1)
    assert found.tolist() == pytest.approx([1 + 2 * 1 / h, 1 - 2 * 3 / h])


def test_fsmgda_weighs_the_updates_of_a_late_client():
    algorithm = make_algorithm("fsmgda")
    updates = [[2.0, 0.0], [0.0, 4.0]]
    reply = late(algorithm, {"updates": updates}, {"updates": [[0, 0]] * 2}, {"updates": [[0, 0]] * 2}, 0.5)
    assert reply["updates"].tolist() == [[1, 0], [0, 2]]
    assert state_and_replies("fsmgda", {}, [7.0, 7.0], {2: reply}).tolist() == pytest.approx([7 + 0.8, 7 + 0.4])


def test_fedfew_and_ifca_move_the_models_that_a_late_client_trained_from_where_they_are():
    begun, met = torch.zeros(1, 2, 2), torch.tensor([[[1.0, 1.0], [8.0, 8.0]]])
    fedfew = make_algorithm("fedfew", {"models": 2})
    reply = {"models": torch.tensor([[[2.0, 0.0], [0.0, 2.0]]]), "losses": torch.tensor([[3.0, 4.0]])}
    found = fedfew.refreshed(reply, {"models": begun}, {"models": met}, torch.tensor([0.5]))
    assert found["models"].tolist() == [[[2, 1], [8, 9]]]
    assert found["losses"].tolist() == [[3, 4]]
    ifca = make_algorithm("ifca", {"models": 2})
    state = ifca.begin(not_waiting(range(3)))
    state = replace(state, models=met[0].double())
    tasks = ifca.ask(state)[0].only(np.array([1]))
    sent = {"model": torch.tensor([[0.0, 2.0]]).double(), "choice": torch.tensor([1.0])}
    fresh = ifca.refreshed(sent, {"model": torch.zeros(1, 2)}, beginnings(tasks, sent), torch.tensor([0.5]))
    after = ifca.tell(state, Replies(np.array([1]), fresh))
    assert after.models.tolist() == [[1, 1], [8, 9]]


@pytest.mark.parametrize(("name", "loss"), [("afl", "loss_before"), ("agnosticfair", "loss")])
def test_who_replies_often_does_not_weigh_more_in_the_worst_mixture(name, loss):
    """Client 0 replies three times, the others once: λ is as if all had the losses that they reported last."""
    algorithm = make_algorithm(name, {"weight_lr": 0.1})
    done = short(name)[1]
    setting = replace(done.engine.settings[0], waits=False)
    state, n = algorithm.begin(setting), len(setting.clients)
    one = taken(done.outcomes[0].replies.tensors, np.arange(1))
    expected = np.full(n, 1 / n)
    for client in (0, 0, 0):
        state = algorithm.tell(state, Replies(np.array([client]), {**one, loss: torch.tensor([2.0]).double()}))
    assert np.allclose(state.weights, expected), "nobody else is known yet, so nobody is worse off"
    known = np.array([2.0, 5.0, *[3.5] * (n - 2)])
    before = state.model
    state = algorithm.tell(state, Replies(np.array([1]), {**one, loss: torch.tensor([5.0]).double()}))
    assert np.allclose(state.weights, project_to_simplex(expected + 0.1 / n * known))
    assert torch.allclose(state.model, one["model"][0]), "an even share of λ: the reply counts in full"
    state = replace(state, weights=(0.25 / n, *[(1 - 0.25 / n) / (n - 1)] * (n - 1)), model=before + 1)
    after = algorithm.tell(state, Replies(np.array([0]), {**one, loss: torch.tensor([2.0]).double()})).model
    assert torch.allclose(after, 0.25 * one["model"][0] + 0.75 * (before + 1)), "a quarter of an even share"


def test_a_narrow_client_that_is_late_moves_its_slice_only():
    algorithm = make_algorithm("heterofl")
    done = trial(algorithm, NETWORK, rounds=1)
    replies, (before, after) = done.outcomes[0].replies, done.states
    narrow = np.flatnonzero(algorithm._levels(before.setting) == 2)[:1]
    reply = taken(replies.tensors, narrow)
    begun, now = (beginnings(algorithm.ask(state)[0].only(narrow), reply) for state in (before, after))
    fresh = algorithm.refreshed(reply, begun, now, torch.tensor([0.5]))
    told = algorithm.tell(after, Replies(narrow, fresh)).model
    outside = (reply["model"] == begun["model"])[0]
    assert 0 < outside.sum() < len(outside)
    assert torch.equal(told[outside], after.model[outside])
    assert not torch.equal(told[~outside], after.model[~outside])


# -- personal models -------------------------------------------------------------------------------------------------


def told_one_by_one(algorithm, updates, order, clients):
    state = algorithm.begin(not_waiting(clients))
    states = [state]
    for client in order:
        state = algorithm.tell(state, replies_with(state, {client: updates[client]}))
        states.append(state)
    return states


def test_fedpref_mixes_a_reply_with_the_last_ones_of_its_cluster_by_the_same_weights():
    algorithm = FedPref(clustering=False, top_ratio=1.0)
    updates = {0: EAST, 1: (1.0, 1.0), 2: WEST}
    begun, first, second, third = told_one_by_one(algorithm, updates, [0, 1, 2], range(3))
    assert first.models.tolist() == [[1, 0], [0, 0], [0, 0]], "alone at first: nobody else has replied"
    trained = torch.tensor([EAST, (1.0, 1.0), WEST], dtype=torch.float64)
    references = torch.stack([state.models.mean(dim=0) for state in (begun, first, second)])
    similarity = similarities(trained - references, PLANE, 1.0)  # Each from the mean that it met.
    weights = (similarity + 1) / 2
    for number, state in ((1, second), (2, third)):
        own = weights[number, : number + 1] / weights[number, : number + 1].sum()
        assert torch.allclose(state.models[number], own @ trained[: number + 1])
    assert torch.equal(third.models[:2], second.models[:2]), "the rows of those who did not reply stay"
    assert third.similarity.shape == (1, 1), "k replies are compared with n, never n with n"


@pytest.mark.parametrize("algorithm", [FedPref(threshold=0.1), CFL(threshold=0.1)], ids=["fedpref", "cfl"])
def test_a_cluster_is_examined_once_each_member_has_replied(algorithm):
    """Client 0 replies three times: its last reply counts, once. The fourth client completes the cluster."""
    updates = dict(enumerate([EAST, WEST, (1.0, 0.1), (-1.0, -0.1)]))
    *before, last = told_one_by_one(algorithm, updates, [0, 0, 1, 0, 2, 3], range(4))
    assert all(len(state.clusters) == 1 for state in before)
    assert [cluster.members for cluster in last.clusters] == [(0, 2), (1, 3)]
    assert not last.heard.since.any(), "from here on all four have to reply again"


@pytest.mark.parametrize("name", ["fedpref", "fedpref-clustering", "cfl"])
@pytest.mark.parametrize("order", [range(7), [3, 6, 0, 5, 1, 4, 2]], ids=["ascending", "mixed"])
def test_one_reply_at_a_time_leads_to_the_same_halves_as_all_at_once(name, order):
    algorithm = make_algorithm(name, {"threshold": 1e9})
    done = short(name)[1]
    together = algorithm.tell(done.states[0], done.outcomes[0].replies)
    state = algorithm.begin(replace(done.engine.settings[0], waits=False))
    for row in order:
        assert len(state.clusters) == 1
        # Everybody began from the same model: as they would have replied to the first round.
        state = algorithm.tell(
            replace(state, models=done.states[0].models), done.outcomes[0].replies.only(np.array([row]))
        )
    assert sorted(cluster.members for cluster in state.clusters) == sorted(
        cluster.members for cluster in together.clusters
    )


def test_cfl_averages_the_last_replies_of_a_cluster_for_those_who_reply_or_for_all():
    updates = {0: EAST, 1: NORTH}
    keep = told_one_by_one(CFL(threshold=0.0), updates, [0, 1], range(3))[-1]
    assert keep.models.tolist() == [[1, 0], [0.5, 0.5], [0, 0]]
    follow = told_one_by_one(CFL(threshold=0.0, absent="follow"), updates, [0, 1], range(3))[-1]
    # The second began from (1, 0), where the first one had led all of them.
    assert follow.models.tolist() == [[1, 0.5]] * 3


def test_matfl_averages_over_the_last_replies_of_its_voters():
    algorithm = make_algorithm("mat-fl", {"voters": 2})
    state = told_one_by_one(algorithm, {0: EAST, 1: NORTH, 2: (0.2, 1.0)}, [0, 1, 2], range(3))[-1]
    assert torch.allclose(state.models, torch.tensor([[1, 0], [0.5, 0.5], [0.1, 1.0]]).double())


def test_a_pulled_client_is_known_by_the_model_that_it_sent_however_late():
    """It goes on from that model, so a server that shortened a late update would know another one."""
    devices = {"kind": "equal", "speed": [1e9, 3e8, 1e8, 1e7, 1e6]}
    spec = spec_of("fedamp", {"kind": "asynchronous"}, devices, 25)
    with backends.opened(spec) as engine:
        experiment = run(spec, engine)
        assert max(row.get("staleness", 0) for row in experiment.recorder.history) > 1
        state = experiment.states[0]
        kept = torch.stack([engine.private[0, 0, client]["model"] for client in range(5)])
        assert torch.equal(state.models, kept)


def test_what_is_remembered_survives_a_checkpoint():
    for algorithm in (FedPref(split_level=0.5), CFL(), make_algorithm("mat-fl"), make_algorithm("afl")):
        name = algorithm.name
        done = short(name)[1]
        replies = done.outcomes[0].replies
        state = algorithm.begin(replace(done.engine.settings[0], waits=False))
        state = algorithm.tell(state, replies.only(np.arange(4)))
        saved = Checkpoint()
        saved.put_state(state, "state/")
        loaded = saved.get_state(algorithm.begin(state.setting), "state/")
        one, other = (algorithm.tell(each, replies.only(np.arange(2, 6))) for each in (state, loaded))
        assert torch.equal(algorithm.solutions(one).stacked()["model"], algorithm.solutions(other).stacked()["model"])


# -- asynchronous runs -----------------------------------------------------------------------------------------------


def spec_of(algorithm, policy, devices, rounds, clients=5, preferences="dirichlet", **problem):
    return Draft(
        {
            "algorithm": algorithm,
            "problem": {"name": "convex", **problem},
            "clients": clients,
            "rounds": rounds,
            "policy": policy,
            "devices": devices,
            "preferences": preferences,
            "evaluate_every": rounds,
            "engine": {"precision": "float64", "threads": 1, "chunk": clients},
        }
    ).finish()


def run(spec, engine, watch=lambda state: None):
    experiment = Experiment(spec, engine)
    for _ in range(spec.rounds):
        experiment._one_round()
        watch(experiment.states[0])
    return experiment


def test_fedpref_with_one_reply_in_a_round_is_not_local_training_and_finds_the_groups_of_clients():
    from sklearn.metrics import adjusted_rand_score

    groups = "groups:4,4,4@0.8,0.1,0.1;0.1,0.8,0.1;0.1,0.1,0.8"
    problem = {"goals": 3, "heterogeneity": 0.01}
    found, models = [], {}

    def watch(state):
        cluster_of = {row: number for number, cluster in enumerate(state.clusters) for row in cluster.members}
        labels = [cluster_of[row] for row in range(12)]
        found.append((len(state.clusters), adjusted_rand_score(np.repeat(range(3), 4), labels)))

    for name in ("fedpref", "local"):
        spec = spec_of(name, "asynchronous", "lognormal", 130, 12, groups, **problem)
        with backends.opened(spec) as engine:
            experiment = run(spec, engine, watch if name == "fedpref" else lambda state: None)
            sent = engine.models(0, spec.algorithm.solutions(experiment.states[0]))
            models[name] = torch.stack([sent[client] for client in range(12)])
    assert float((models["fedpref"] - models["local"]).norm(dim=1).min()) > 1e-3
    assert next(index for count, index in found if count >= 3) == 1
