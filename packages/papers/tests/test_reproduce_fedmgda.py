"""FedMGDA+'s figures 1 to 4 and table VI: what was published, what is run, how it is measured, what is concluded."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs import runner
from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto_papers import catalogue, client_runs
from fedpareto_papers.client_runs import Values
from fedpareto_papers.fedmgda import published
from fedpareto_papers.fedmgda import reproduction as fedmgda
from fedpareto_papers.study import Cell, find

NAMES = list(published.FIGURES)
WRITERS = ("mnist", "qmnist")
"""The data sets of MNIST by writer."""


def prepared(name, **options):
    return catalogue.prepare(name, catalogue.Options(**options))


def quick(name, folder, **options):
    """Runs a tiny version; gives the outcome and what was said."""
    said = []
    study = prepared(name, quick=True, **({"seeds": 1} | options))
    return study.run(folder, said.append, lambda: False), said


# -- what was published --------------------------------------------------------------------------------------------


def test_table_6_says_what_the_text_says_of_it():
    claims = {claim.name: claim.verdict for claim in fedmgda.holds_as_published()}
    assert claims == {
        "fedmgda-plus-best-average": "holds",
        "fedmgda-plus-as-even-as-q-fedavg": "holds",
        "fedmgda-plus-beats-fedmgda": "holds",
        "fedmgda-plus-beats-fedavg-n": "holds",
    }


@pytest.mark.parametrize("pair", [("fedavg", "fedprox"), ("fedmgda-plus", "mgda-prox")])
def test_with_one_full_batch_a_round_the_proximal_term_does_nothing(pair):
    """So the paper's table VI has equal numbers within 0.01, and ours to the last bit."""
    first, second = (published.TABLE_6[name]["average"].mean for name in pair)
    assert second == pytest.approx(first, abs=0.00011)
    study = prepared("fedmgda-fig-4", problems=("convex",), rounds=3, seeds=1)
    sizes = study.batch_size("convex")
    found = []
    for name in pair:
        (variant,) = [one for one in study.variants["convex"] if one.algorithm == name]
        found.append(runner.start(study.cell("convex", variant, sizes).spec()).models[0][0])
    assert torch.equal(*found)


def test_decays_are_those_of_the_published_scripts():
    """0.89 (in figure 3, right, 0.884) every 100 rounds."""
    for name, case, left in (
        ("fedmgda-fig-4", "cifar10-b10", 0.89**20),
        ("fedmgda-fig-4", "cifar10-full", 0.89**30),
        ("fedmgda-fig-3", "cifar10-full", 0.884**30),
    ):
        decays = [one.own["decay"] for one in published.FIGURES[name].variants[case] if "decay" in one.own]
        assert decays == [pytest.approx(left, rel=0.1)] * 3


# -- what is run ---------------------------------------------------------------------------------------------------


def spec_of(name, case, variant):
    study = prepared(name)
    (chosen,) = [one for one in study.variants[case] if one.short == variant]
    return study.cell(case, chosen, published.CASES[case].batch_size or 7).spec()


def test_every_run_has_a_spec_and_a_folder_of_its_own():
    for name in NAMES:
        study = prepared(name)
        cells = [study.cell(case, one, 7) for case, variants in study.variants.items() for one in variants]
        assert len({cell.name for cell in cells}) == len(cells)
        for cell in cells:
            spec = cell.spec()
            assert len(spec.seeds) == published.FIGURES[name].seeds


def test_figures_3_and_4_share_runs():
    names = [
        {study.cell(case, one, 7).name for case, variants in study.variants.items() for one in variants}
        for study in (prepared(f"fedmgda-fig-{number}") for number in (3, 4))
    ]
    assert "fedmgda-users/cifar10-b10/fedavg" in names[0] & names[1]


def test_cifar_runs_are_as_the_paper_says():
    spec = spec_of("fedmgda-fig-3", "cifar10-b10", "fedmgda-plus")
    assert (spec.rounds, spec.clients, spec.participation, len(spec.seeds)) == (2000, 100, 0.1, 4)
    assert (spec.learner.lr, spec.learner.batch_size, spec.learner.epochs, spec.learner.momentum) == (0.01, 10, 1, 0)
    assert (spec.problem.partition, spec.problem.shards, spec.problem.shards_per_client) == ("shards", 500, 5)
    assert (spec.algorithm.server_lr, spec.algorithm.decay, spec.algorithm.epsilon) == (1.5, 0.1, 1)
    assert spec.algorithm.decay_every == 100
    full = spec_of("fedmgda-fig-3", "cifar10-full", "q-fedavg")
    assert (full.rounds, full.learner.lr, full.algorithm.q, full.algorithm.lipschitz) == (3000, 0.1, 0.1, 0.1)


@pytest.mark.parametrize(
    ("name", "case", "parameters"),
    [
        ("fedmgda-fig-3", "cifar10-b10", 797_962),
        ("fedmgda-fig-4", "fashion-mnist-full", 21_840),
        # Table IV has 62 classes, digits have 10.
        ("fedmgda-table-6", "mnist-writers", 1_206_590 - 52 * 129),
        ("fedmgda-fig-2", "adult-bias", 2 * 99 + 2),
    ],
)
def test_models_are_as_large_as_in_the_papers_tables(name, case, parameters):
    assert spec_of(name, case, "fedmgda-plus").problem.layout.size == parameters


def test_figure_1_goes_from_fedavg_to_fedmgda_without_normalising():
    variants = published.FIGURES["fedmgda-fig-1"].variants["cifar10-iid"]
    assert {one.algorithm for one in variants} == {"fedmgda"}
    assert [one.own["epsilon"] for one in variants] == [0, 0.05, 0.1, 0.5, 1]
    assert spec_of("fedmgda-fig-1", "cifar10-iid", "fedmgda,epsilon=0.05").measure_losses


def test_the_attacks_are_those_of_section_6():
    bias = spec_of("fedmgda-fig-2", "adult-bias", "afl,bias=1").attack
    assert (bias.kind, bias.strength, bias.clients, bias.from_round) == ("bias", 1, (published.PHD,), 1)
    scaling = spec_of("fedmgda-fig-2", "cifar10-scaling", "fedavg,scaling=10").attack
    assert (scaling.kind, scaling.strength, len(scaling.clients), scaling.always) == ("scaling", 10, 1, True)
    honest = spec_of("fedmgda-fig-2", "cifar10-scaling", "fedavg").attack
    assert honest == replace(scaling, strength=1), "the same users take part, attacked or not"
    assert spec_of("fedmgda-fig-2", "adult-bias", "afl").attack.kind == "none"
    assert spec_of("fedmgda-fig-3", "cifar10-b10", "fedavg").attack.kind == "none"


@pytest.mark.needs_data("adult")
def test_the_first_user_of_adult_holds_the_doctors():
    problem = spec_of("fedmgda-fig-2", "adult-bias", "afl").problem
    assert problem.data(2, 0)["train"].counts.tolist() == [413, 32_148]


@pytest.mark.parametrize("always", [False, True])
def test_an_attacker_that_is_always_there_takes_the_place_of_another(always):
    draft = {
        "algorithm": "fedavg",
        "problem": "convex",
        "clients": 10,
        "rounds": 12,
        "participation": 0.2,
        "measure_losses": True,
        "attack": {"kind": "scaling", "clients": [3], "always": always},
        "engine": {"threads": 1, "chunk": 10},
    }
    result = runner.start(Draft(draft).finish())
    present = [result.columns.participants(row).tolist() for row in result.history[:-1]]
    assert {len(one) for one in present} == {2}
    assert len({client for one in present for client in one}) > 5
    assert all(3 in one for one in present) is always


def test_the_user_decides_on_size():
    study = prepared("fedmgda-fig-4", rounds=300, seeds=3, clients=20, problems=("fashion-mnist-full",))
    spec = study.cell("fashion-mnist-full", study.variants["fashion-mnist-full"][0], 7).spec()
    assert (spec.rounds, spec.clients, spec.participation, spec.problem.shards) == (300, 20, 0.5, 100)
    assert spec.evaluate_every == 5
    assert (spec.algorithm.name, spec.algorithm.decay, spec.algorithm.decay_every) == ("fedmgda-plus", 1 / 30, 10)
    assert "6 runs of 300 rounds, 3 seeds" in study.headline


def test_cases_and_algorithms_are_chosen_by_name():
    study = prepared("fedmgda-fig-4", problems=("cifar10", "convex"), algorithms=("fedavg", "fedmgda-plus"))
    assert {case: [one.algorithm for one in chosen] for case, chosen in study.variants.items()} == {
        case: ["fedmgda-plus", "fedavg"] for case in ("cifar10-b10", "cifar10-full", "convex")
    }
    assert list(prepared("fedmgda-fig-2", algorithms=("afl",)).variants) == ["adult-bias"]


@pytest.mark.parametrize(
    ("options", "word"), [({"problems": ("cifar",)}, "cifar10"), ({"algorithms": ("fedmgda-puls",)}, "fedmgda-plus")]
)
def test_an_unknown_name_comes_with_the_closest(options, word):
    with pytest.raises(UnknownName, match=word):
        prepared("fedmgda-fig-3", **options)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(UserError, match="no choice of preferences"):
        prepared("fedmgda-fig-1", preferences=("uniform",))
    with pytest.raises(UserError, match="name the part"):
        prepared("fedmgda-fig-1", settings=("rounds=3",))
    with pytest.raises(UserError, match="clients is 7, but here the users are given: Adult, bias has 2"):
        prepared("fedmgda-fig-2", problems=("adult-bias",), clients=7)
    prepared("fedmgda-fig-2", clients=7)  # CIFAR-10 has a choice.


def test_settings_reach_every_run():
    study = prepared("fedmgda-fig-3", settings=("engine.device=cuda",))
    cell = study.cell("cifar10-b10", study.variants["cifar10-b10"][0], 10)
    assert cell.spec(study.options.settings).engine.device == "cuda"


# -- cells and what they give back ---------------------------------------------------------------------------------


def test_a_cell_gives_what_its_run_gave(tmp_path):
    draft = {
        "algorithm": "fedavg",
        "problem": "convex",
        "clients": 5,
        "rounds": 5,
        "seeds": 2,
        "participation": 0.6,
        "evaluate_every": 2,
        "measure_losses": True,
        "engine": {"threads": 1, "chunk": 10},
    }
    cell = Cell("a/cell", draft, client_runs.read, keeps_models=False)
    found = find((), tmp_path, cell, lambda: False)
    result = runner.start(Draft(draft).finish())
    assert found.is_new
    assert found.result.sent.rounds.tolist() == [0, 2, 4, 5]
    assert found.result.trained.rounds.tolist() == [0, 2, 4]
    assert np.isnan(found.result.trained.last()).sum(axis=1).tolist() == [2, 2]
    for seed, solutions in enumerate(result.solutions):
        np.testing.assert_allclose(found.result.sent.last()[seed], solutions.values["test"][:, 0])
        shares = result.share_improved()[seed]
        assert found.result.improved.rounds.tolist() == list(shares)
        np.testing.assert_allclose(found.result.improved.values[seed, :, 0], list(shares.values()))
    assert not list((tmp_path / "a" / "cell").glob("*.safetensors")), "a hundred copies of a network are large"
    again = find((), tmp_path, cell, lambda: False)
    assert not again.is_new
    np.testing.assert_array_equal(again.result.losses.values, found.result.losses.values)


def test_a_stopped_cell_goes_on(tmp_path):
    draft = {"algorithm": "fedavg", "problem": "convex", "rounds": 4, "engine": {"threads": 1, "chunk": 10}}
    cell = Cell("cell", draft, client_runs.read)
    with pytest.raises(Stopped):
        find((), tmp_path / "a", cell, lambda: True)
    resumed, whole = (find((), tmp_path / name, cell, lambda: False) for name in "ab")
    np.testing.assert_array_equal(resumed.result.sent.values, whole.result.sent.values)


def test_the_best_round_is_that_of_the_largest_mean():
    values = Values(np.arange(3), np.array([[[1.0, 2], [4, 4], [9, np.nan]], [[3, 3], [0, 5], [1, 1]]]))
    np.testing.assert_array_equal(values.best(), [[9, np.nan], [3, 3]])
    np.testing.assert_array_equal(values.last(), [[9, np.nan], [1, 1]])
    np.testing.assert_array_equal(values.means(), [[1.5, 4, 9], [3, 2.5, 1]])


# -- quick versions ------------------------------------------------------------------------------------------------


@pytest.mark.needs_data("adult")
def test_the_attack_on_adult_runs_and_is_read_the_second_time(tmp_path, monkeypatch):
    options = {"problems": ("adult-bias",), "algorithms": ("q-fedavg", "fedmgda-plus", "local")}
    outcome, said = quick("fedmgda-fig-2", tmp_path, **options)
    assert len(said) == 6
    rows = {row["variant"].split(",")[0] + str("bias" in row["variant"]): row for row in outcome.record["rows"]}
    pooled = {name: row["metrics"]["pooled"]["ours"] for name, row in rows.items()}
    assert pooled["fedmgda-plusTrue"] == pooled["fedmgda-plusFalse"], "no bias changes a direction"
    # The bias is so large that the other user counts for nothing.
    assert pooled["q-fedavgTrue"] == pytest.approx(pooled["localFalse"], abs=0.02)
    assert pooled["q-fedavgTrue"] != pooled["q-fedavgFalse"]
    assert {path.suffix for path in outcome.files} == {".json", ".csv", ".png", ".pdf"}
    assert outcome.record["claims"] == [], "of a quick run nothing is concluded"
    assert json.loads((tmp_path / "fedmgda-fig-2.json").read_text()) == outcome.record

    def refuse(*arguments, **options):
        raise AssertionError("a finished run is read, not repeated")

    monkeypatch.setattr(Experiment, "_one_round", refuse)
    again, said = quick("fedmgda-fig-2", tmp_path, **options)
    assert all("already done" in line for line in said)
    assert again.record == outcome.record


@pytest.mark.needs_data("adult")
def test_training_on_doctors_alone_is_judged_on_everybody(tmp_path):
    """Against a logistic regression by hand."""
    study = prepared("fedmgda-fig-2", quick=True, seeds=1, problems=("adult-bias",), algorithms=("local",))
    (cell,) = study.cells()
    found = find((), tmp_path, cell, lambda: False)
    spec = cell.spec()
    measured = fedmgda.on_adult(found, spec)

    from fedpareto.record.checkpoint import Checkpoint

    model = Checkpoint.load(found.folder / client_runs.MODELS).tensors["seed0/client0"]
    parts = list(spec.problem.layout.unflatten(model[None]).values())
    weight, bias = sorted((part[0] for part in parts), key=torch.numel, reverse=True)
    test, right = spec.problem.data(2, 0)["test"], []
    for user in range(2):
        rows = test.of_client(user)
        inputs = rows["input"].to(model.dtype)
        weights = weight if weight.shape[0] == inputs.shape[1] else weight.T
        right.append(((inputs @ weights + bias).argmax(1) == rows["label"]).double())
    assert measured["phd"] == [pytest.approx(float(right[0].mean()))]
    assert measured["non-phd"] == [pytest.approx(float(right[1].mean()))]
    assert measured["pooled"] == [pytest.approx(float(torch.cat(right).mean()))]


def on_data(name, case, algorithms, settings, sets):
    return pytest.param(name, case, algorithms, settings, marks=pytest.mark.needs_data(*sets), id=f"{name}-{case}")


@pytest.mark.parametrize(
    ("name", "case", "algorithms", "settings"),
    [
        on_data("fedmgda-fig-1", "cifar10-shards", (), ("problem.model=logistic",), ["cifar10"]),
        on_data("fedmgda-fig-2", "cifar10-scaling", ("q-fedavg",), ("problem.model=logistic",), ["cifar10"]),
        on_data("fedmgda-fig-3", "cifar10-full", ("fedmgda-plus",), (), ["cifar10"]),
        on_data("fedmgda-fig-4", "fashion-mnist-full", ("fedmgda-plus", "q-fedavg"), (), ["fashion-mnist"]),
        on_data("fedmgda-fig-4", "convex", (), (), []),
        on_data("fedmgda-table-6", "mnist-writers", ("fedavg", "fedmgda-plus"), ("problem.model=logistic",), WRITERS),
    ],
)
def test_quick_versions_run(tmp_path, name, case, algorithms, settings):
    outcome, _ = quick(name, tmp_path, problems=(case,), algorithms=algorithms, settings=settings, clients=2)
    rows = outcome.record["rows"]
    shown = set(fedmgda.COLUMNS[name]) - {"pooled", "phd", "non-phd"} - ({"average"} if case == "convex" else set())
    for row in rows:
        assert set(row["metrics"]) >= shown
        assert all(np.isfinite(metric["ours"]) for metric in row["metrics"].values())
    assert not any("checked below" in str(line) for line in outcome.shown)
    if name == "fedmgda-table-6":
        assert rows[0]["metrics"]["average"]["published"] == {"mean": 0.876, "deviation": 0.002}
        assert any("compare the order" in str(line) for line in outcome.shown)


@pytest.mark.needs_data(*WRITERS)
def test_a_full_batch_is_the_largest_users(tmp_path):
    study = prepared("fedmgda-table-6", quick=True)
    spec = study.cells()[0].spec()
    counts = np.concatenate([spec.problem.data(spec.clients, seed)["train"].counts for seed in spec.seeds])
    assert spec.learner.batch_size == counts.max()
    assert counts.min() < counts.max()
