from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import reproduced
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.algorithm import Algorithm
from fedpareto.moo.indicators import hypervolume
from fedpareto.runs.loop import Experiment
from fedpareto_papers import catalogue
from fedpareto_papers.catalogue import CATALOGUE
from fedpareto_papers.thesis.fairness import published
from fedpareto_papers.thesis.fairness import reproduction as fairness

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    import typer

    from fedpareto_papers.command import reproduce

KEYS = {"problem", "algorithm", "ours", "deviation", "published", "difference", "empty", "left_out", "front"}
SMALL = ["--rounds", "1", "--clients", "3", "--quick"]


@pytest.fixture
def law_school(published):
    """The data that the cells below train on."""
    return published("law-school")


def command(*arguments):
    """`fedpareto reproduce ARGUMENTS`, without what main makes of errors."""
    app = typer.Typer()
    app.command()(reproduce)
    return typer.main.get_command(app)(args=list(arguments), standalone_mode=False)


def prepared(name, **options):
    return catalogue.prepare(name, catalogue.Options(**options))


def cells_of(name, folder, said=None, stop=lambda: False, **options):
    """The cells of a small version."""
    study = prepared(name, quick=True, clients=3, problems=("law-school-race",), **options)
    outcome = study.run(folder, (said if said is not None else []).append, stop)
    return [fairness.Pooled(**cell) for cell in outcome.record["cells"]]


def every_run(folder):
    return sorted(path.parent for path in folder.rglob("solutions.json"))


# -- what was published --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", published.TABLES)
def test_published_tables_are_complete(name):
    table = published.TABLES[name]
    rows = 10 if "A." in name else 5
    assert len(table.cells) == rows
    assert table.clients == (50 if "A." in name else 10)
    for cells in table.cells.values():
        assert tuple(cells) == published.ALGORITHMS
        assert all(0.6 < value < 0.96 for value in cells.values())


@pytest.mark.parametrize(
    ("table", "problem", "algorithm", "value"),
    [
        ("thesis-5.2", "law-school-gender-deo", "fedcmoo-pref", 0.919),
        ("thesis-5.2", "default-gender-deo", "local", 0.680),
        ("thesis-5.3", "default-gender-ddp", "fedprox", 0.764),
        ("thesis-5.3", "adult-gender-ddp", "local", 0.805),
        ("thesis-5.4", "adult-gender-deo", "fedpref", 0.772),
        ("thesis-5.4", "law-school-race-deo", "fedcmoo-pref", 0.829),
        ("thesis-5.5", "adult-race-ddp", "fedpref", 0.830),
        ("thesis-A.17", "default-gender-deo", "fedcmoo-pref", 0.799),
        ("thesis-A.17", "law-school-race-ddp", "fedprox", 0.947),
        ("thesis-A.20", "adult-gender-deo", "cfl", 0.835),
        ("thesis-A.20", "default-gender-ddp", "local", 0.751),
    ],
)
def test_published_values_are_those_in_print(table, problem, algorithm, value):
    assert published.TABLES[table].cells[problem][algorithm] == value


BEST = {  # In bold in the thesis: an independent check of what was typed in.
    "thesis-5.2": ["fedprox", "fedprox", "fedcmoo-pref", "fedpref", "fedcmoo-pref"],
    "thesis-5.3": ["local", "fedprox", "fedprox", "fedcmoo-pref", "cfl"],
    "thesis-5.4": ["fedpref", "local", "cfl", "cfl", "cfl"],
    "thesis-5.5": ["local", "fedpref", "local", "local", "local"],
    "thesis-A.17": ["fedpref", "local", "cfl", "local", "fedcmoo-pref", "cfl", "cfl", "fedpref", "fedprox", "fedpref"],
    "thesis-A.20": ["cfl", "cfl", "fedprox", "fedprox", "cfl", "fedpref", "fedpref", "cfl", "local", "fedprox"],
}


@pytest.mark.parametrize("name", published.TABLES)
def test_the_values_in_bold_are_the_largest_of_their_rows(name):
    for best, cells in zip(BEST[name], published.TABLES[name].cells.values(), strict=True):
        assert cells[best] == max(cells.values())


def test_selected_parameters_are_those_of_the_appendix():
    fedpref = published.selected("adult-race-deo", "fedpref")
    assert (fedpref.lr, fedpref.steps, fedpref.fine_tuned) == (1e-2, 25, False)
    assert fedpref.own["threshold"] == 2.5
    assert fedpref.own["threshold_in"] == "percent"
    cmoo = published.selected("law-school-race-deo", "fedcmoo-pref")
    assert (cmoo.lr, cmoo.steps, cmoo.fine_tuned, cmoo.own) == (1e-2, 10, True, {"server_lr": 1.5})
    prox = published.selected("adult-race-ddp", "fedprox")
    assert (prox.lr, prox.steps, prox.fine_tuned, prox.own) == (1e-2, 25, True, {"mu": 0.1})
    cfl = published.selected("default-gender-ddp", "cfl")
    assert (cfl.lr, cfl.steps, cfl.fine_tuned) == (1e-3, 50, True)
    assert (cfl.own["threshold"], cfl.own["patience"]) == (2.5, 2)
    assert published.selected("default-gender-ddp", "local").lr == 5e-4


@pytest.mark.parametrize("table", ["thesis-A.17", "thesis-A.20"])
def test_every_cell_has_runs_with_the_selected_parameters(table):
    study = prepared(table)
    for problem, algorithm in study.keys:
        spec = study.cell(problem, algorithm, repetition=1).spec()
        chosen = published.selected(problem, algorithm)
        assert spec.seeds == tuple(range(10, 20))
        assert isinstance(spec.algorithm, Algorithm)
        assert spec.algorithm.name == algorithm + ("+ft" if chosen.fine_tuned else "")
        assert spec.to_mapping()["learner"]["lr"] == chosen.lr
        assert spec.to_mapping()["algorithm"].items() >= dict(chosen.own).items()


@pytest.mark.usefixtures("law_school")
def test_homogeneous_weights_are_the_thesis_sweep_and_known_to_the_server():
    spec = prepared("thesis-5.2").cell("law-school-gender-deo", "fedcmoo-pref", repetition=1).spec()
    for i, seed in enumerate(spec.seeds):
        federation = spec.federation(seed)
        weights = [i / 10, 1 - i / 10]
        np.testing.assert_allclose(federation.preferences, [weights] * 10)
        np.testing.assert_allclose(federation.setting(spec.problem, 1).preference, weights)
    spec = prepared("thesis-5.4").cell("law-school-gender-deo", "fedcmoo-pref", repetition=0).spec()
    assert spec.federation(0).setting(spec.problem, 1).preference is None


# -- a cell --------------------------------------------------------------------------------------------------------


def test_settings_of_the_user_reach_every_run_and_tables_with_others_are_not_compared():
    study = prepared("thesis-5.2", settings=("learner.lr=0.5",))
    for cell in study.cells()[:2]:
        assert cell.spec(study.settings).learner.lr == 0.5
    record = json.loads(json.dumps(study.as_json(reproduced.cells("thesis-5.2"))))
    assert study.is_like(record)
    assert not prepared("thesis-5.2").is_like(record)
    with pytest.raises(UserError, match="name the part too"):
        catalogue.prepare("thesis-5.2", catalogue.Options(settings=("lr=0.5",)))


def test_homogeneous_points_are_client_means_and_heterogeneous_ones_every_client():
    sets = [np.array([[0.8, 0.6], [0.6, 1.0]]), np.array([[0.5, 0.5], [0.7, 0.7]])]
    np.testing.assert_allclose(fairness.pooled(sets, heterogeneous=False), [[0.7, 0.8], [0.6, 0.6]])
    assert fairness.pooled(sets, heterogeneous=True).shape == (4, 2)


def test_a_cell_leaves_out_what_did_not_converge_and_gives_the_deviation_over_repetitions():
    one, other = np.array([[0.5, 0.8], [0.9, 0.9995]]), np.array([[0.5, 0.4]])
    cell = fairness.cell_of("adult-gender-deo", "cfl", [one, other], 0.767)
    assert cell.ours == pytest.approx(0.3)
    assert cell.deviation == pytest.approx(0.1)
    assert cell.difference == pytest.approx(0.3 - 0.767)
    assert cell.left_out == 1
    assert cell.front == [[0.5, 0.8]]


def test_a_cell_without_any_converged_solution_has_no_value_and_counts_in_no_mean():
    nothing, something = np.array([[0.9, 1.0]]), np.array([[1.0, 0.5]])
    cell = fairness.cell_of("adult-gender-deo", "cfl", [nothing], 0.767)
    assert (cell.ours, cell.deviation, cell.difference, cell.empty, cell.front) == (None, None, None, 1, [])
    other = fairness.cell_of("adult-gender-deo", "cfl", [nothing, something], 0.4)
    assert (other.ours, other.deviation, other.empty) == (0.5, None, 1)
    found = fairness.summary([cell, other])
    assert (found.cells, found.without_value, found.at_least_published) == (2, 1, 1)
    assert found.mean_difference == pytest.approx(0.1)
    assert found.mean_difference_with_zeros == pytest.approx((0.1 - 0.767) / 2)
    assert fairness.summary([cell]).mean_difference is None


def test_published_hypervolumes_follow_from_the_published_ranges():
    """Default, FedProx in table A.14 is a single point, and 5.3 has its hypervolume."""
    cell = fairness.cell_of("default-gender-ddp", "fedprox", [np.array([[0.769, 0.994]])], 0.764)
    assert abs(cell.difference) < 1e-3


def test_the_summary_keeps_the_sign_of_the_largest_difference():
    cells = [fairness.cell_of("p", "a", [np.array([[1.0, value]])], 0.5) for value in (0.6, 0.2, 0.5)]
    found = fairness.summary(cells)
    assert found.largest_difference == pytest.approx(-0.3)
    assert found.mean_difference == pytest.approx(-0.2 / 3)
    assert found.mean_absolute_difference == pytest.approx(0.4 / 3)
    assert found.at_least_published == 2


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("law_school")
@pytest.mark.parametrize(
    ("table", "problem", "algorithm", "heterogeneous"),
    [("thesis-5.4", "law-school-race-deo", "local", True), ("thesis-5.3", "law-school-gender-ddp", "fedprox", False)],
)
def test_a_table_runs_writes_its_records_and_reads_them_the_second_time(
    table, problem, algorithm, heterogeneous, tmp_path, monkeypatch, capsys
):
    arguments = [table, *SMALL, "--problem", problem, "--algorithm", algorithm]
    arguments += ["--out", str(tmp_path), "--json", str(tmp_path / "t.json")]
    command(*arguments)
    shown = capsys.readouterr()
    assert "QUICK" in shown.out
    assert "--quick" in shown.out
    assert "1 of 1" in shown.err
    assert "published" in shown.err
    written = json.loads((tmp_path / "t.json").read_text())
    assert written["quick"] is True
    (cell,) = written["cells"]
    assert set(cell) == KEYS
    assert (cell["problem"], cell["algorithm"], cell["deviation"]) == (problem, algorithm, None)
    assert cell["difference"] == pytest.approx(cell["ours"] - cell["published"])

    # The same from the folders, without any of the code in between.
    runs = every_run(tmp_path / table / problem / algorithm)
    assert len(runs) == 1
    seeds = [seed for run in runs for seed in json.loads((run / "solutions.json").read_text())]
    assert len(seeds) == 3
    sets = [np.array(seed["objectives"]["test"]) for seed in seeds]
    points = np.concatenate(sets) if heterogeneous else np.array([found.mean(axis=0) for found in sets])
    kept = points[points[:, 1] <= 1 - 1e-3]
    assert len(kept), "a cell without solutions would show nothing"
    assert cell["left_out"] == len(points) - len(kept)
    assert cell["ours"] == pytest.approx(hypervolume(kept, [0, 0], maximise=True))

    def refuse(*arguments, **options):
        raise AssertionError("a finished cell is read, not trained")

    monkeypatch.setattr(Experiment, "_one_round", refuse)
    command(*arguments)
    assert json.loads((tmp_path / "t.json").read_text()) == written
    assert "(already done)" in capsys.readouterr().err
    with pytest.raises(UserError, match="a run with rounds=1, not 2"):
        command(*arguments, "--rounds", "2")


@pytest.mark.usefixtures("law_school")
def test_an_interrupted_reproduction_resumes_with_the_same_result(tmp_path):
    small = {"rounds": 2, "algorithms": ("local",)}
    with pytest.raises(Stopped):
        cells_of("thesis-5.4", tmp_path / "a", stop=lambda: True, **small)
    said = []
    resumed = cells_of("thesis-5.4", tmp_path / "a", said, **small)
    assert not any("already done" in line for line in said)
    whole = cells_of("thesis-5.4", tmp_path / "b", **small)
    assert resumed[0].ours == pytest.approx(whole[0].ours, abs=0.02)  # Chunks are measured anew: rounding differs.


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["thesis-5.6"], "thesis-5."),
        (["thesis-5.4", "--problem", "adult-gendre"], "adult-gender-deo"),
        (["thesis-5.4", "--algorithm", "fedprefs"], "fedpref"),
    ],
)
def test_an_unknown_name_comes_with_the_closest(arguments, hint):
    with pytest.raises(UnknownName, match=hint):
        command(*arguments)


def test_options_that_make_no_sense_are_told():
    for option in ("--jobs", "--rounds", "--seeds", "--clients"):
        with pytest.raises(UserError, match="at least 1"):
            command("thesis-5.4", option, "0")


def test_without_a_name_all_are_listed(capsys):
    command()
    shown = capsys.readouterr().out
    assert all(name in shown for name in CATALOGUE)


@pytest.mark.parametrize("name", published.TABLES)
def test_the_catalogue_says_what_the_tables_are(name):
    assert CATALOGUE[name].about == published.TABLES[name].about


@pytest.mark.usefixtures("law_school")
def test_cells_side_by_side_are_those_one_after_another(tmp_path):
    small = {"rounds": 1, "algorithms": ("local", "fedprox")}
    alone, beside = (cells_of("thesis-5.4", tmp_path / str(jobs), jobs=jobs, **small) for jobs in (1, 2))
    assert [cell.algorithm for cell in beside] == ["fedprox", "local"]
    for one, other in zip(alone, beside, strict=True):
        np.testing.assert_allclose(one.front, other.front, atol=0.02)  # Chunks are measured anew: rounding differs.


@pytest.mark.usefixtures("law_school")
def test_the_claims_are_judged_on_tables_of_the_same_size_in_the_folder(tmp_path, capsys):
    small = ["--rounds", "2", "--clients", "3", "--problem", "law-school-gender", "--algorithm", "local"]
    command("thesis-5.3", *small, "--out", str(tmp_path))
    assert "Claim" not in capsys.readouterr().out
    command("thesis-5.2", *small, "--algorithm", "fedprox", "--out", str(tmp_path), "--json", str(tmp_path / "t.json"))
    shown = capsys.readouterr().out
    assert "Ranges of the fronts" in shown
    names = [claim["name"] for claim in json.loads((tmp_path / "t.json").read_text())["claims"]]
    assert "ddp-has-fewer-points-homogeneous" in names
    assert "fedprox-behind-local" not in names
    assert (tmp_path / "thesis-5.2-fronts.png").stat().st_size > 10_000


def test_a_missing_folder_for_json_is_told_before_anything_runs(tmp_path):
    with pytest.raises(UserError, match="no folder"):
        command("thesis-5.4", "--json", str(tmp_path / "no" / "t.json"))


def test_help_does_not_import_torch():
    import subprocess

    code = "import sys, fedpareto_papers.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, check=False).returncode == 0
