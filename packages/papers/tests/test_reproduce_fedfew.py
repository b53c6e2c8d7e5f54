"""The paper on FedFew again: what was published, what is run, how it is scored, and what becomes of its claims."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto_papers import catalogue
from fedpareto_papers.client_runs import ClientResults, Values, read
from fedpareto_papers.fedfew import claims as fedfew_claims
from fedpareto_papers.fedfew import published
from fedpareto_papers.fedfew import reproduction as fedfew
from fedpareto_papers.fedfew import shown as fedfew_shown
from fedpareto_papers.fedfew.claims import Descent, Smoothed
from fedpareto_papers.fedfew.published import ALGORITHMS, COLUMNS, FEDFEW, STUDIED
from fedpareto_papers.study import Cell, Found

NAMES = [name for name, entry in catalogue.CATALOGUE.items() if entry.module == "fedfew.reproduction"]
WRITERS = ("mnist", "qmnist")
"""The data sets of MNIST by writer."""
SMALL = ("problem.model=mlp", "problem.hidden=[4]", "learner.lr=0.1")


def quick(name, folder, settings=SMALL, **options):
    """Runs a tiny version; gives the outcome and what was said."""
    said = []
    study = catalogue.prepare(name, catalogue.Options(quick=True, settings=settings, **options))
    return study.run(folder, said.append, lambda: False), said


def specs(name, **options):
    """The specs of a study by column and label."""
    study = catalogue.prepare(name, catalogue.Options(**options))
    return {(run.column, run.label): study.cell(run).spec() for run in study.runs}


# -- what was published --------------------------------------------------------------------------------------------

BOLD = ["fedrep", "fedfew", "fedfew", "apfl", "fedfew", "fedfew", "fedfew", "fedfew", "fedfew"]


def test_the_values_in_bold_are_the_best_of_their_columns():
    """An independent check of what was typed in."""
    for (column, row), best in zip(published.TABLE_1.items(), BOLD, strict=True):
        assert row[best].mean == max(entry.mean for entry in row.values()), column
        assert list(row) == list(ALGORITHMS)


def test_table_5_follows_from_table_1():
    """Jain's index is 1 / (1 + (σ/mean)²): two tables, typed in apart, agree in every cell that both have."""
    both = [
        (1 / (1 + (entry.deviation / entry.mean) ** 2), index)
        for column, row in published.TABLE_5.items()
        for algorithm, index in row.items()
        if (entry := published.TABLE_1.get(column, {}).get(algorithm)) is not None
    ]
    assert len(both) == 35
    assert all(abs(ours - theirs) < 6e-4 for ours, theirs in both)


def test_the_differences_that_the_text_names_are_those_of_table_1():
    def lead(column, other):
        row = published.TABLE_1[column]
        return round(row[FEDFEW].mean - row[other].mean, 2)

    assert lead("cifar100-20", "apfl") == 7.02
    assert lead("tiny-imagenet", "fedrep") == 3.07
    assert lead("ag-news", "fedrep") == 1.39


def test_tables_1_and_6_agree_on_three_models():
    assert published.TABLE_6["ag-news"][3].mean == pytest.approx(published.TABLE_1["ag-news"][FEDFEW].mean, abs=0.1)


def test_three_baselines_are_the_same_but_for_chance():
    """Ditto, FedMTL and FedAMP as published: local training, since their regularisers are switched off there."""
    for row in published.TABLE_1.values():
        means = [row[name].mean for name in ("ditto", "mocha", "fedamp")]
        assert max(means) - min(means) <= 0.21 + 1e-9


def test_what_the_paper_claims_is_not_always_what_its_tables_say():
    verdicts = {
        claim.name: claim.verdict
        for claim in (
            *fedfew_claims.on_table_1(fedfew_claims.as_published()),
            *fedfew_claims.on_jain(fedfew_claims.jain_as_published()),
            *fedfew_claims.on_table_6(
                {column: {K: one.mean for K, one in row.items()} for column, row in published.TABLE_6.items()}
            ),
        )
    }
    assert verdicts == {
        "outperforms-all": "holds in part",
        "first-or-second": "holds",
        "beats-fedrep-pathological": "holds",
        "beats-best-cifar100": "holds",
        "beats-fedrep-ag-news": "holds",
        "beats-ifca": "holds",
        "beats-fedavg": "holds",
        "jain-near-highest": "holds in part",
        "jain-beats-ifca": "holds in part",
        "best-k-depends": "holds in part",
    }


# -- what is run ---------------------------------------------------------------------------------------------------


def test_the_runs_of_table_1_are_as_table_4_says():
    found = specs("fedfew-table-1")
    assert len(found) == len(published.USUAL) * 10
    for (column, label), spec in found.items():
        assert (spec.clients, spec.rounds, spec.seeds) == (20, 300 + 1, (0, 1, 2))
        assert (spec.learner.epochs, spec.learner.lr, spec.learner.momentum) == (1, 0.005, 0.0)
        assert spec.learner.batch_size == (100 if column in ("ag-news", "mnist-writers") else 50)
        assert spec.evaluate_every == 25
        assert spec.problem.test_share == 0.25
        assert spec.problem.files == "merged"
        assert spec.algorithm.name == label
        assert spec.participation == 1.0
    few = found["cifar10-20", FEDFEW].algorithm
    assert (few.models, few.mu, few.server_lr, few.initial) == (3, 0.01, 1.0, "distinct")
    assert found["cifar10-20", "ifca"].algorithm.models == 3
    assert found["cifar10-20", "fedrep"].algorithm.head_epochs == 1
    assert (found["cifar10-20", FEDFEW].problem.partition, found["cifar10-20", FEDFEW].problem.alpha) == (
        "dirichlet",
        0.5,
    )
    assert found["cifar100-pathological-20", FEDFEW].problem.classes_per_client == 2
    assert found["mnist-writers", FEDFEW].problem.partition == "natural"


def test_the_regularisers_of_the_baselines_are_on():
    found = specs("fedfew-table-1", problems=(STUDIED,))
    assert found[STUDIED, "fedprox"].algorithm.mu > 0
    assert found[STUDIED, "ditto"].algorithm.strength > 0
    assert found[STUDIED, "mocha"].algorithm.strength > 0


def test_the_studies_share_the_run_that_they_have_in_common():
    cells = set()
    for name in NAMES:
        study = catalogue.prepare(name, catalogue.Options())
        run = next(run for run in study.runs if run.label == FEDFEW)
        cells.add((name, run.column, json.dumps(study.cell(run).draft, sort_keys=True)))
    drafts = {draft for _, column, draft in cells if column == STUDIED}
    assert len([name for name, column, _ in cells if column == STUDIED]) >= 5
    assert len(drafts) == 1


def test_local_epochs_and_rounds_make_up_the_same_number_of_updates():
    for spec in specs("fedfew-fig-4").values():
        assert (spec.rounds - 1) * spec.learner.epochs == pytest.approx(300, abs=8)
    assert [spec.learner.epochs for spec in specs("fedfew-fig-3").values()] == [1, 2, 4, 8, 16]


def test_k_and_mu_reach_the_algorithm():
    models = [spec.algorithm.models for (_, label), spec in specs("fedfew-fig-2").items() if label != "fedavg"]
    assert models == [1, 2, 3, 5, 10]
    assert [spec.algorithm.mu for spec in specs("fedfew-mu").values()] == [0.001, 0.01, 0.1, 1.0]
    table_6 = specs("fedfew-table-6")
    assert {column for column, _ in table_6} == {"ag-news", "pneumonia-mnist"}
    assert [spec.algorithm.models for (column, _), spec in table_6.items() if column == "ag-news"] == [1, 2, 3, 4, 5]
    assert table_6["pneumonia-mnist", FEDFEW].clients == 5


def test_columns_algorithms_and_settings_can_be_chosen():
    found = specs(
        "fedfew-table-1",
        problems=("cifar100", "ag-news", "mnist-writers"),
        algorithms=("fedfew", "fedfew-as-published"),
        settings=("engine.device=cpu", "problem.rows=500"),
        seeds=2,
        rounds=40,
        clients=6,
    )
    assert {column for column, _ in found} == {
        "cifar100-pathological-10",
        "cifar100-pathological-20",
        "cifar100-10",
        "cifar100-20",
        "ag-news",
        "mnist-writers",
    }
    assert found["mnist-writers", FEDFEW].problem.rows == 0  # Of 70,000 rows a writer has 84.
    spec = found["ag-news", "fedfew-as-published"]
    assert (spec.algorithm.initial, spec.algorithm.loss, spec.problem.rows) == ("identical", "during", 500)
    assert (spec.seeds, spec.rounds, spec.clients, spec.evaluate_every) == ((0, 1), 41, 6, 2)
    full = specs("fedfew-table-1", problems=(STUDIED,), algorithms=("fedfew-full-step",))
    assert full[STUDIED, "fedfew-full-step"].algorithm.server_lr == 3


def test_the_headline_states_the_cost():
    def cost(**options):
        return catalogue.prepare("fedfew-table-1", catalogue.Options(problems=(STUDIED,), **options)).cost()

    # 9,000 rows, 300 rounds, 3 seeds; FedFew trains 3 models and measures each (a third of the work of a step).
    assert cost(algorithms=("fedavg",)) == 9_000 * 300 * 3
    assert cost(algorithms=(FEDFEW,)) == pytest.approx(4 * cost(algorithms=("fedavg",)))
    assert cost(algorithms=("ifca",)) == pytest.approx(2 * cost(algorithms=("fedavg",)))
    assert cost(algorithms=("fedavg",), settings=("problem.rows=6000",)) == 4_500 * 900
    assert "million rows" in catalogue.prepare("fedfew-table-1", catalogue.Options()).headline
    quickly = catalogue.Options(quick=True, problems=(STUDIED,), algorithms=("fedavg",))
    assert "million" not in catalogue.prepare("fedfew-table-1", quickly).headline


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("fedfew-table-1", {"problems": ("cifar",)}, "cifar10"),
        ("fedfew-table-1", {"algorithms": ("fedfews",)}, "fedfew"),
    ],
)
def test_an_unknown_name_comes_with_the_closest(name, options, word):
    with pytest.raises(UnknownName, match=word):
        catalogue.prepare(name, catalogue.Options(**options))


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("fedfew-mu", {"problems": (STUDIED,)}, "no choice of problems"),
        ("fedfew-fig-2", {"algorithms": ("fedavg",)}, "no choice of algorithms"),
        ("fedfew-table-1", {"preferences": ("dirichlet",)}, "no choice of preferences"),
        ("fedfew-table-1", {"settings": ("lr=3",)}, "name the part"),
        ("fedfew-table-1", {"settings": ("problem.model=mlp",)}, "model of ag-news"),
    ],
)
def test_what_a_study_does_not_have_is_refused(name, options, word):
    with pytest.raises(UserError, match=word):
        catalogue.prepare(name, catalogue.Options(**options))


# -- running -------------------------------------------------------------------------------------------------------


@pytest.mark.needs_data("cifar10")
def test_a_quick_table_1_has_both_evaluations_of_every_algorithm_and_is_resumed(tmp_path):
    algorithms = ("local", "fedavg", "ditto", FEDFEW)
    outcome, said = quick("fedfew-table-1", tmp_path, problems=(STUDIED,), algorithms=algorithms)
    assert len(said) == 4
    rows = {row["label"]: row for row in outcome.record["rows"]}
    assert list(rows) == list(algorithms)
    for row in rows.values():
        assert row["sent"]["rounds"] == row["trained"]["rounds"] == [0, 1, 2]
        assert set(row["scored"]) == {"paper", "sent", "trained"}
        assert 0 <= row["sent"]["last"][0]["worst"] <= row["sent"]["last"][0]["mean"] <= 1
    # What FedAvg sends first is the initial model: training moves it, and so the two evaluations.
    first = rows["fedavg"]["sent"]["means"][0][0], rows["fedavg"]["trained"]["means"][0][0]
    assert first[0] != first[1]
    assert outcome.shown[0].title == "CIFAR-10, Dirichlet, M = 3 instead of 20"
    assert not outcome.record["claims"]
    assert {file.name for file in outcome.files} == {f"fedfew-table-1.{end}" for end in ("json", "csv", "png", "pdf")}
    assert len((tmp_path / "fedfew-table-1.csv").read_text().splitlines()) == 1 + 4 * 3
    again, said = quick("fedfew-table-1", tmp_path, problems=(STUDIED,), algorithms=algorithms)
    assert all("already done" in line for line in said)
    assert again.record["rows"] == outcome.record["rows"]
    jain, said = quick("fedfew-jain", tmp_path, problems=(STUDIED,), algorithms=("fedavg", FEDFEW))
    assert all("already done" in line for line in said)
    assert set(jain.record["jain"]["sent"]) == {f"{STUDIED}/fedavg", f"{STUDIED}/{FEDFEW}"}


@pytest.mark.needs_data("cifar10")
@pytest.mark.parametrize("name", ["fedfew-fig-2", "fedfew-fig-4", "fedfew-mu"])
def test_quick_figures_run_to_the_end(name, tmp_path):
    outcome, _ = quick(name, tmp_path)
    assert all(file.stat().st_size > 0 for file in outcome.files)
    pictures = {
        "fedfew-fig-2": {"fedfew-fig-2a.png", "fedfew-fig-2b.png"},
        "fedfew-fig-4": {"fedfew-fig-3.png", "fedfew-fig-4.png", "fedfew-fig-8.png"},
        "fedfew-mu": {"fedfew-fig-5.png", "fedfew-fig-7.png"},
    }
    assert {file.name for file in outcome.files if file.suffix == ".png"} == pictures[name]
    if name == "fedfew-fig-2":
        assert list(outcome.shown[0].columns[-1].cells) == ["91.3", "at least 89.4", "61.2"]
    if name == "fedfew-mu":
        measured = outcome.record["mu"]["sent"]
        assert measured["0.001"]["entropy"] < measured["1"]["entropy"] <= math.log(3) + 1e-9
        assert measured["0.001"]["largest"] > measured["1"]["largest"] >= 1 / 3 - 1e-9


@pytest.mark.needs_data("pneumonia-mnist")
def test_a_quick_table_6_runs_on_x_rays(tmp_path):
    outcome, _ = quick("fedfew-table-6", tmp_path, problems=("pneumonia-mnist",))
    assert [row["label"] for row in outcome.record["rows"]] == ["fedfew-K1", FEDFEW]


@pytest.mark.needs_data("cifar10")
def test_a_stopped_study_goes_on(tmp_path):
    options = catalogue.Options(quick=True, settings=SMALL, problems=(STUDIED,), algorithms=("local", "fedavg"))
    study = catalogue.prepare("fedfew-table-1", options)
    done = []
    with pytest.raises(Stopped):
        study.run(tmp_path, done.append, lambda: bool(done))
    outcome = study.run(tmp_path, lambda line: None, lambda: False)
    assert len(outcome.record["rows"]) == 2


def on_data(column):
    """A column as a parameter, with the published data sets that it reads."""
    name = COLUMNS[column].problem["name"]
    return pytest.param(column, marks=pytest.mark.needs_data(*WRITERS if name == "mnist-writers" else [name]))


@pytest.mark.parametrize("column", [on_data(column) for column in COLUMNS])
def test_every_column_can_be_partitioned_in_a_quick_run(column):
    study = catalogue.prepare("fedfew-table-1", catalogue.Options(quick=True, problems=(column,)))
    spec = study.cell(study.runs[0]).spec()
    splits = spec.problem.data(spec.clients, 0)
    assert all(rows.counts.min() > 0 for rows in splits.values())


@pytest.mark.parametrize("rounds", [1, 2, 13, 19, 38, 75, 150, 300])
def test_the_last_evaluation_is_after_all_rounds(rounds):
    every = fedfew.evaluated_every(rounds)
    assert rounds % every == 0
    assert rounds // every >= min(rounds, 12)


# -- how runs are scored -------------------------------------------------------------------------------------------


def made_up(algorithm, sent, trained, **own):
    """A run with these accuracies, `[rounds][clients]` of one seed."""
    draft = {"algorithm": {"name": algorithm, **own}, "learner": {"epochs": 1}, "clients": 20, "rounds": 2}
    values = [Values(np.arange(len(one)), np.array([one], dtype=float)) for one in (np.array(sent), np.array(trained))]
    return Found(Cell("", draft, read), None, ClientResults(*values), is_new=False)


def test_the_papers_scoring_takes_the_best_evaluation_of_the_kind_that_its_code_takes():
    sent, trained = [[0.1, 0.3], [0.5, 0.7], [0.4, 0.6]], [[0.8, 0.8], [0.9, 1.0], [0.7, 0.9]]
    for algorithm, expected in (("fedavg", 60.0), ("ifca", 60.0), (FEDFEW, 95.0), ("ditto", 95.0)):
        found = made_up(algorithm, sent, trained)
        assert fedfew_shown.mean_of(found, "paper") == pytest.approx(expected)
        assert fedfew_shown.mean_of(found, "sent") == pytest.approx(50.0)
        assert fedfew_shown.mean_of(found, "trained") == pytest.approx(80.0)
    assert fedfew_shown.deviation_of(found, "sent") == pytest.approx(10.0)
    assert fedfew_shown.worst_of(found, "sent") == pytest.approx(40.0)
    assert fedfew_shown.jain_of(found, "sent") == pytest.approx(1 / (1 + 0.2**2))


def test_both_evaluations_are_of_the_same_round():
    """A run leaves a model behind that nobody trains any more: that one does not count."""
    found = made_up("fedavg", [[0.1], [0.2], [0.9]], [[0.3], [0.4]])
    assert fedfew_shown.mean_of(found, "sent") == pytest.approx(20.0)
    assert fedfew_shown.mean_of(found, "paper") == pytest.approx(20.0)
    assert fedfew_shown.mean_of(found, "trained") == pytest.approx(40.0)


def test_one_algorithm_under_two_names_wins_only_by_the_scoring():
    """FedFew with one model trains like FedAvg: scored as published it outperforms it, scored alike it does not."""
    sent, trained = [[0.5, 0.6]], [[0.8, 0.9]]
    results = {
        (STUDIED, "fedavg"): made_up("fedavg", sent, trained),
        (STUDIED, FEDFEW): made_up(FEDFEW, sent, trained, models=1),
    }
    seen = fedfew_shown.table_1(results)
    verdicts = {one.name: {scoring: verdict for scoring, (verdict, _) in one.verdicts.items()} for one in seen.claims}
    assert verdicts["beats-fedavg"] == {
        "published": "holds",
        "paper": "holds",
        "sent": "does not hold",
        "trained": "does not hold",
    }
    assert verdicts["beats-fedrep-ag-news"]["sent"] == "cannot be judged"
    _, *lines = fedfew_shown.judgements(seen.claims)
    assert lines[0] == "Of 7 claims, by the published numbers: holds in part: 1, holds: 6."
    assert lines[2] == "Of 7 claims, all before local steps: does not hold: 2, holds: 1, cannot be judged: 4."


def test_kendalls_tau_compares_the_order_with_the_published_one():
    scores = {(STUDIED, name): entry.mean / 2 for name, entry in published.TABLE_1[STUDIED].items()}
    upside_down = {key: -value for key, value in scores.items()}
    found = fedfew_shown.orders(STUDIED, {"sent": scores, "trained": upside_down, "paper": {}})
    assert found == {"sent": pytest.approx(1.0), "trained": pytest.approx(-1.0), "paper": None}


# -- claims can fail -----------------------------------------------------------------------------------------------


def verdicts_of(claims):
    return {claim.name: claim.verdict for claim in claims}


def test_claims_of_table_1_fail_where_fedfew_is_last():
    scores = {(column, name): float(place) for column in COLUMNS for place, name in enumerate(ALGORITHMS)}
    assert set(verdicts_of(fedfew_claims.on_table_1(scores)).values()) == {"holds"}
    worst = scores | {(column, FEDFEW): -1.0 for column in COLUMNS}
    assert set(verdicts_of(fedfew_claims.on_table_1(worst)).values()) == {"does not hold"}
    assert set(verdicts_of(fedfew_claims.on_jain(worst)).values()) == {"does not hold"}
    assert set(verdicts_of(fedfew_claims.on_table_1({})).values()) == {"cannot be judged"}


def test_claims_on_k_can_hold_and_fail():
    falls = {1: Descent(2.0, 0.2), 2: Descent(2.0, 0.4), 3: Descent(2.0, 0.6)}
    good = fedfew_claims.on_models({1: 91.3, 2: 90.0, 3: 89.4}, 61.2, falls)
    assert set(verdicts_of(good).values()) == {"holds"}
    bad = fedfew_claims.on_models({1: 60.0, 2: 60.5, 3: 61.0}, 61.2, dict.fromkeys(falls, Descent(1.0, 1.0)))
    assert set(verdicts_of(bad).values()) == {"does not hold"}
    unknown = fedfew_claims.on_models({1: 91.3}, None, {})
    assert set(verdicts_of(unknown).values()) == {"cannot be judged"}


def test_claims_on_local_epochs_can_hold_and_fail():
    good = fedfew_claims.on_epochs({1: 88.0, 16: 87.8}, {1: Descent(1, 0.2), 16: Descent(1, 0.1)})
    assert set(verdicts_of(good).values()) == {"holds"}
    bad = fedfew_claims.on_epochs({1: 88.0, 16: 80.0}, {1: Descent(1, 0.1), 16: Descent(1, 0.2)})
    assert set(verdicts_of(bad).values()) == {"does not hold"}


def test_claims_on_mu_can_hold_and_fail():
    def one(entropy, largest, variation, deviation, worst, mean=88.0):
        return Smoothed(entropy, largest, variation, mean, deviation, worst)

    good = {
        0.001: one(0.012, 0.997, 0.36, 9.1, 70.0),
        0.01: one(0.2, 0.9, 0.2, 9.2, 70.0),
        0.1: one(0.9, 0.5, 0.1, 10.2, 60.0),
        1.0: one(1.098, 0.333, 0.009, 9.4, 70.0),
    }
    assert set(verdicts_of(fedfew_claims.on_mu(good)).values()) == {"holds"}
    bad = {mu: one(1 - mu / 2, 0.5, mu, 9.0 - (mu == 0.1), 60.0 + (mu == 0.1), 80 + 5 * mu) for mu in good}
    assert set(verdicts_of(fedfew_claims.on_mu(bad)).values()) == {"does not hold"}


def test_claims_on_the_best_k_can_fail():
    held = fedfew_claims.on_table_6({"ag-news": {1: 90.0, 5: 91.0}, "pneumonia-mnist": {1: 80.0, 3: 81.0}})
    assert verdicts_of(held) == {"best-k-depends": "holds"}
    failed = fedfew_claims.on_table_6({"ag-news": {1: 92.0, 5: 91.0}, "pneumonia-mnist": {1: 82.0, 3: 81.0}})
    assert verdicts_of(failed) == {"best-k-depends": "does not hold"}


def test_the_table_of_claims_says_what_becomes_of_each_under_every_scoring():
    seen = fedfew_shown.table_1({(STUDIED, name): made_up(name, [[0.5]], [[0.6]]) for name in ("fedavg", FEDFEW)})
    table, *_ = fedfew_shown.judgements(seen.claims)
    columns = [list(column.cells) for column in table.columns]
    place = columns[0].index("FedFew outperforms FedAvg.")
    assert [column[place] for column in columns[2:]] == [
        "holds, 9 of 9",
        "holds, 1 of 1",
        "does not hold, 0 of 1",
        "does not hold, 0 of 1",
    ]
    assert list(fedfew_shown.judgements([])) == []
