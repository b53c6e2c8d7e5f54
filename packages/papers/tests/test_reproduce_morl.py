"""Chapter 4 of the thesis: what was published, what is run, how it is measured, what is concluded."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.registry import make_algorithm, problems
from fedpareto.moo.indicators import cardinality, hypervolume, igd, sparsity
from fedpareto.moo.preferences import equidistant
from fedpareto.record.reading import load
from fedpareto.runs import runner
from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto_papers import catalogue
from fedpareto_papers.catalogue import Options
from fedpareto_papers.study import find
from fedpareto_papers.thesis.morl import published
from fedpareto_papers.thesis.morl import reproduction as morl
from fedpareto_papers.thesis.morl import runs as morl_runs
from fedpareto_papers.thesis.morl.runs import Returns, Training

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    import typer

    from fedpareto.cli import jobs
    from fedpareto_papers import command

SMALL = ("problem.hidden=[8,8]",)
DST = problems()["deep-sea-treasure"]()
FRONT = DST.known_front()


def quick(name, folder, **options):
    """Runs a tiny version; gives the outcome and what was said."""
    said = []
    study = catalogue.prepare(name, catalogue.Options(quick=True, seeds=2, settings=SMALL, **options))
    return study.run(folder, said.append, lambda: False), said


# -- what was published --------------------------------------------------------------------------------------------

BOLD = {  # In bold in the thesis, from MO-LL to MO-LLc: an independent check of what was typed in.
    ("reward", "dirichlet"): "fedpref fedpref fedpref+ft fedpref fedavg",
    ("reward", "equidistant"): "fedpref+ft local fedpref+ft fedpref+ft fedpref",
    ("reward", "gaussian"): "fedpref fedavg fedpref fedpref fedprox",
    ("hypervolume", "dirichlet"): "fedpref cfl fedpref+ft fedpref fedpref",
    ("hypervolume", "equidistant"): "fedpref local fedpref fedpref+ft fedpref",
    ("hypervolume", "gaussian"): "fedpref cfl+ft fedpref local fedpref+ft",
    ("sparsity", "dirichlet"): "cfl fedavg fedavg fedprox fedavg",
    ("sparsity", "equidistant"): "cfl fedavg fedavg fedavg fedprox",
    ("sparsity", "gaussian"): "cfl fedavg fedavg fedprox fedprox",
    ("igd", "dirichlet"): "fedpref+ft cfl+ft fedpref+ft fedprox+ft cfl",
    ("igd", "equidistant"): "fedpref cfl+ft fedpref fedavg+ft fedpref",
    ("igd", "gaussian"): "fedpref+ft cfl+ft fedpref+ft fedpref+ft fedpref+ft",
    ("cardinality", "dirichlet"): "fedpref+ft cfl fedpref+ft fedprox+ft fedpref",
    ("cardinality", "equidistant"): "fedpref+ft local fedpref fedprox+ft fedpref+ft",
    ("cardinality", "gaussian"): "fedpref+ft cfl+ft fedpref fedpref local",
}
BOLD_COMPONENTS = {
    "reward": "fedpref fedpref-clustering+ft fedpref+ft fedpref fedpref-clustering",
    "hypervolume": "fedpref fedpref fedpref-clustering fedpref fedpref",
    "cardinality": "fedpref-clustering+ft fedpref+ft fedpref+ft fedpref-weighting fedpref",
    "sparsity": " ".join(["fedpref-weighting"] * 5),
    "igd": "fedpref+ft fedpref fedpref+ft fedpref-weighting+ft fedpref+ft",
}


def assert_best(metric, rows, bold):
    better = min if metric in published.LOWER_IS_BETTER else max
    for environment, best in zip(published.ENVIRONMENTS, bold.split(), strict=True):
        values = [columns[environment].mean for columns in rows.values()]
        assert rows[best][environment].mean == better(values), (metric, environment, best)


@pytest.mark.parametrize(("metric", "preferences"), BOLD)
def test_the_values_in_bold_are_the_best_of_their_columns(metric, preferences):
    assert_best(metric, published.TABLES[metric][preferences], BOLD[metric, preferences])


@pytest.mark.parametrize("metric", published.METRICS)
def test_the_components_values_in_bold_are_the_best(metric):
    assert_best(metric, published.ABLATION[metric], BOLD_COMPONENTS[metric])


def test_the_tables_agree_where_they_show_the_same_runs():
    main = {metric: rows["dirichlet"] for metric, rows in published.TABLES.items()}
    for metric, rows in published.ABLATION.items():
        for variant in ("fedpref", "fedpref+ft"):
            for environment, entry in rows[variant].items():
                assert entry.mean == main[metric][variant][environment].mean
                if metric == "reward":  # Over the sample here, over the population there.
                    both = entry.deviation, main[metric][variant][environment].deviation
                    assert abs(both[0] - both[1] * np.sqrt(10 / 9)) <= 0.05 + 0.05 * np.sqrt(
                        10 / 9
                    )  # Both are rounded.
                else:
                    assert entry == main[metric][variant][environment]
    for environment in ("moll", "dst", "mohc", "mollc"):
        assert published.SIMILARITY_BOUNDS[-1.0][environment] == main["reward"]["fedpref+ft"][environment]
    assert published.SIMILARITY_BOUNDS[0.0]["dmc"].mean == main["reward"]["fedpref+ft"]["dmc"].mean


def test_bests_of_the_sensitivity_studies_are_in_bold():
    for lines, bold in (
        (published.TOP_RATIOS, (0.2, 0.6, 0.8, 0.4, 0.8)),
        (published.SIMILARITY_BOUNDS, (-1.0, -0.4, -0.6, -0.6, -0.4)),
    ):
        for environment, best in zip(published.ENVIRONMENTS, bold, strict=True):
            assert max(lines, key=lambda value: lines[value][environment].mean) == best


def test_selected_parameters_are_those_of_the_appendix():
    fedpref = published.selected("dmc", "fedpref")
    assert (fedpref.steps, fedpref.own["threshold"], fedpref.own["patience"]) == (5000, 3, 2)
    assert fedpref.own["similarity_bound"] == 0
    assert published.selected("mollc", "fedpref-weighting+ft").steps == 10_000
    assert published.selected("dst", "fedprox+ft").own == {"mu": 1.0}
    assert published.selected("mohc", "mat-fl").own == {"voters": 8}
    cfl = published.selected("moll", "cfl")
    assert (cfl.steps, cfl.own) == (10_000, {"threshold": 5.0, "patience": 2})
    assert published.selected("mohc", "cfl").own["patience"] == 1


@pytest.mark.parametrize("environment", published.ENVIRONMENTS)
def test_every_algorithm_has_the_same_number_of_steps_in_whole_rounds(environment):
    for algorithm in published.ALGORITHMS:
        assert published.ENVIRONMENTS[environment].steps % published.selected(environment, algorithm).steps == 0


# -- metrics that explain published numbers to the digit -----------------------------------------------------------

STUCK = (0.0, -100.0)
MIXES = {  # One point for each of 10 runs, which all clients share; by treasure, 0 where the submarine is stuck.
    ("dirichlet", "fedavg"): (0, 0, 0, 0, 14.0, 14.0, 15.1, 15.1, 15.1, 16.1),
    ("dirichlet", "fedprox"): (0, 0, 0, 14.0, 14.0, 15.1, 15.1, 15.1, 15.1, 15.1),
    ("equidistant", "fedavg"): (0, 0, 0, 0, 15.1, 15.1, 15.1, 15.1, 15.1, 15.1),
    ("equidistant", "fedprox"): (0, 0, 0, 0, 0, 14.0, 15.1, 15.1, 15.1, 15.1),
    ("gaussian", "fedavg"): (0, 0, 0, 11.5, 14.0, 14.0, 14.0, 15.1, 15.1, 15.1),
    ("gaussian", "fedprox"): (0, 14.0, 15.1, 15.1, 15.1, 15.1, 15.1, 15.1, 15.1, 15.1),
}
"""Of all 184,756 mixes of the front's ten points and STUCK, the only one that gives hypervolume and IGD as printed."""


@pytest.mark.parametrize(("preferences", "algorithm"), MIXES)
def test_metrics_of_one_solution_runs_are_the_published_ones_to_the_digit(preferences, algorithm):
    point = {treasure: (treasure, time) for treasure, time in FRONT.tolist()} | {0: STUCK}
    sets = [np.array([point[treasure]] * 20) for treasure in MIXES[preferences, algorithm]]
    values = {
        "hypervolume": [hypervolume(found, DST.reference, maximise=True) for found in sets],
        "igd": [igd(found, FRONT, maximise=True) for found in sets],
        "sparsity": [sparsity(found, maximise=True) for found in sets],
        "cardinality": [cardinality(found, maximise=True) for found in sets],
    }
    for metric, found in values.items():
        entry, unit = published.TABLES[metric][preferences][algorithm]["dst"], published.scale(metric, "dst")
        # To the last digit in print; one mean lies between two of them.
        assert abs(np.mean(found) - entry.mean) <= 0.005 * unit + 1e-9, metric
        assert abs(np.std(found) - entry.deviation) <= 0.05 * unit + 1e-9, metric


def test_the_reward_is_each_clients_return_by_its_own_preference():
    points = np.array([[8.2, -3.0], [0.7, -1.0], [np.nan, np.nan]])
    preferences = np.array([[0.75, 0.25], [0.0, 1.0], [1.0, 0.0]])
    found = morl_runs.measures(points, preferences, DST.reference, FRONT)
    assert found["reward"] == pytest.approx(((0.75 * 8.2 - 0.25 * 3) - 1) / 2)
    assert found["cardinality"] == 2
    assert set(found) == set(published.METRICS)
    with pytest.raises(UserError, match="diverged"):
        morl_runs.measures(points[2:], preferences[2:], DST.reference, FRONT)


EQUIDISTANT = Training("dst", "equidistant", "local")


def found_for(preferences):
    points = [np.zeros_like(preferences)]
    return Returns([preferences], points, points, DST.reference, FRONT, DST.discount)


def test_perfect_learners_on_deep_sea_treasure():
    best, perfect = morl_runs.ceilings(found_for(equidistant(20, 2)), EQUIDISTANT)
    assert f"{perfect.mean('reward'):.2f}" == "6.68"
    assert perfect.mean("hypervolume") == pytest.approx(2300.9)
    assert f"{best.mean('reward'):.2f}" == "6.96"
    assert best.mean("reward") > perfect.mean("reward")
    assert best.mean("hypervolume") == pytest.approx(2294.2)


def test_discounted_returns_are_sums_over_the_steps():
    for (treasure, time), found in zip(FRONT, morl_runs.discounted(FRONT, 0.98), strict=True):
        steps = round(-time)
        rewards = [(treasure if step == steps - 1 else 0.0, -1.0) for step in range(steps)]
        expected = np.sum([0.98**step * np.array(reward) for step, reward in enumerate(rewards)], axis=0)
        np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(morl_runs.discounted(FRONT, 1.0), FRONT)


def test_without_a_known_front_igd_is_measured_from_all_that_was_found():
    found = found_for(equidistant(3, 2))
    found = morl_runs.replace(found, known_front=None, sent=[np.array([[1.0, 2.0], [2.0, 1.0]])])
    other = morl_runs.replace(found, sent=[np.array([[0.0, 3.0], [1.0, 1.0]])], trained=[np.array([[np.nan, 1.0]])])
    np.testing.assert_array_equal(morl_runs.front_of([found, other]), [[0, 3], [1, 2], [2, 1]])
    assert morl_runs.ceilings(found, EQUIDISTANT) == []


# -- fine-tuning shares its training -------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", range(1, 101))
def test_the_last_training_is_evaluated_and_few_others(rounds):
    spacing = morl_runs.evaluate_every(rounds)
    assert (rounds - 1) % spacing == 0
    assert len(range(0, rounds, spacing)) <= morl_runs.MOST_EVALUATIONS


def last_points(result, kind):
    """Of each seed, by part of the data: what clients have before (trained) or after (sent) the last aggregation."""
    wanted = result.spec.rounds - (kind == "trained")
    found = [result.columns.evaluated(row, kind) for row in result.history if row["round"] == wanted]
    return [{split: points.tolist() for split, points in of_seed.items()} for of_seed in found]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox", "cfl", "fedpref"])
def test_fine_tuning_gives_what_clients_have_before_the_last_aggregation(algorithm):
    results = [
        runner.start(
            Draft(
                {
                    "algorithm": {"name": name, **({"threshold": 1e3} if algorithm in ("cfl", "fedpref") else {})},
                    "problem": "convex",
                    "clients": 4,
                    "rounds": 5,
                    "seeds": 2,
                    "evaluate_every": morl_runs.evaluate_every(5),
                    "engine": {"chunk": 8, "threads": 1},
                }
            ).finish()
        )
        for name in (algorithm, algorithm + "+ft")
    ]
    plain, tuned = results
    assert last_points(plain, "trained") == last_points(tuned, "sent")
    assert last_points(plain, "trained") != last_points(plain, "sent")


@pytest.mark.takes_long
def test_fine_tuning_shares_its_training_in_an_environment_too(tmp_path):
    options = Options(seeds=2, clients=4, quick=True)
    cell = morl_runs.cell_of(options, Training("dst", "dirichlet", "fedpref"))
    spec, found = cell.spec(SMALL), find(SMALL, tmp_path, cell, bool).result
    tuned = runner.start(
        Draft(spec.to_mapping() | {"algorithm": {**spec.to_mapping()["algorithm"], "name": "fedpref+ft"}}).finish()
    )
    for points, solutions in zip(found.trained, tuned.solutions, strict=True):
        np.testing.assert_allclose(points, solutions.values["return"])
    assert make_algorithm("fedpref+ft").name == "fedpref+ft"


# -- what is run ---------------------------------------------------------------------------------------------------


def test_the_runs_are_as_the_thesis_says():
    spec = morl_runs.cell_of(Options(), Training("dst", "gaussian", "fedpref")).spec()
    assert (spec.rounds, spec.clients, len(spec.seeds), spec.preferences) == (30, 20, 10, "gaussian")
    learner = spec.to_mapping()["learner"]
    assert (learner["steps"], learner["lr"], learner["batch_size"], learner["gamma"]) == (500, 0.004, 128, 0.98)
    assert spec.algorithm.threshold_in == "norm"
    assert (spec.algorithm.threshold, spec.algorithm.patience, spec.algorithm.similarity_bound) == (5, 2, -1)
    other = morl_runs.cell_of(Options(), Training("dst", "gaussian", "cfl")).spec()
    assert (other.rounds, other.to_mapping()["learner"]["steps"]) == (15, 1000)


@pytest.mark.parametrize("environment", published.ENVIRONMENTS)
def test_every_environment_can_be_run(environment):
    for algorithm in morl._untuned((*published.ALGORITHMS, *published.COMPONENTS)):
        spec = morl_runs.cell_of(Options(), Training(environment, "dirichlet", algorithm)).spec()
        chosen = published.selected(environment, algorithm)
        assert spec.to_mapping()["algorithm"].items() >= dict(chosen.own).items()
        assert spec.rounds * spec.to_mapping()["learner"]["steps"] == published.ENVIRONMENTS[environment].steps


def test_trainings_are_shared_by_tables_and_figures():
    def names(name, **options):
        study = catalogue.prepare(name, catalogue.Options(**options))
        trainings = study.trainings.values() if isinstance(study.trainings, dict) else study.trainings
        return [training.name for training in trainings]

    main = names("thesis-4.1-dst")
    assert len(main) == len(set(main)) == 3 * 6
    assert names("thesis-4.2") == names("thesis-4.7")
    assert set(names("thesis-4.2")) & set(main) == {"dst/dirichlet/fedpref"}
    ratios, bounds = names("thesis-fig-4.9"), names("thesis-fig-4.10", problems=("dmc",))
    assert len(ratios) == 5
    assert set(ratios) & set(main) == {"dst/dirichlet/fedpref"}
    assert len(bounds) == 10
    assert bounds[5] == "dmc/dirichlet/fedpref"  # Table A.5 selects 0 there.
    assert bounds[0] == "dmc/dirichlet/fedpref,similarity_bound=-1.0"
    assert names("thesis-cfl") == ["dst/dirichlet/cfl"]
    assert names("thesis-clusters", problems=("mo-halfcheetah",)) == [
        "mohc/groups-3-3-3/fedpref",
        "mohc/groups-1-4-3-2/fedpref",
    ]


@pytest.mark.takes_long
def test_a_table_runs_and_is_read_the_second_time(tmp_path, monkeypatch):
    options = {"clients": 4, "algorithms": ("fedavg", "local"), "preferences": ("equidistant",)}
    outcome, said = quick("thesis-4.1-dst", tmp_path, **options)
    rows = outcome.record["rows"]
    assert [row["algorithm"] for row in rows] == ["local", "fedavg", "fedavg+ft", "best known", "perfect learners"]
    assert rows[0]["metrics"]["reward"]["published"] == {"mean": 0.68, "deviation": 1.9}
    assert rows[3]["metrics"]["reward"]["published"] is None
    assert len(said) == 2
    assert json.loads((tmp_path / "thesis-4.1-dst.json").read_text())["rows"] == rows
    lines = (tmp_path / "thesis-4.1-dst.csv").read_text().splitlines()
    assert len(lines) == 1 + 5 * len(published.METRICS)

    # The same from the folder, without any of the code in between.
    folder = tmp_path / "thesis-4" / "dst" / "equidistant" / "fedavg"
    history = load(folder).lines
    weights = np.array([[i / 3, 1 - i / 3] for i in range(4)])
    for row, kind, last in ((rows[1], "sent", 3), (rows[2], "trained", 2)):
        points = [line.measured(kind)["return"] for line in history if line.round == last]
        assert len(points) == 2
        rewards = [float((weights * found).sum(axis=1).mean()) for found in points]
        assert row["metrics"]["reward"]["seeds"] == pytest.approx(rewards)
        assert row["metrics"]["reward"]["ours"] == pytest.approx(np.mean(rewards))
        assert row["metrics"]["reward"]["deviation"] == pytest.approx(np.std(rewards))
    assert not (folder / "checkpoint.safetensors").exists()

    def refuse(*arguments, **options):
        raise AssertionError("a finished training is read, not repeated")

    monkeypatch.setattr(Experiment, "_one_round", refuse)
    again, said = quick("thesis-4.1-dst", tmp_path, **options)
    assert all("already done" in line for line in said)
    assert again.record["rows"] == rows
    with pytest.raises(UserError, match=r"a run with problem.hidden=\[8, 8\], not \[256, 256\]"):
        catalogue.prepare("thesis-4.1-dst", catalogue.Options(quick=True, seeds=2, **options)).run(
            tmp_path, said.append, lambda: False
        )


@pytest.mark.takes_long
def test_a_stopped_training_goes_on(tmp_path):
    cell = morl_runs.cell_of(Options(seeds=1, clients=3, quick=True), Training("dst", "dirichlet", "fedpref"))
    with pytest.raises(Stopped):
        find(SMALL, tmp_path / "a", cell, lambda: True)
    resumed, whole = (find(SMALL, tmp_path / folder, cell, lambda: False) for folder in "ab")
    assert resumed.is_new
    np.testing.assert_array_equal(resumed.result.trained[0], whole.result.trained[0])
    np.testing.assert_array_equal(resumed.result.sent[0], whole.result.sent[0])


@pytest.mark.takes_long
def test_components_and_parameters_are_compared(tmp_path):
    outcome, _ = quick("thesis-4.7", tmp_path, clients=3)
    rows = outcome.record["rows"]
    assert [row["algorithm"] for row in rows[:6]] == list(published.COMPONENTS)
    assert rows[0]["metrics"]["igd"]["published"] == {"mean": 1.47, "deviation": 1.2}
    outcome, said = quick("thesis-4.2", tmp_path, clients=3)
    assert all("already done" in line for line in said)
    outcome, said = quick("thesis-fig-4.9", tmp_path, clients=3)
    assert sum("already done" in line for line in said) == 1
    assert outcome.record["rows"][0]["algorithm"] == "fedpref+ft,top_ratio=0.2"
    assert outcome.record["rows"][3]["metrics"]["reward"]["published"] == {"mean": 3.76, "deviation": 4.0}
    assert {path.suffix for path in outcome.files} == {".json", ".csv", ".png", ".pdf"}


# -- what may be asked for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("thesis-4.1-dst", {"algorithms": ("fedprefs",)}, "fedpref"),
        ("thesis-4.1-dst", {"preferences": ("gausian",)}, "gaussian"),
        ("thesis-4.2", {"problems": ("dsd",)}, "dst"),
        ("thesis-4.2", {"algorithms": ("fedpref-weigting",)}, "fedpref-weighting"),
    ],
)
def test_an_unknown_name_comes_with_the_closest(name, options, word):
    with pytest.raises(UnknownName, match=word):
        catalogue.prepare(name, catalogue.Options(**options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("thesis-4.1-dst", {"rounds": 3}),
        ("thesis-4.1-dst", {"problems": ("dst",)}),
        ("thesis-fig-4.9", {"algorithms": ("fedpref",)}),
        ("thesis-clusters", {"clients": 3}),
        ("thesis-cfl", {"preferences": ("gaussian",)}),
        ("thesis-5.4", {"preferences": ("gaussian",)}),
        ("thesis-fig-5.1", {"preferences": ("gaussian",)}),
    ],
)
def test_what_makes_no_sense_is_refused(name, options):
    with pytest.raises(UserError, match=f"{name} has no choice of {next(iter(options))}"):
        catalogue.prepare(name, catalogue.Options(**options))


def test_settings_reach_every_run_and_name_their_part():
    study = catalogue.prepare("thesis-4.1-dst", catalogue.Options(settings=("engine.device=cuda", "learner.lr=0.1")))
    spec = study.cells()[0].spec(study.options.settings)
    assert spec.engine.device == "cuda"
    assert spec.learner.lr == 0.1
    with pytest.raises(UserError, match="name the part"):
        catalogue.prepare("thesis-4.1-dst", catalogue.Options(settings=("rounds=3",)))


def test_a_gpu_gets_one_job():
    assert jobs.chosen(None, None, jobs.on_gpu(["engine.device=cuda:1"])) == 1
    assert jobs.chosen(None, None, jobs.on_gpu([])) >= 1
    assert jobs.chosen("3", None, on_gpu=True) == 3


def test_the_command_line_passes_everything_on(tmp_path, capsys):
    app = typer.Typer()
    app.command()(command.reproduce)
    arguments = ["thesis-4.1-dst", "--quick", "--seeds", "1", "--clients", "3", "--algorithm", "cfl"]
    arguments += ["--preferences", "gaussian", "--set", SMALL[0], "--out", str(tmp_path)]
    typer.main.get_command(app)(args=arguments, standalone_mode=False)
    shown = capsys.readouterr()
    assert "dst/gaussian/cfl" in shown.err
    assert "CFL+FT" in shown.out
    assert "(-33.75 ± 8.3)" in shown.out
    assert "problem.hidden=[8,8]" in shown.out
