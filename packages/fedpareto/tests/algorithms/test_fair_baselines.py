"""The five fair baselines of PraFFL against closed forms, limits and steps by hand."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import pandas
import pytest
import torch
from torch.nn.functional import softplus

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.fairness.agnosticfair import AgnosticFair, squared_covariance
from fedpareto.algorithms.fairness.fairbatch import Shares
from fedpareto.algorithms.fairness.fairfed import FairFed
from fedpareto.algorithms.fairness.fedfb import FedFB
from fedpareto.algorithms.fairness.lft_ensemble import LFTEnsemble
from fedpareto.algorithms.fairness.lft_fedavg import LFTFedAvg
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.federation import Federation, setting_of
from fedpareto.contract.groups import Comparison, cells, differences
from fedpareto.contract.messages import Replies
from fedpareto.contract.problem import Objective
from fedpareto.contract.registry import make_algorithm
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto.problems.fairness.silo import Silo
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import largest_difference, trial

PARITY, OPPORTUNITY, ODDS = Comparison(2, (None,)), Comparison(2, (1,)), Comparison(2, (1, 0))
BASELINES = [LFTFedAvg(), LFTEnsemble(), FairFed(), FairFed(debias="none"), FedFB(), AgnosticFair()]
SHORT = Supervised(lr=0.05, batch_size=128, epochs=2)
SMALL = Synthetic(partition="fedfb", hidden=(4, 4, 4))


def federation(preference="1,0"):
    """FedFB's three clients; with this preference a learner minimises plain cross entropy."""
    return Federation.create(SMALL, 3, 0, preference)


def short(algorithm, **values):
    return trial(algorithm, SMALL, federation=federation(), learner=SHORT, rounds=3, **values)


def setting(clients=2, comparison=PARITY):
    """For an algorithm that is told replies by hand; the model is one number."""
    objectives = (Objective("accuracy"), Objective("fairness"))
    layout = Layout.of({"weight": (1,)})
    initial = torch.zeros(1, dtype=torch.float64)
    return Setting(0, tuple(range(clients)), 5, layout, objectives, initial, comparison=comparison)


def told(algorithm, state, *messages):
    """The state after these replies, the clients' in order."""
    step = algorithm.ask(state)[0].step
    replies = {
        client: {name: torch.as_tensor(value).double() for name, value in message.items()}
        for client, message in enumerate(messages)
    }
    return algorithm.tell(state, Replies.of(replies, step, round=1))


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [FedFB(weight_lr=0), FairFed(beta=0, debias="none"), FairFed(beta=0, weight_lr=0), LFTFedAvg(weight_lr=0)],
    ids=["fedfb", "fairfed", "fairfed with fairbatch", "lft-fedavg"],
)
def test_without_a_step_size_it_is_fedavg_on_cross_entropy(algorithm):
    assert largest_difference(short(algorithm).models, short(FedAvg()).models) <= 1e-9


def test_without_penalty_and_ascent_agnosticfair_is_fedavg_with_equal_weights():
    plain = short(AgnosticFair(penalty=0, weight_lr=0)).models
    assert largest_difference(plain, short(FedAvg(weighting="equal")).models) <= 1e-9
    assert largest_difference(plain, short(AgnosticFair()).models) > 1e-3


def test_of_one_client_fairfed_is_locally_fair_training_and_so_is_the_ensemble():
    problem = replace(SMALL, partition="iid")
    alone = Federation.create(problem, 1, 0, "1,0")
    lft, fairfed, ensemble = (
        trial(algorithm, problem, federation=alone, learner=SHORT, rounds=3).models
        for algorithm in (LFTFedAvg(), FairFed(), LFTEnsemble())
    )
    assert largest_difference(lft, fairfed) <= 1e-12
    assert ensemble[0].shape == (1, problem.layout.size)
    assert largest_difference(lft, {0: ensemble[0][0]}) <= 1e-12


@pytest.mark.parametrize("algorithm", BASELINES, ids=lambda algorithm: algorithm.name)
def test_preferences_have_no_part_in_it(algorithm):
    one, other = (
        trial(algorithm, SMALL, federation=federation(spec), learner=SHORT, rounds=2).models for spec in ("1,0", "0,1")
    )
    assert largest_difference(one, other) == 0


# -- what is compared ----------------------------------------------------------------------------------------------


def test_differences_of_rates_by_hand():
    rows = torch.tensor([[30.0, 20.0], [10.0, 20.0]])
    positive = torch.tensor([[3.0, 8.0], [9.0, 10.0]])
    found, known = differences(positive, rows, PARITY)
    torch.testing.assert_close(found, torch.tensor([[0, 18 / 40 - 12 / 40]]))
    assert known
    found, _ = differences(positive, rows, ODDS)
    torch.testing.assert_close(found, torch.tensor([[0, 0.5 - 0.9], [0, 0.4 - 0.1]]))
    nobody = rows * torch.tensor([1.0, 0.0])
    found, known = differences(positive, nobody, PARITY)
    assert not known
    assert not found.any()


def test_a_server_that_has_no_rows_knows_the_groups_from_the_schema(tmp_path):
    frame = pandas.DataFrame({"hired": ["yes", "no"] * 20, "age": range(40), "town": ["A", "B", "C", "D"] * 10})
    (tmp_path / "schema.json").write_text(TableSchema.of(frame, "hired", ["town"]).to_json())
    problem = Silo(schema=str(tmp_path / "schema.json"), sensitive=("town",), goals=("accuracy", "equal-opportunity"))
    known = setting_of(problem, range(3), seed=0, rounds=2)
    assert known.comparison == Comparison(groups=4, labels=(1,))
    assert FedFB().begin(known).weights.shape == (2, 4)


def batch_of(labels, groups, mask=None):
    columns = {"label": torch.tensor([labels]).double(), "sensitive": torch.tensor([groups]).double()}
    columns["features"] = torch.zeros(1, len(labels), 2).double()
    return Batch(columns, torch.ones_like(columns["label"]) if mask is None else torch.tensor([mask]).double())


def test_a_row_lies_in_one_cell_and_one_without_a_group_or_that_is_padding_in_none():
    batch = batch_of([0, 1, 1, 1, 0], [0, 1, 0, -1, 1], [1, 1, 1, 1, 0])
    here = cells(SMALL, batch)
    assert here[0].sum(-1).tolist() == [[1, 0], [1, 1]]
    assert here[0].sum((0, 1)).tolist() == [1, 1, 1, 0, 0]


# -- FairBatch -----------------------------------------------------------------------------------------------------


def shares(comparison=PARITY, rows=((10, 10), (10, 10)), shift=((0, 0), (0, 0))):
    rows = torch.tensor([rows]).double()
    nothing = torch.zeros_like(rows)
    return Shares(comparison, rows, torch.tensor([shift]).double(), nothing, nothing)


def seen(state, losses, alpha=0.1):
    """After an epoch in which the rows of each cell had these mean losses."""
    here = torch.eye(4).reshape(1, 2, 2, 4).double().repeat_interleave(10, dim=-1)
    state.see(torch.tensor([losses]).double().reshape(1, 4).repeat_interleave(10, dim=-1), here, alpha)
    return state


@pytest.mark.parametrize(
    ("comparison", "losses", "expected"),
    [
        # Positive rows of group 1 lack positive decisions most: they get more of their label's loss.
        (PARITY, [[1, 1], [0.1, 0.5]], [[0, 0], [-0.1, 0.1]]),
        # Negative rows of group 0 lack positive decisions most: they count less.
        (PARITY, [[3, 1], [0.1, 0.5]], [[-0.1, 0.1], [0, 0]]),
        # The losses of negative rows are as far apart as can be, but nobody compares them.
        (OPPORTUNITY, [[9, 0], [0.5, 0.1]], [[0, 0], [0.1, -0.1]]),
        (ODDS, [[9, 0], [0.5, 0.1]], [[0.1, -0.1], [0, 0]]),
        (PARITY, [[1, 1], [1, 1]], [[0, 0], [0, 0]]),
    ],
)
def test_a_step_of_fairbatch_by_hand(comparison, losses, expected):
    torch.testing.assert_close(seen(shares(comparison), losses).shift[0], torch.tensor(expected).double())


def test_fairbatch_adapts_after_an_epoch_and_not_before():
    state = shares(rows=((10, 10), (10, 11)))
    assert not seen(state, [[1, 1], [0.1, 0.5]]).shift.any()
    assert seen(state, [[1, 1], [0.1, 0.5]]).shift.any()
    assert not state.seen.any()


def test_the_shares_of_fairbatch_stay_on_the_simplex_and_rows_count_one_on_average():
    state = shares(rows=((12, 8), (10, 10)))
    for _ in range(12):
        seen(state, [[1, 1], [0.1, 0.5]])
    torch.testing.assert_close(state.natural + state.shift, torch.tensor([[[0.6, 0.4], [0, 1]]]).double())
    mean = (state.weights * state.rows).sum(-1) / state.rows.sum(-1)
    torch.testing.assert_close(mean, torch.ones(1, 2).double())


def test_a_cell_without_rows_gets_nothing():
    state = shares(rows=((10, 10), (10, 0)))
    state.see(
        torch.ones(1, 30).double(), torch.eye(4).reshape(1, 2, 2, 4)[..., :3].double().repeat_interleave(10, -1), 0.1
    )
    assert not state.shift[0, 1].any()
    assert state.weights.isfinite().all()


# -- FedFB ---------------------------------------------------------------------------------------------------------


def test_a_round_of_fedfb_by_hand():
    """M = (40, 60); rates as the losses have them: (2 + 20 − 5) / 40 and (12 + 30 − 3) / 60; α_1 = 0.3."""
    algorithm = FedFB(weight_lr=0.3)
    state = algorithm.begin(setting())
    trained = told(algorithm, state, {"model": [1.0], "mass": 30}, {"model": [5.0], "mass": 90})
    assert trained.round == 0
    assert trained.model.item() == 4
    measured = {"rows": [[20, 30], [20, 30]], "losses": [[2, 12], [5, 3]]}
    half = {name: torch.tensor(value) / 2 for name, value in measured.items()}
    after = told(algorithm, trained, half, half)
    gap = 39 / 60 - 17 / 40
    expected = [1 - 0.3 * gap * 100 / 40, 1 + 0.3 * gap * 100 / 60]
    assert after.round == 1
    torch.testing.assert_close(after.weights[0], torch.tensor(expected).double())
    torch.testing.assert_close(after.weights.sum(0), torch.full((2,), 2.0).double())
    again = told(algorithm, replace(after, measuring=True), half, half)
    torch.testing.assert_close((again.weights - after.weights) * math.sqrt(2), after.weights - 1)


def test_fedfb_for_equal_opportunity_moves_the_weights_of_positive_rows_only():
    algorithm = FedFB(weight_lr=0.1)
    state = replace(algorithm.begin(setting(comparison=OPPORTUNITY)), measuring=True)
    after = told(algorithm, state, {"rows": [[20, 30], [20, 30]], "losses": [[9, 1], [10, 3]]})
    assert after.weights[0].tolist() == [1, 1]
    assert after.weights[1, 0] > 1 > after.weights[1, 1]


def test_the_weights_of_fedfb_stay_in_their_bounds_and_a_group_keeps_its_weight():
    done = short(FedFB(weight_lr=50))
    for state in done.states:
        assert ((state.weights >= 0) & (state.weights <= 2)).all()
        torch.testing.assert_close(state.weights.sum(0), torch.full((2,), 2.0).double())
    assert done.states[-1].weights.amax() == 2


# -- FairFed -------------------------------------------------------------------------------------------------------


def test_a_round_of_fairfed_by_hand():
    """Local gaps 0.5 and 0.1; together (5 + 6) / 20 − (0 + 5) / 20 = 0.3, both 0.2 away; then one moves."""
    algorithm = FairFed(beta=0.5)
    state = algorithm.begin(setting(3))
    rows = [[5, 5], [5, 5]]
    first = {"model": [0.0], "size": 20, "rows": rows, "positive": [[0, 0], [5, 0]]}
    second = {"model": [1.0], "size": 20, "rows": rows, "positive": [[3, 2], [3, 3]]}
    even = told(algorithm, state, first, second)
    assert even.model.item() == pytest.approx(0.5)
    third = {"model": [3.0], "size": 40, "rows": rows, "positive": [[3, 3], [3, 3]]}
    delta = torch.tensor([abs(-0.5 + 0.2), abs(-0.1 + 0.2), abs(0 + 0.2)]).double()
    expected = torch.tensor([0.25, 0.25, 0.5]).double() - 0.5 * (delta - delta.mean())
    uneven = told(algorithm, state, first, second, third)
    torch.testing.assert_close(torch.tensor(uneven.weights).double(), expected)
    assert uneven.model.item() == pytest.approx(float(expected @ torch.tensor([0.0, 1.0, 3.0]).double()))
    assert told(algorithm, uneven, first, second, third).weights[0] < uneven.weights[0] < 0.25


def test_a_client_of_fairfed_that_lacks_a_group_is_judged_by_its_accuracy():
    algorithm = FairFed(beta=1)
    full = {"model": [0.0], "size": 20, "rows": [[5, 5], [5, 5]], "positive": [[0, 0], [5, 5]]}
    lacking = {"model": [1.0], "size": 20, "rows": [[10, 0], [10, 0]], "positive": [[10, 0], [10, 0]]}
    after = told(algorithm, algorithm.begin(setting()), full, lacking)
    gap, accuracy = abs(0 - (5 / 10 - 25 / 30)), abs(0.5 - 0.75)
    expected = 0.5 - (gap - (gap + accuracy) / 2)
    assert after.weights[0] == pytest.approx(expected)


def test_the_weights_of_fairfed_sum_to_one_after_every_round_however_large_the_budget():
    for beta in (1, 100):
        done = short(FairFed(beta=beta), participation=0.7)
        for state in done.states[1:]:
            assert sum(state.weights) == pytest.approx(1)
            assert min(state.weights) >= 0


# -- AgnosticFair --------------------------------------------------------------------------------------------------


def test_a_round_of_agnosticfair_by_hand():
    algorithm = AgnosticFair(weight_lr=0.1)
    state = algorithm.begin(setting(3))
    after = told(
        algorithm, state, *({"model": [value], "loss": loss} for value, loss in ((1, 0.5), (2, 2.0), (6, 0.5)))
    )
    assert after.model.item() == pytest.approx(3)
    assert after.weights == pytest.approx((1 / 3 - 0.05, 1 / 3 + 0.1, 1 / 3 - 0.05))
    assert told(
        algorithm, after, *({"model": [value], "loss": 0} for value in (1, 0, 0))
    ).model.item() == pytest.approx(after.weights[0])


def test_the_weight_of_the_client_with_the_largest_loss_rises_to_one_and_the_sum_stays_one():
    algorithm = AgnosticFair(weight_lr=0.3)
    state = algorithm.begin(setting(3))
    before = state.weights[2]
    for _ in range(6):
        state = told(algorithm, state, *({"model": [0], "loss": loss} for loss in (0.1, 0.2, 0.9)))
        assert sum(state.weights) == pytest.approx(1)
        assert state.weights[2] > before or state.weights[2] == 1
        before = state.weights[2]
    assert state.weights == (0, 0, 1)


def test_the_covariance_of_group_and_score_is_that_of_the_textbook():
    @dataclass(frozen=True)
    class Scored(Synthetic):
        def logits(self, parameters, batch):
            return batch.columns["score"]

    batch = batch_of([0, 1, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 0])
    batch.columns["score"] = torch.tensor([[1.0, 2.0, 4.0, 0.0, 99.0]]).double()
    known = torch.tensor([[0.0, 1, 1, 0], [1, 2, 4, 0]]).double()
    expected = torch.cov(known, correction=0)[0, 1] ** 2
    torch.testing.assert_close(squared_covariance(Scored(), {}, batch), expected[None])
    among_positive = squared_covariance(Scored(fairness="equal-opportunity"), {}, batch)
    assert among_positive.item() == 0  # All positive rows are of one group.


# -- LFT+Ensemble --------------------------------------------------------------------------------------------------


def test_the_ensemble_is_the_mean_of_the_clients_probabilities():
    done = short(LFTEnsemble())
    models = done.models
    assert all(torch.equal(models[0], models[client]) for client in models)
    own = torch.stack([done.engine.private[0, 0, client]["model"] for client in range(3)])
    torch.testing.assert_close(models[0], own)
    outcome = done.engine.run([], done.engine.algorithm.solutions(done.states[-1]))
    for client in range(3):
        rows = federation().splits["test"].of_client(client)
        inputs = rows["features"].double().expand(3, -1, -1)
        logits = SMALL.model(SMALL.layout.unflatten(own), inputs).squeeze(-1)
        decisions = logits.sigmoid().mean(0) > 0.5
        accuracy = (decisions == (rows["label"] > 0)).double().mean()
        assert outcome.evaluations.sent[client][1, 0] == pytest.approx(float(accuracy))


def test_nothing_is_sent_before_the_last_round_of_an_ensemble():
    done = short(LFTEnsemble())
    assert [list(outcome.replies.tensors) for outcome in done.outcomes] == [[], [], ["model"]]
    assert [len(outcome.replies) for outcome in done.outcomes] == [3, 3, 3]


def test_a_fine_tuned_ensemble_is_every_client_alone():
    tuned = short(make_algorithm("lft-ensemble+ft", {}))
    assert largest_difference(tuned.models, {c: tuned.engine.private[0, 0, c]["model"] for c in range(3)}) == 0
    assert largest_difference({0: tuned.models[0]}, {0: short(LFTEnsemble()).models[0][0]}) <= 1e-12


def test_an_ensemble_goes_through_a_run_and_its_folder(tmp_path):
    result = fedpareto.run(SMALL, LFTEnsemble(), clients=3, rounds=2, learner={"epochs": 1}, out=tmp_path / "run")
    assert result.models[0][0].shape == (3, SMALL.layout.size)
    assert result.solutions[0].points.shape == (3, 2)
    assert (tmp_path / "run" / "models.safetensors").exists()


# -- what they are for ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [
        LFTFedAvg(weight_lr=0.05),
        LFTEnsemble(weight_lr=0.05),
        FairFed(weight_lr=0.05),
        FedFB(weight_lr=1),
        AgnosticFair(),
    ],
    ids=lambda algorithm: algorithm.name,
)
def test_the_gap_on_synthetic_is_smaller_than_that_of_fedavg(algorithm):
    assert gap_of(algorithm) < 0.9 * gap_of(FedAvg())


@functools.cache
def gap_of(method):
    done = trial(method, SMALL, federation=federation(), learner=replace(SHORT, epochs=5), rounds=6)
    sent = done.engine.run([], method.solutions(done.states[-1])).evaluations.sent
    return 1 - float(torch.stack(list(sent.values()))[:, 1, 1].mean())


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lft-fedavg", "lft-ensemble", "agnosticfair", "fairfed", "fedfb", "fedfb+ft"])
def test_a_problem_without_groups_is_refused_in_one_line(name):
    with pytest.raises(UserError, match=f"^{name.removesuffix('+ft')} needs a problem that compares groups of people"):
        fedpareto.run(Convex(), name, clients=3, rounds=1)


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (LFTFedAvg, {"weight_lr": -1}),
        (LFTFedAvg, {"weight_lr": 1.5}),
        (LFTEnsemble, {"weight_lr": -1}),
        (FairFed, {"beta": -1}),
        (FairFed, {"weight_lr": 2}),
        (FedFB, {"weight_lr": -0.1}),
        (FedFB, {"weight_lr": math.inf}),
        (AgnosticFair, {"penalty": -1}),
        (AgnosticFair, {"weight_lr": math.nan}),
    ],
)
def test_a_bad_hyper_parameter_is_named(cls, wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        cls(**wrong)


def test_losses_against_a_positive_decision_are_what_fairbatch_sees_for_parity():
    """Its private state after less than an epoch: sums of −log p over the rows seen, whatever their label."""
    problem = replace(SMALL, partition="iid")
    learner = Supervised(lr=1e-12, batch_size=64, steps=1)
    alone = Federation.create(problem, 1, 0, "1,0")
    done = trial(LFTFedAvg(), problem, federation=alone, learner=learner, rounds=1)
    kept = done.engine.private[0, 0, 0]
    assert kept["seen"].sum() == 64
    logits = problem.model(
        problem.layout.unflatten(done.models[0][None]), alone.splits["train"].columns["features"].double()[None]
    )
    least, most = softplus(-logits).min(), softplus(-logits).max()
    assert 64 * least <= kept["losses"].sum() <= 64 * most
