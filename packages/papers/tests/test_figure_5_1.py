"""Figure 5.1: the verdict on points that were made up, and the whole way on few images."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto_papers import catalogue
from fedpareto_papers.thesis import figure_5_1
from fedpareto_papers.thesis.figure_5_1 import Plan, as_json, draw, reproduce, result_of, side_of

OPPOSED = [[[0.0, 1.0], [1.0, 0.0]], [[0.5, 0.5], [0.5, 0.5]]]
ALONE = [[(0.1, 0.8), (0.8, 0.1)], [(0.7, 0.7), (0.6, 0.6)]]
"""By configuration and client; the front is all but the last."""


def side(title, means, noise=0.0):
    """A half with two runs that lie `noise` about these means."""
    values = np.array(means)
    return side_of(title, OPPOSED, np.stack([values - noise, values + noise], axis=1))


def judged(alone, together):
    return result_of(side("non-federated", alone), side("federated", together)).verdict


# -- the verdict ---------------------------------------------------------------------------------------------------


def test_the_claim_holds_if_every_point_of_the_front_is_dominated():
    verdict = judged(ALONE, [[(0.85, 0.85), (0.86, 0.84)], [(0.9, 0.9), (0.9, 0.9)]])
    assert (verdict.verdict, verdict.holds) == ("holds", True)
    assert (verdict.dominated, verdict.of, verdict.dominated_share) == (3, 3, 1.0)
    assert (verdict.reverse, verdict.reverse_of) == (0, 1)
    assert (verdict.same_configuration, verdict.configurations) == (2, 2)
    assert verdict.hypervolume_difference == pytest.approx(0.81 - (0.1 * 0.8 + 0.6 * 0.7 + 0.1 * 0.1))


def test_one_configuration_may_carry_the_claim_for_all_and_that_is_told_apart():
    verdict = judged(ALONE, [[(0.5, 0.5), (0.5, 0.5)], [(0.9, 0.9), (0.9, 0.9)]])
    assert verdict.holds
    assert verdict.same_configuration == 1


def test_the_claim_holds_in_part_if_a_specialist_stays_ahead():
    verdict = judged(ALONE, [[(0.75, 0.75), (0.75, 0.75)], [(0.78, 0.85), (0.78, 0.85)]])
    assert (verdict.verdict, verdict.holds) == ("holds in part", False)
    assert (verdict.dominated, verdict.of) == (2, 3)
    assert verdict.dominated_share == pytest.approx(2 / 3)


def test_the_claim_does_not_hold_if_no_point_is_dominated():
    verdict = judged(ALONE, [[(0.5, 0.5), (0.5, 0.5)], [(0.6, 0.5), (0.5, 0.6)]])
    assert (verdict.verdict, verdict.holds) == ("does not hold", False)
    assert (verdict.dominated, verdict.reverse, verdict.reverse_of) == (0, 2, 2)
    assert verdict.same_configuration == 0
    assert verdict.hypervolume_difference < 0


def test_equal_points_do_not_dominate_each_other():
    verdict = judged(ALONE, ALONE)
    assert (verdict.verdict, verdict.reverse, verdict.hypervolume_difference) == ("does not hold", 0, 0.0)


def test_a_half_knows_means_deviations_front_and_extent():
    found = side("non-federated", ALONE, noise=0.02)
    assert [(point.configuration, point.client) for point in found.points] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found.points[1].preference == [1.0, 0.0]
    assert np.allclose(found.points[1].runs, [(0.78, 0.08), (0.82, 0.12)])
    assert found.points[1].mean == pytest.approx([0.8, 0.1])
    assert found.points[1].deviation == pytest.approx([0.02, 0.02])
    assert np.allclose(found.front, [(0.1, 0.8), (0.7, 0.7), (0.8, 0.1)])
    assert found.extent == pytest.approx([0.7, 0.7])
    assert found.hypervolume == pytest.approx(0.1 * 0.8 + 0.6 * 0.7 + 0.1 * 0.1)
    assert found.hypervolumes[0] < found.hypervolume < found.hypervolumes[1]


# -- the plan ------------------------------------------------------------------------------------------------------


def test_the_plan_is_that_of_the_appendix():
    plan = Plan.make()
    assert (len(plan.preferences), plan.repetitions) == (10, 5)
    assert plan.preferences[:2] == [[[0.0, 1.0], [1.0, 0.0]], [[0.1, 0.9], [0.9, 0.1]]]
    specs = [figure_5_1.spec(plan, name, plan.preferences[1]).to_mapping() for name in ("local", "fedavg")]
    assert specs[0]["problem"]["name"] == "multi-mnist"
    assert specs[0]["clients"] == 2
    assert specs[0]["seeds"] == [0, 1, 2, 3, 4]
    assert specs[0]["preferences"] == [[0.1, 0.9], [0.9, 0.1]]
    different = [key for key in specs[0] if specs[0][key] != specs[1][key]]
    assert different == ["algorithm"], "the two sides have the same hyper-parameters"


def test_a_quick_plan_is_smaller_and_every_size_can_be_chosen():
    quick, full = Plan.make(quick=True), Plan.make()
    for size in ("configurations", "repetitions", "rounds", "samples", "test_samples"):
        assert getattr(quick, size) < getattr(full, size)
        assert getattr(Plan.make(quick=True, **{size: 7}), size) == 7
        with pytest.raises(UserError, match=f"{size} is 0; at least 1 is needed"):
            Plan.make(**{size: 0})


# -- the whole way -------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(published, monkeypatch):
    published("mnist")
    monkeypatch.setattr(figure_5_1, "STEPS", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # So that the engine does not measure threads.
    return Plan.make(quick=True, configurations=2, repetitions=2, rounds=1, samples=60, test_samples=20)


def test_it_runs_is_read_again_and_goes_on_where_it_stopped(tiny, tmp_path):
    steps = []

    def stop_in_the_third():
        return len(steps) == 2

    longer = Plan.make(quick=True, configurations=2, repetitions=2, rounds=2, samples=60, test_samples=20)
    with pytest.raises(Stopped):
        reproduce(longer, tmp_path, steps.append, stop_in_the_third)
    assert [step.trained for step in steps] == [True, True]
    first = reproduce(longer, tmp_path, steps.append)
    assert [step.trained for step in steps[2:]] == [False, False, True, True]
    assert [(step.number, step.total) for step in steps[2:]] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert steps[0].name == "non-federated/weights-0.00-1.00"
    assert (tmp_path / "thesis-fig-5.1" / "federated" / "weights-0.50-0.50" / "models.safetensors").exists()
    again = reproduce(longer, tmp_path)
    assert again == first
    assert len(first.federated.points) == len(first.non_federated.points) == 4
    assert np.shape(first.federated.points[0].runs) == (2, 2)
    with pytest.raises(UserError, match=r"holds a run with rounds=\d+, not \d+; choose another --out"):
        reproduce(tiny, tmp_path)


def test_the_record_is_plain_json_and_the_figure_a_picture(tmp_path):
    result = result_of(side("non-federated", ALONE, 0.02), side("federated", ALONE, 0.01))
    text = json.dumps(as_json(Plan.make(), result), allow_nan=False)
    found = json.loads(text)
    assert found["figure"] == "thesis-fig-5.1"
    assert found["verdict"]["verdict"] == "does not hold"
    assert found["non_federated"]["points"][1]["preference"] == [1.0, 0.0]
    assert {"rounds", "samples", "lr", "network", "quick"} <= set(found)
    for name, start in (("f.png", b"\x89PNG"), ("f.pdf", b"%PDF"), ("f.svg", b"<?xml")):
        draw(result, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(UserError, match=r"f\.gif: a figure is a \.png, \.pdf or \.svg file"):
        draw(result, tmp_path / "f.gif")


def test_both_panels_have_the_same_limits():
    from fedpareto_papers.figures.panels import Panel, beside_each_other

    points = np.array([(0.1, 0.8), (0.8, 0.1)])
    figure = beside_each_other(
        [Panel("a", points, points, points), Panel("b", points / 2, points / 2, points / 2)], "x", "y"
    )
    first, second = figure.axes
    assert (first.get_xlim(), first.get_ylim()) == (second.get_xlim(), second.get_ylim())


def test_a_client_without_a_finite_accuracy_is_no_result(monkeypatch, tmp_path):
    class Broken:
        def points(self):
            return [np.array([(0.5, np.nan), (0.5, 0.5)])]

    monkeypatch.setattr("fedpareto.record.reading.load", lambda folder: Broken())
    with pytest.raises(UserError, match="a client has no finite accuracy"):
        figure_5_1.accuracies(tmp_path)


def test_settings_of_the_user_reach_every_run():
    figure = catalogue.prepare(figure_5_1.NAME, catalogue.Options(quick=True, settings=("learner.lr=0.5",)))
    assert figure_5_1.spec(figure.plan, "local", [[1, 0], [0, 1]]).learner.lr == 0.5
    assert "learner.lr=0.5" in figure.headline
