"""Figure 5.1: the verdict on points that were made up, and the whole way on few images."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto_papers import catalogue
from fedpareto_papers.figures import save
from fedpareto_papers.study import Run
from fedpareto_papers.thesis import figure_5_1
from fedpareto_papers.thesis.figure_5_1 import NAME, Figure51, Size, picture, result_of, side_of

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
    assert verdict.verdict == "holds"
    assert (verdict.dominated, verdict.of, verdict.dominated_share) == (3, 3, 1.0)
    assert (verdict.reverse, verdict.reverse_of) == (0, 1)
    assert (verdict.same_configuration, verdict.configurations) == (2, 2)
    assert verdict.hypervolume_difference == pytest.approx(0.81 - (0.1 * 0.8 + 0.6 * 0.7 + 0.1 * 0.1))


def test_one_configuration_may_carry_the_claim_for_all_and_that_is_told_apart():
    verdict = judged(ALONE, [[(0.5, 0.5), (0.5, 0.5)], [(0.9, 0.9), (0.9, 0.9)]])
    assert verdict.verdict == "holds"
    assert verdict.same_configuration == 1


def test_the_claim_holds_in_part_if_a_specialist_stays_ahead():
    verdict = judged(ALONE, [[(0.75, 0.75), (0.75, 0.75)], [(0.78, 0.85), (0.78, 0.85)]])
    assert verdict.verdict == "holds in part"
    assert (verdict.dominated, verdict.of) == (2, 3)
    assert verdict.dominated_share == pytest.approx(2 / 3)


def test_the_claim_does_not_hold_if_no_point_is_dominated():
    verdict = judged(ALONE, [[(0.5, 0.5), (0.5, 0.5)], [(0.6, 0.5), (0.5, 0.6)]])
    assert verdict.verdict == "does not hold"
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


def prepared(**options):
    return catalogue.prepare(NAME, catalogue.Options(**options))


def test_the_plan_is_that_of_the_appendix():
    figure = prepared()
    weights = figure.sizes.preferences
    assert (len(weights), len(figure.cells()), figure.options.seeds) == (10, 20, 5)
    assert weights[:2] == [[[0.0, 1.0], [1.0, 0.0]], [[0.1, 0.9], [0.9, 0.1]]]
    specs = [figure.cell(title, weights[1]).spec().to_mapping() for title in ("non-federated", "federated")]
    assert specs[0]["problem"]["name"] == "multi-mnist"
    assert specs[0]["clients"] == 2
    assert specs[0]["seeds"] == [0, 1, 2, 3, 4]
    assert specs[0]["preferences"] == [[0.1, 0.9], [0.9, 0.1]]
    different = [key for key in specs[0] if specs[0][key] != specs[1][key]]
    assert different == ["algorithm"], "the two sides have the same hyper-parameters"


def test_a_quick_plan_is_smaller_and_seeds_and_rounds_can_be_chosen():
    quick, full = prepared(quick=True), prepared()
    for size in ("configurations", "samples", "test_samples"):
        assert getattr(quick.sizes, size) < getattr(full.sizes, size)
    for size in ("seeds", "rounds"):
        assert getattr(quick.options, size) < getattr(full.options, size)
        assert getattr(prepared(quick=True, **{size: 7}).options, size) == 7


# -- the whole way -------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny(published, monkeypatch):
    published("mnist")
    monkeypatch.setattr(figure_5_1, "STEPS", 2)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # So that the engine does not measure threads.
    return lambda rounds: Figure51(NAME, catalogue.Options(quick=True, seeds=2, rounds=rounds), Size(2, 60, 20))


def test_it_runs_is_read_again_and_goes_on_where_it_stopped(tiny, tmp_path):
    said = []
    with pytest.raises(Stopped):
        tiny(2).run(tmp_path, said.append, lambda: len(said) == 2)
    assert len(said) == 2
    assert said[0].startswith("1 of 4, non-federated/weights-0.00-1.00 (")
    first = tiny(2).run(tmp_path, said.append, lambda: False)
    assert ["already done" in line for line in said[2:]] == [True, True, False, False]
    assert (tmp_path / "thesis-fig-5.1" / "federated" / "weights-0.50-0.50" / "models.safetensors").exists()
    again = tiny(2).run(tmp_path, said.append, lambda: False)
    assert again.record == first.record
    for half in ("federated", "non_federated"):
        assert len(first.record[half]["points"]) == 4
    assert np.shape(first.record["federated"]["points"][0]["runs"]) == (2, 2)
    with pytest.raises(UserError, match=r"holds a run with rounds=\d+, not \d+; choose another --out"):
        tiny(1).run(tmp_path, said.append, lambda: False)


def test_the_record_is_plain_json_and_the_figure_a_picture(tmp_path):
    result = result_of(side("non-federated", ALONE, 0.02), side("federated", ALONE, 0.01))
    found = json.loads(json.dumps(prepared().as_json(result), allow_nan=False))
    assert found["figure"] == "thesis-fig-5.1"
    assert found["verdict"]["verdict"] == "does not hold"
    assert found["non_federated"]["points"][1]["preference"] == [1.0, 0.0]
    assert {"rounds", "samples", "lr", "network", "quick"} <= set(found)
    png, pdf = save(tmp_path, "figure", picture(result))
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


def test_both_panels_have_the_same_limits():
    from fedpareto_papers.figures import Panel
    from fedpareto_papers.figures.drawing import beside_each_other

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
        figure_5_1.read(Run(tmp_path, None))


def test_settings_of_the_user_reach_every_run():
    figure = prepared(quick=True, settings=("learner.lr=0.5",))
    assert figure.cells()[0].spec(figure.settings).learner.lr == 0.5
    assert "learner.lr=0.5" in figure.headline
