"""Studies of our own: a winner is named only where seeds support it, and each study runs, resumes and is judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.problems.synthetic import Synthetic
from fedpareto.spec.draft import Draft
from fedpareto_papers import catalogue
from fedpareto_papers.studies import figure_5_1_control as control
from fedpareto_papers.studies import heterogeneity, low_quality, mofld_together, public_preferences
from fedpareto_papers.studies.study import Study, best, contrast, sorted_out

NAMES = [name for name in catalogue.CATALOGUE if name.startswith("study-")]


def prepared(name: str, **options) -> Study:
    return catalogue.prepare(name, catalogue.Options(**options))


def test_a_winner_needs_paired_differences_that_exclude_zero():
    shifts = np.array([0.3, -0.2, 0.1, 0.0])  # Of seeds: far larger than what tells the ways apart.
    ahead = {"a": 0.5 + shifts, "b": 0.4 + shifts + [0.01, 0, 0, -0.01]}
    assert best(ahead) == "a"
    assert best(ahead | {"c": 0.5 + shifts[::-1]}) is None
    assert contrast("a less b", ahead["a"], ahead["b"]).sign == 1
    assert contrast("b less a", ahead["b"], ahead["a"]).sign == -1
    assert "no difference shown" in str(contrast("a less a", ahead["a"], shifts[::-1] + 0.5))
    alone = contrast("one seed", [1.0], [0.0])
    assert alone.sign == 0
    assert "cannot be judged" in str(alone)
    assert sorted_out({"x": alone}) == "not shown for x"


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_is_a_spec_with_a_folder_of_its_own(name):
    study = prepared(name, quick=True)
    assert len({cell.name for cell in study.runs}) == len(study.runs)
    assert all(Draft(dict(cell.draft)).finish().rounds == cell.draft["rounds"] for cell in study.runs)
    assert "QUICK VERSION" in study.headline
    whole = prepared(name).runs
    assert len(whole) > len(study.runs)
    for draft in {str(cell.draft["problem"]): cell.draft for cell in whole}.values():
        Draft(dict(draft)).finish()


@pytest.mark.takes_long
def test_a_study_runs_resumes_and_says_what_it_found(tmp_path):
    study = prepared("study-heterogeneity", quick=True, algorithms=("fedavg",), settings=("problem.rows=6",))
    said = []
    first = study.run(tmp_path, said.append, lambda: False)
    assert len(said) == len(study.runs) == 8  # Alone and by FedAvg, rows alike and apart, two α.
    again = study.run(tmp_path, said.append, lambda: False)
    assert again.record == first.record
    assert all("already done" in line for line in said[8:])
    assert {path.suffix for path in first.files} == {".json", ".png", ".pdf"}
    assert all(path.stat().st_size for path in first.files)
    assert len(first.record["contrasts"]) == 4
    assert any("too little to judge" in line for line in first.shown if isinstance(line, str))


def test_what_heterogeneity_costs_is_judged_against_training_alone():
    ways, alphas = ["good", "bad"], [0.1, 10.0]
    noise = np.array([0.001, -0.001, 0.0])
    found = {}
    for data in (heterogeneity.ALIKE, heterogeneity.APART):
        for alpha in alphas:
            alone = math.log10(alpha)  # What preferences do to everyone says nothing about federation.
            gains = {"local": 0.0, "good": 0.5, "bad": 0.2 if alpha == 10 else -0.2}
            for way, gain in gains.items():
                values = (alone + gain * (1 + noise)).tolist()
                found[heterogeneity._name("convex", data, alpha, way)] = {"last": values, "over rounds": values}
    judged = heterogeneity.judge(["convex"], alphas, ways, found)
    assert "With unequal preferences: less for bad; not shown for good." in judged.verdict
    assert "With unequal rows: not shown for good, bad." in judged.verdict
    assert "of 4 settings: good in 4." in judged.verdict


def test_auc_is_one_half_for_equal_scores_and_one_for_a_score_that_knows():
    who = np.array([True, True, False, False, False])
    assert low_quality.auc(np.ones(5), who) == 0.5
    assert low_quality.auc(np.array([0, 1, 2, 3, 4.0]), who) == 1.0
    assert low_quality.auc(np.array([4, 3, 2, 1, 0.0]), who) == 0.0


def test_low_quality_is_judged_against_the_same_clients_while_they_are_honest():
    kinds = [(low_quality.LABELS, 0.0), (low_quality.LABELS, 0.5)]
    found = {}
    for kind, strength in kinds:
        for run in set(low_quality.SEEN.values()):
            values = [0.5, 0.52, 0.48] if strength == 0 else [0.01, 0.0, 0.02]
            named = {score: values for score, where in low_quality.SEEN.items() if where == run}
            found[low_quality._name("synthetic", kind, strength, run)] = named
    judged = low_quality.judge(["synthetic"], kinds, found)
    assert [one.sign for one in judged.contrasts] == [-1, -1, -1]
    assert "less for λ of FedMGDA+, α of FedFew, FedPref's similarity" in judged.verdict


def test_the_control_tells_images_from_preferences():
    values = dict(zip(control.WAYS, (0.8, 0.9, 0.95, 0.9, 0.9), strict=True))
    noise = np.array([0.001, 0.0, -0.001])
    found = {
        control._name("digit-pairs", way, first, part): {"own": (value + noise * index).tolist()}
        for index, (way, value) in enumerate(values.items())
        for first in (0.0, 0.5)
        for part in range(2)
    }
    judged = control.judge(["digit-pairs"], (0.0, 0.5), control.WAYS, found)
    assert judged.verdict.startswith(
        "On digit-pairs: federated clients have more than alone; no difference is shown to training alone with twice "
        "the images; less than with twice the steps too; opposed preferences are not shown to matter"
    )
    assert "nothing" in control.judge(["digit-pairs"], (0.0,), (control.ALONE,), found).verdict


def test_shared_federations_and_public_preferences_are_judged_by_paired_differences():
    ways = list(mofld_together.WAYS)
    found = {
        mofld_together._name("adult", 5, way): {"hypervolume": [0.7 - 0.1 * i, 0.71 - 0.101 * i]}
        for i, way in enumerate(ways)
    }
    judged = mofld_together.judge(["adult"], [5], ways, found)
    assert "a worse one in 2" in judged.verdict
    found = {
        public_preferences._name("convex", kind, way): {"own": [0.3, 0.311] if "public" in way else [0.2, 0.21]}
        for kind in public_preferences.KINDS
        for way in public_preferences.WAYS
    }
    judged = public_preferences.judge(["convex"], found)
    assert [one.sign for one in judged.contrasts] == [1, 1, 1, 1]
    assert "clients have more for FedPref on convex" in judged.verdict


def test_bad_choices_are_told_in_one_line():
    with pytest.raises(UserError, match=r"Dirichlet preferences only, such as dirichlet:0\.05"):
        prepared("study-heterogeneity", preferences=("uniform",))
    with pytest.raises(UserError, match="such as --algorithm fedpref"):
        prepared("study-heterogeneity", algorithms=("local",))
    with pytest.raises(UnknownName):
        prepared("study-low-quality", problems=("moon",))
    with pytest.raises(UserError, match="no choice of clients"):
        prepared("study-fig-5.1-control", clients=3)


def test_rows_that_are_apart_leave_nobody_without_any():
    size = heterogeneity.USUAL
    apart = Synthetic(**heterogeneity.PROBLEMS["synthetic"][heterogeneity.APART])
    for seed in range(size["seeds"]):
        assert all(rows.counts.min() > 0 for rows in apart.data(size["clients"], seed).values())


def test_differences_too_small_for_four_decimals_are_powers_of_ten():
    assert "+2.0e-05 (95 % interval +1.8e-05 to +2.2e-05), more" in str(contrast("", [2e-5, 2.1e-5, 1.9e-5], [0, 0, 0]))
    assert "+0.0000 (95 % interval +0.0000 to +0.0000)" in str(contrast("", [0.0] * 6, [0.0] * 6))
    assert "six if they are all equal" in str(contrast("", [1.0, 1.0], [0.0, 0.0]))
