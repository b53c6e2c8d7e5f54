"""Chapter 3 of the thesis and our comparison of searches: what was published, what is run, measured and concluded."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.contract.registry import problems
from fedpareto.moo.indicators import hypervolume, igd, sparsity
from fedpareto.runs.loop import Experiment
from fedpareto_papers import catalogue
from fedpareto_papers.catalogue import Options
from fedpareto_papers.studies import mofld_generators
from fedpareto_papers.thesis.mofld import published
from fedpareto_papers.thesis.mofld import reproduction as mofld
from fedpareto_papers.thesis.mofld import runs as mofld_runs
from fedpareto_papers.thesis.mofld.runs import Fronts, Growth

SMALL = ("problem.hidden=[8,8]",)
FRONT = problems()["deep-sea-treasure"]().known_front()
REFERENCE = published.ENVIRONMENTS["dst"].reference


def quick(name, folder, **options):
    """Runs a tiny version; gives the outcome and what was said."""
    said = []
    study = catalogue.prepare(name, catalogue.Options(quick=True, settings=SMALL, **options))
    return study.run(folder, said.append, lambda: False), said


# -- what was published --------------------------------------------------------------------------------------------

BOLD = {  # In bold in the thesis: an independent check of what was typed in.
    "hypervolume": "3/10k/F 5/2k/F 5/2k/T",
    "sparsity": "3/10k/F 5/2k/F 5/5k/F",
    "igd": "3/10k/F 5/2k/F 5/10k/F",
}


@pytest.mark.parametrize("metric", BOLD)
def test_the_values_in_bold_are_the_best_of_their_columns(metric):
    better = min if metric in published.LOWER_IS_BETTER else max
    for environment, best in zip(published.ENVIRONMENTS, BOLD[metric].split(), strict=True):
        column = {name: row[environment].mean for name, row in published.TABLES[metric].items()}
        assert column[best] == better(column.values())


def test_values_are_in_the_units_of_the_problems():
    assert published.TABLES["hypervolume"]["non-fed"]["moll"].mean == pytest.approx(388.7e7)
    assert published.TABLES["sparsity"]["2/2k/T"]["moll"].deviation == pytest.approx(6343)
    assert published.TABLES["igd"]["5/10k/F"]["moll"].mean == 20.221
    assert len(published.CONFIGURATIONS) == 19


def test_the_best_cell_is_explained_to_the_digit():
    """Nine runs with the whole front and one without (22.4, −17): reference point, front of IGD and deviations."""
    without = FRONT[FRONT[:, 0] != 22.4]
    fronts = [FRONT] * 9 + [without]
    values = {
        "hypervolume": [hypervolume(found, REFERENCE, maximise=True) for found in fronts],
        "sparsity": [sparsity(found, maximise=True) for found in fronts],
        "igd": [igd(found, FRONT, maximise=True) for found in fronts],
    }
    for metric, found in values.items():
        entry = published.TABLES[metric]["3/10k/F"]["dst"]
        assert f"{np.mean(found):.{mofld.DIGITS[metric]}f}" == str(entry.mean)
        assert f"{np.std(found):.1f}" == str(entry.deviation)


def test_no_published_hypervolume_is_above_that_of_the_known_front():
    for environment, ceiling in (("dst", 994.3), ("dmc", 944.9)):
        front = problems()[published.ENVIRONMENTS[environment].problem]().known_front()
        found = hypervolume(front, published.ENVIRONMENTS[environment].reference, maximise=True)
        assert round(found, 1) == ceiling
        assert all(row[environment].mean < ceiling for row in published.TABLES["hypervolume"].values())


# -- what is run ---------------------------------------------------------------------------------------------------


def test_the_runs_are_as_table_a1_says():
    spec = mofld_runs.cell_of(Options(), mofld.search_of("dmc", "5/2k/T")).spec()
    assert spec.seeds == (5, 17, 488, 3011, 6543)
    assert (spec.clients, spec.rounds, spec.algorithm.training_rounds) == (5, 25 * 75, 75)
    assert (spec.algorithm.samples, spec.algorithm.warm_start, spec.algorithm.generator) == (10, True, "annealing")
    assert spec.algorithm.evaluation == "server"
    learner = spec.learner
    assert (learner.steps, learner.train_freq, learner.gradient_steps, learner.gamma) == (2000, 32, 32, 0.99)
    assert (learner.exploration_steps, learner.exploration_final, learner.target_update_interval) == (
        120_000,
        0.05,
        750,
    )
    assert (learner.buffer_size, learner.batch_size, learner.lr) == (50_000, 64, 2e-4)


@pytest.mark.parametrize("environment", published.ENVIRONMENTS)
def test_every_configuration_trains_for_the_same_number_of_steps(environment):
    given = published.ENVIRONMENTS[environment]
    for name, configuration in published.CONFIGURATIONS.items():
        spec = mofld_runs.cell_of(Options(), mofld.search_of(environment, name)).spec()
        assert spec.learner.steps * spec.algorithm.training_rounds == given.steps
        assert spec.rounds == given.iterations * spec.algorithm.training_rounds
        assert spec.clients == configuration.clients
        assert len(spec.seeds) == (5 if spec.clients == 5 else 10)
        assert len(spec.problem.objectives) == len(given.reference)
        assert spec.learner.target == ("kept" if name == "non-fed" else "received")


def test_both_tables_share_their_runs():
    one, other = (catalogue.prepare(name, catalogue.Options()) for name in ("thesis-3.2", "thesis-3.3"))
    assert one.runs == other.runs
    assert one.runs == [("dst", name) for name in published.CONFIGURATIONS]


def test_environments_and_configurations_can_be_chosen():
    options = catalogue.Options(problems=("moll", "minecart-deterministic"), algorithms=("non-fed", "3/10k/F"), seeds=2)
    study = catalogue.prepare("thesis-3.2", options)
    assert study.runs == [(place, name) for place in ("dmc", "moll") for name in ("3/10k/F", "non-fed")]
    assert study.cells()[0].spec().seeds == (5, 11)


def test_settings_reach_every_run_and_name_their_part():
    study = catalogue.prepare("thesis-3.2", catalogue.Options(settings=("engine.device=cuda", "learner.steps=400")))
    spec = mofld_runs.cell_of(study.options, mofld.search_of("dst", "3/10k/F")).spec(study.options.settings)
    assert (spec.engine.device, spec.learner.steps, spec.algorithm.training_rounds) == ("cuda", 400, 10)
    with pytest.raises(UserError, match="name the part"):
        catalogue.prepare("mofld-generators", catalogue.Options(settings=("rounds=3",)))


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("thesis-3.2", {"algorithms": ("3/10/F",)}, "3/10k/F"),
        ("thesis-3.3", {"problems": ("mohc",)}, "environment of chapter 3"),
        ("mofld-generators", {"algorithms": ("lattice-10",)}, "lattice-100"),
    ],
)
def test_an_unknown_name_comes_with_the_closest(name, options, word):
    with pytest.raises(UnknownName, match=word):
        catalogue.prepare(name, catalogue.Options(**options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("thesis-3.2", {"clients": 3}),
        ("thesis-3.2", {"rounds": 3}),
        ("thesis-3.3", {"preferences": ("gaussian",)}),
        ("mofld-generators", {"problems": ("dst",)}),
    ],
)
def test_what_makes_no_sense_is_refused(name, options):
    with pytest.raises(UserError, match=f"{name} has no choice of {next(iter(options))}"):
        catalogue.prepare(name, catalogue.Options(**options))


# -- what came out -------------------------------------------------------------------------------------------------


@pytest.mark.takes_long
def test_a_table_runs_and_is_read_the_second_time(tmp_path, monkeypatch):
    options = {"algorithms": ("3/5k/T", "3/5k/F"), "seeds": 2}
    outcome, said = quick("thesis-3.2", tmp_path, **options)
    rows = outcome.record["rows"]
    assert [row["configuration"] for row in rows] == ["3/5k/T", "3/5k/F"]
    assert rows[1]["metrics"]["igd"]["published"] == {"mean": 0.412, "deviation": 0.5}
    assert len(said) == 2
    assert {path.name for path in outcome.files} == {
        *("thesis-3.2.json", "thesis-3.2.csv"),
        *(f"thesis-fig-{figure}.{ending}" for figure in ("3.5", "A.1") for ending in ("png", "pdf")),
    }
    assert json.loads((tmp_path / "thesis-3.2.json").read_text()) == outcome.record
    assert len((tmp_path / "thesis-3.2.csv").read_text().splitlines()) == 1 + 2 * 3

    # The same from the folder, without any of the code in between.
    folder = tmp_path / "thesis-3" / "dst" / "3-5k-F"
    fronts = [np.array(one["objectives"]["return"]) for one in json.loads((folder / "solutions.json").read_text())]
    volumes = [hypervolume(front, (0, -50), maximise=True) for front in fronts]
    assert rows[1]["metrics"]["hypervolume"]["seeds"] == pytest.approx(volumes)
    assert rows[1]["metrics"]["hypervolume"]["deviation"] == pytest.approx(np.std(volumes))
    assert rows[1]["metrics"]["igd"]["seeds"] == pytest.approx([igd(front, FRONT, maximise=True) for front in fronts])
    growth = outcome.record["growth"][1]
    assert growth["trainings"] == [[2, 4], [2, 4]]
    assert [one[-1] for one in growth["hypervolume"]] == pytest.approx(volumes)
    assert not (folder / "checkpoint.safetensors").exists()

    def refuse(*arguments, **options):
        raise AssertionError("a finished run is read, not repeated")

    monkeypatch.setattr(Experiment, "_one_round", refuse)
    again, said = quick("thesis-3.3", tmp_path, **options)
    assert all("already done" in line for line in said)
    assert again.record["rows"] == rows


@pytest.mark.takes_long
def test_searches_are_compared(tmp_path):
    outcome, _ = quick("mofld-generators", tmp_path, algorithms=("lattice-20", "fedpref-ols"), clients=2)
    lattice, ols = outcome.record["rows"]
    assert (lattice["search"], ols["search"]) == ("lattice-20", "fedpref-ols")
    assert (lattice["known"], round(lattice["ceiling"], 1)) == (10, 994.3)
    assert lattice["trainings"] == [2]
    assert 2 < ols["trainings"][0] <= 4
    # Two trainings of two rounds of 96 steps, by two clients.
    assert lattice["steps"] == [2 * 2 * 96 * 2]
    assert {path.suffix for path in outcome.files} == {".json", ".png", ".pdf"}


def test_the_searches_are_as_announced():
    study = catalogue.prepare("mofld-generators", catalogue.Options(settings=("learner.exploration_steps=5000",)))
    cells = dict(zip(study.variants, study.cells(), strict=True))
    specs = {name: cell.spec(study.options.settings) for name, cell in cells.items()}
    full = {name: specs.pop(name) for name in [*specs] if name.endswith("-full")}
    assert {name: spec.rounds for name, spec in full.items()} == {
        "lattice-20-full": 50,
        "ols-full": 750,
        "ols-confirmed-full": 750,
        "fedpref-lattice-20-full": 50,
        "fedpref-ols-full": 750,
    }
    for name, spec in full.items():
        assert spec.algorithm == replace(specs[name.removesuffix("-full")].algorithm, training_rounds=50)
    assert {spec.algorithm.training_rounds for spec in specs.values()} == {10}
    for spec in [*full.values(), *specs.values()]:
        assert (spec.seeds, spec.clients) == ((0, 1, 2), 3)
        assert (spec.learner.steps, spec.learner.exploration_steps) == (2000, 5000)
    trainings = {name: spec.rounds // 10 * spec.algorithm.samples for name, spec in specs.items()}
    assert [trainings[name] for name in ("annealing", "random-100", "lattice-20", "ols")] == [100, 100, 20, 30]
    assert (specs["fedpref-ols"].algorithm.inner, specs["fedpref-ols"].algorithm.threshold) == ("fedpref", 5)
    assert specs["gaussian-annealing-warm"].algorithm.warm_start


def test_the_whole_front_is_known_once_its_last_point_is():
    """Up to the rounding of rewards in single precision, and whatever else is in a front."""
    rounded = FRONT.astype(np.float32).astype(np.float64)
    fronts = [rounded[:4], np.vstack([rounded[:9], [[23.6, -19.0]]]), rounded]
    growth = Growth([5, 10, 15], fronts)
    assert [mofld_runs.points_found(front, FRONT) for front in fronts] == [4, 9, 10]
    assert growth.trainings_until_complete(FRONT) == 15
    assert Growth([5, 10], fronts[:2]).trainings_until_complete(FRONT) is None
    assert growth.hypervolumes(REFERENCE)[-1] == pytest.approx(994.3)


def test_how_long_it_took_names_the_seeds_that_never_got_there():
    assert mofld_generators.complete([20, 30, 40]) == "30"
    assert mofld_generators.complete([20, None, 30]) == "25 (2 of 3 seeds)"
    assert mofld_generators.complete([None, None]) == "never"


def test_a_search_that_ended_keeps_its_front():
    places, values = mofld_runs.mean_over_trainings([([2, 4, 6], [1.0, 2.0, 3.0]), ([2, 4], [5.0, 7.0])])
    assert places == [2, 4, 6]
    assert values.tolist() == [[1, 2, 3], [5, 7, 7]]
    places, values = mofld_runs.mean_over_trainings([([2, 4, 6], [1.0, 2.0, 3.0]), ([3, 7], [5.0, 7.0])])
    assert places == [3, 4, 6, 7]
    assert values.tolist() == [[1, 2, 3, 3], [5, 5, 5, 7]]


def test_fronts_are_read_from_the_first_line_that_has_them(tmp_path):
    lines = [
        {"seed": 3, "round": 0, "trainings": 0, "front": []},
        {"seed": 3, "round": 1, "trainings": 2, "front": [[1.0, -1.0]]},
        {"seed": 3, "round": 2, "trainings": 2, "front": [[1.0, -1.0]]},
        {"seed": 3, "round": 3, "trainings": 4, "front": [[1.0, -1.0], [2.0, -2.0]]},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (growth,) = mofld_runs.growths(tmp_path, [3])
    assert growth.trainings == [2, 4]
    assert growth.front.tolist() == [[1, -1], [2, -2]]
    with pytest.raises(UserError, match="seed 4 found nothing"):
        mofld_runs.growths(tmp_path, [3, 4])


def test_without_a_known_front_igd_is_measured_from_all_solutions():
    def found(*fronts):
        return Fronts([Growth([1], [np.array(front)]) for front in fronts], None, 1)

    several = {
        ("moll", "2/2k/T"): found([[0, 0, 0, 1.0], [0, 0, 1.0, 0]]),
        ("moll", "non-fed"): found([[0, 0, 0, 0.5]], [[1.0, 0, 0, 0]]),
    }
    assert len(mofld.whole_front("moll", several)) == 3
    assert [row["configuration"] for row in mofld.rows_of(several)] == ["2/2k/T", "non-fed"]
    files = mofld._series(published.FIGURES["fig-3.4b"], "moll", several)
    assert [series.points.tolist() for series in files] == [[[0, 0]]]


# -- claims --------------------------------------------------------------------------------------------------------


def claim(values, name):
    (found,) = [one for one in mofld.verdicts(values) if one.name == name]
    return found


def test_what_holds_on_the_thesis_own_numbers():
    found = {one.name: one for one in mofld.holds_as_published()}
    holding = {"federated-matches", "more-clients-match", "warm-start-undecided", "warm-start-hurts"}
    assert {name for name, one in found.items() if one.verdict == "holds"} == holding
    assert {one.verdict for name, one in found.items() if name not in holding} == {"holds in part"}
    counts = {name: one.detail.partition(" comparisons")[0] for name, one in found.items()}
    assert counts["federated-larger-hypervolume"] == "32 of 36"
    assert counts["more-clients-larger-hypervolume"] == "10 of 12"
    assert counts["warm-start-undecided"] == "7 of 27"
    assert "DMC 3/10k/T (819.2 against non-fed 879.8)" in found["federated-larger-hypervolume"].detail


def test_claims_are_judged_on_what_was_run():
    values = {key: value for key, value in mofld.published_values().items() if key[1] == "moll"}
    found = claim(values, "federated-larger-hypervolume")
    assert found.verdict == "holds"
    assert found.detail.endswith("not run: DMC")
    assert claim(values, "federated-matches").verdict == "cannot be judged"
    del values["hypervolume", "moll", "2/5k/T"]
    found = claim(values, "federated-larger-hypervolume")
    assert found.verdict == "holds in part"
    assert "1 more lack a value" in found.detail


def test_claims_break_where_the_numbers_do():
    values = mofld.published_values()
    values["hypervolume", "dst", "2/2k/F"] = 0.97 * values["hypervolume", "dst", "non-fed"]
    assert "not in DST 2/2k/F" in claim(values, "federated-matches").detail
    for steps in ("2k", "5k", "10k"):
        for clients in (2, 3, 5):
            for environment in published.ENVIRONMENTS:
                values["hypervolume", environment, f"{clients}/{steps}/T"] = 0.0
    assert claim(values, "warm-start-undecided").verdict == "does not hold"
    del values["hypervolume", "dst", "2/2k/T"]
    assert claim(values, "warm-start-undecided").verdict == "cannot be judged", "the one that is missing may differ"
