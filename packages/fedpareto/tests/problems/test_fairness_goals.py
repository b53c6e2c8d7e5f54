from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UserError
from fedpareto.problems.fairness.gaps import (
    CONDITIONS,
    STEEPNESS,
    covariance,
    gap,
    hard_decisions,
    relaxed_gap,
)
from fedpareto.problems.fairness.goals import Criteria, Goal, parse
from fedpareto.problems.synthetic import Synthetic
from fedpareto.tensors.rows import Batch

RELAXATIONS = get_args(get_type_hints(Synthetic)["relaxation"])
TANH = tuple(name for name in RELAXATIONS if name.startswith("tanh"))


def of_fairlearn(notion, label, decisions, groups):
    """What fairlearn measures; it is imported here because that takes seconds."""
    from fairlearn import metrics

    measures = {
        "demographic-parity": metrics.demographic_parity_difference,
        "equal-opportunity": metrics.equal_opportunity_difference,
        "equalised-odds": metrics.equalized_odds_difference,
    }
    return measures[notion](label, decisions, sensitive_features=groups)


def stack(label, sensitive, mask=None):
    """A batch of one client."""
    columns = {"label": torch.as_tensor(label)[None].double(), "sensitive": torch.as_tensor(sensitive)[None].double()}
    return Batch(columns, torch.ones_like(columns["label"]) if mask is None else torch.as_tensor(mask)[None].double())


def people(seed, rows=80, groups=2):
    """Random logits, labels and groups."""
    stream = np.random.default_rng(seed)
    return stream.normal(size=rows), stream.integers(0, 2, rows), stream.integers(0, groups, rows)


# -- metrics -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 3, 5])
@pytest.mark.parametrize("notion", CONDITIONS)
def test_metrics_equal_fairlearn_on_random_predictions(notion, groups):
    for seed in range(5):
        logits, label, sensitive = people(seed, groups=groups)
        decisions = hard_decisions(torch.as_tensor(logits)[None])
        size, known = gap(notion, decisions, stack(label, sensitive), groups=groups)
        assert size.item() == pytest.approx(of_fairlearn(notion, label, logits > 0, sensitive))
        assert known.item()


@pytest.mark.parametrize("notion", CONDITIONS)
def test_metrics_equal_fairlearn_when_some_of_several_groups_are_empty(notion):
    for seed in range(4):
        logits, label, sensitive = people(seed, groups=4)
        sensitive[sensitive == 1] = 3
        decisions = hard_decisions(torch.as_tensor(logits)[None])
        size, known = gap(notion, decisions, stack(label, sensitive), groups=4)
        assert size.item() == pytest.approx(of_fairlearn(notion, label, logits > 0, sensitive))
        assert known.item()


@pytest.mark.parametrize("notion", CONDITIONS)
@pytest.mark.parametrize("groups", [2, 3])
def test_where_only_one_group_is_left_fairlearn_says_fair_and_we_say_unknown(notion, groups):
    logits, label, sensitive = people(0)
    sensitive[:] = 1
    decisions = hard_decisions(torch.as_tensor(logits)[None])
    batch = stack(label, sensitive)
    assert of_fairlearn(notion, label, logits > 0, sensitive) == 0
    size, known = gap(notion, decisions, batch, groups=groups)
    assert (size.item(), known.item()) == (0, False)
    criteria = Criteria((Goal("accuracy"), Goal(notion)), {"": groups})
    assert criteria.values(torch.as_tensor(logits)[None], batch)[0, 1] == 0
    assert criteria.known(batch).tolist() == [[True, False]]


def test_a_group_without_positive_rows_has_no_true_positive_rate():
    """fairlearn takes it for 0, which would be a gap between a known rate and none."""
    decisions = torch.tensor([[1.0, 1, 0, 1]]).double()
    batch = stack([1, 1, 0, 0], [0, 0, 1, 1])
    assert not gap("equal-opportunity", decisions, batch).known.item()
    assert not gap("equalised-odds", decisions, batch).known.item()
    assert gap("demographic-parity", decisions, batch) == (torch.tensor([0.5]).double(), torch.tensor([True]))


def test_rows_of_unknown_group_and_padding_do_not_count():
    logits, label, sensitive = people(3)
    decisions = hard_decisions(torch.as_tensor(logits)[None])
    hidden = np.arange(80) >= 50
    unknown = gap("equalised-odds", decisions, stack(label, np.where(hidden, -1, sensitive)))
    padded = gap("equalised-odds", decisions, stack(label, sensitive, ~hidden))
    expected = of_fairlearn("equalised-odds", label[:50], logits[:50] > 0, sensitive[:50])
    assert unknown.size.item() == padded.size.item() == pytest.approx(expected)


# -- relaxations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("notion", CONDITIONS)
@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_relaxations_pass_gradcheck(relaxation, notion, groups):
    logits, label, sensitive = people(1, rows=24, groups=groups)
    batch = stack(label, sensitive)

    def loss(z):
        return relaxed_gap(relaxation, notion, z, batch, groups=groups)

    z = torch.as_tensor(logits)[None].requires_grad_()
    assert torch.autograd.gradcheck(loss, (z,))
    assert torch.autograd.grad(loss(z).sum(), z)[0].abs().max() > 0


@pytest.mark.parametrize("groups", [2, 3])
@pytest.mark.parametrize("notion", CONDITIONS)
@pytest.mark.parametrize("relaxation", TANH)
def test_slopes_that_are_written_out_are_those_of_autograd(relaxation, notion, groups):
    clients = [people(seed, rows=24, groups=groups) for seed in range(4)]
    logits, label, sensitive = (torch.as_tensor(np.stack(part)).double() for part in zip(*clients, strict=True))
    mask = torch.ones_like(label)
    mask[1, 20:], mask[2, 1:], mask[3] = 0, 0, 0  # Padding, a single row, and none.
    batch = Batch({"label": label, "sensitive": sensitive}, mask)
    criteria = Criteria((Goal("accuracy"), Goal(notion)), {"": groups}, relaxation)
    weights, z = torch.rand(4, 2, dtype=torch.float64), logits.requires_grad_()
    (expected,) = torch.autograd.grad((weights * criteria.losses(z, batch)).sum(), z)
    torch.testing.assert_close(criteria.slopes(z.detach(), batch, weights), expected, rtol=1e-12, atol=1e-14)
    assert expected[0].abs().max() > 0


@pytest.mark.parametrize("notion", CONDITIONS)
@pytest.mark.parametrize(("relaxation", "share"), [("tanh", 1), ("tanh-masked", 1), ("tanh-halved", 0.5)])
def test_as_c_grows_the_relaxation_tends_to_the_metric_and_eq_5_5_as_printed_to_half_of_it(relaxation, share, notion):
    for seed in range(5):
        logits, label, sensitive = people(seed)
        z, batch = torch.as_tensor(logits)[None], stack(label, sensitive)
        metric = gap(notion, hard_decisions(z), batch).size.item()
        away = [
            abs(relaxed_gap(relaxation, notion, z, batch, steepness=c).item() - share * metric) for c in (10, 100, 1e5)
        ]
        assert away[2] < 1e-6
        assert away[2] <= away[1] + 1e-12


def test_the_printed_relaxation_is_half_the_unhalved_one():
    logits, label, sensitive = people(2)
    z, batch = torch.as_tensor(logits)[None], stack(label, sensitive)
    for notion in CONDITIONS:
        whole, half = (relaxed_gap(name, notion, z, batch).item() for name in ("tanh", "tanh-halved"))
        assert half == pytest.approx(whole / 2)


def test_the_steepness_is_that_of_padh_et_al_unless_given():
    assert STEEPNESS["demographic-parity"] == 1.5
    assert STEEPNESS["equal-opportunity"] == 2.5
    logits, label, sensitive = people(2)
    z, batch = torch.as_tensor(logits)[None], stack(label, sensitive)
    own, given = (relaxed_gap("tanh", "equal-opportunity", z, batch, steepness=c).item() for c in (0, 2.5))
    assert own == given


def test_the_covariance_term_by_hand():
    """PraFFL: the mean over the rows of the square of (s − mean s)(logit − mean logit)."""
    logits, label, sensitive = people(5)
    products = (sensitive - sensitive.mean()) * (logits - logits.mean())
    z = torch.as_tensor(logits)[None]
    got = covariance("demographic-parity", z, stack(label, sensitive)).item()
    assert got == pytest.approx((products**2).mean())
    positive = label == 1
    products = (sensitive[positive] - sensitive[positive].mean()) * (logits[positive] - logits[positive].mean())
    got = covariance("equal-opportunity", z, stack(label, sensitive)).item()
    assert got == pytest.approx((products**2).mean())


@pytest.mark.parametrize("notion", CONDITIONS)
@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_a_batch_without_one_of_the_groups_or_without_rows_teaches_nothing(relaxation, notion):
    logits, label, sensitive = people(4, rows=10)
    for batch in (stack(label, sensitive * 0), stack(label, sensitive, np.zeros(10))):
        z = torch.as_tensor(logits)[None].requires_grad_()
        loss = relaxed_gap(relaxation, notion, z, batch)
        (gradient,) = torch.autograd.grad(loss.sum(), z)
        assert loss.item() == 0
        assert gradient.abs().max() == 0


def test_without_a_group_a_fairness_loss_is_its_regularisation():
    logits, label, sensitive = people(4, rows=10)
    criteria = Criteria((Goal("accuracy"), Goal("demographic-parity")))
    accuracy, fairness = criteria.losses(torch.as_tensor(logits)[None], stack(label, sensitive * 0))[0]
    assert fairness.item() == pytest.approx(0.1 * accuracy.item())


# -- names ---------------------------------------------------------------------------------------------------------


def test_a_notion_without_an_attribute_is_meant_for_all_of_them():
    names = [goal.name for goal in parse(["accuracy", "demographic-parity", "equal-opportunity:race"], ["sex", "race"])]
    assert names == ["accuracy", "demographic-parity:sex", "demographic-parity:race", "equal-opportunity:race"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["accuracy", "equal-opportunities"], "unknown goal 'equal-opportunities'; did you mean 'equal-opportunity'"),
        (["accuracy"], "goals are accuracy; there must be 2 to 6"),
        ([], "goals are none; there must be 2 to 6"),
        (["accuracy", "accuracy"], "goals: 'accuracy' is listed twice"),
        (["accuracy:sex", "equal-opportunity"], "accuracy has no attribute"),
        (["accuracy", *(f"{notion}:{a}" for notion in CONDITIONS for a in "ab")], "there must be 2 to 6"),
    ],
)
def test_goals_that_make_no_sense_are_named(names, message):
    with pytest.raises(UserError, match=message):
        parse(names, ["sex"])
