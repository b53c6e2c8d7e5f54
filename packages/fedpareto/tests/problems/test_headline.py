"""The headline of a small table: on the test rows of all clients, beside what a constant answer scores."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import fedpareto
from fedpareto.contract.federation import Federation
from fedpareto.moo.indicators import hypervolume
from fedpareto.record.reading import load
from fedpareto.report.comparison import comparison
from fedpareto.runs.central_reference import _together, central, keep_central
from fedpareto.tensors.rows import OWN_TEST

CLIENTS, ROWS = 10, 900


@pytest.fixture(scope="module")
def noise():
    """Nothing predicts the label, so no model is better than a constant; 18 test rows at each client."""
    stream = np.random.default_rng(0)
    columns = {f"x{j}": stream.standard_normal(ROWS) for j in range(8)} | {"gender": stream.choice(["f", "m"], ROWS)}
    frame = pandas.DataFrame(columns | {"good": np.where(stream.random(ROWS) < 0.7, "yes", "no")})
    return fedpareto.table(frame, "good", "gender", hidden=(8,))


@pytest.fixture(scope="module")
def runs(noise):
    learner = {"steps": 40, "lr": 0.02}
    names = ("local", "fedavg")
    return {
        name: fedpareto.run(noise, name, clients=CLIENTS, rounds=2, preferences="equidistant", seeds=2, learner=learner)
        for name in names
    }


def test_rows_of_their_own_flatter_many_clients_and_all_rows_do_not(runs):
    for one, on in zip(runs["local"].solutions, runs["local"].tested, strict=True):
        assert (on.rows, on.smallest) == (180, 18)
        own = hypervolume(one.values[OWN_TEST], one.reference, one.maximise)
        constant = on.constant(one.objectives).hypervolume
        assert constant == pytest.approx(0.7, abs=0.02)
        assert own > constant + 0.05  # luck
        assert one.hypervolume() < constant
        assert one.held_out == "test"


def test_one_model_for_all_is_one_point_on_the_rows_of_all(runs):
    (one, _) = runs["fedavg"].solutions
    assert np.ptp(one.points, axis=0).max() < 1e-6
    assert np.ptp(one.values[OWN_TEST], axis=0).max() > 0.05


def test_a_constant_answer_is_measured_like_any_model(noise, runs):
    """A model with a huge bias says yes to everybody, and no with the opposite one."""
    import torch

    from fedpareto.tensors.rows import Batch

    rows = noise.data(CLIENTS, 0)["test"].of_client(3)
    batch = Batch({name: column[None] for name, column in rows.items()}, torch.ones(1, len(rows["label"])))
    parameters = noise.layout.unflatten(torch.zeros(1, noise.layout.size))
    last = noise.layout.names[-1]
    for sign, expected in zip((-9.0, 9.0), runs["local"].tested[0].constants, strict=True):
        values = noise.evaluate(parameters | {last: torch.full_like(parameters[last], sign)}, batch)
        assert values.numpy() == pytest.approx(expected)


def test_what_clients_have_is_under_their_own_preference_and_regret_is_up_to_the_best(runs):
    local, fedavg = runs["local"], runs["fedavg"]
    for one in local.solutions:
        by_hand = (one.preferences * one.points).sum(axis=1)
        assert one.own_utilities() == pytest.approx(by_hand)
        best = (one.preferences @ one.points.T).max(axis=1)
        assert one.indicators()["regret"] == pytest.approx((best - by_hand).mean())
    assert local.own_utility == pytest.approx(np.mean([one.own_utilities() for one in local.solutions]))
    assert fedavg.regret == pytest.approx(0, abs=1e-6)  # All clients have the same model.
    gains = fedavg.gain_over(local)
    assert np.mean(gains) == pytest.approx(fedavg.own_utility - local.own_utility)
    other = fedpareto.run("synthetic", "local", clients=2, rounds=1, seeds=[7])
    with pytest.raises(fedpareto.UserError, match="the same seeds"):
        fedavg.gain_over(other)


def test_a_run_ends_with_the_constant_and_says_where_rows_are_few(runs):
    lines = runs["local"].summary()
    assert "a constant answer has 0.68" in lines[0]
    assert lines[1].startswith("utility under clients' own preferences")
    smallest = min(on.smallest for on in runs["local"].tested)
    assert lines[2].startswith("on the same rows: against constant ")
    assert (
        lines[3] == f"a client has only {smallest} test rows of its own: its values on them (own-test) are mostly luck"
    )


def test_a_run_that_collapsed_says_so(noise):
    """One step of nearly no length leaves the initial model, which here says the same to everybody."""
    still = {"steps": 1, "lr": 1e-9, "optimiser": "sgd"}
    result = fedpareto.run(noise, "fedavg", clients=3, rounds=1, seeds=[0, 1, 2, 3], learner=still)
    alike = [
        seed
        for seed, one, on in zip(result.spec.seeds, result.solutions, result.tested, strict=True)
        if any(np.allclose(one.points, constant, atol=0.005) for constant in on.constants)
    ]
    assert result.collapsed == alike
    assert 0 < len(alike) < 4
    assert any(line.startswith("collapsed: every model of seed") for line in result.summary())


def test_a_single_client_has_only_its_own_rows(noise):
    assert OWN_TEST not in noise.data(1, 0)


def test_the_central_reference_trains_each_preference_on_the_rows_of_all(runs):
    local = runs["local"]
    found = central(local.spec)
    federations = [_together(local.spec.federation(seed), "table") for seed in local.spec.seeds]
    for federation in federations:
        train = federation.splits["train"]
        assert train.are_shared
        assert train.counts[0] == len(train.columns["label"]) > 500
    for mine, theirs in zip(found.solutions, local.solutions, strict=True):
        assert np.array_equal(mine.preferences, theirs.preferences)
    assert [one.rows for one in found.tested] == [one.rows for one in local.tested]
    # Where nothing can be learnt, 500 rows fool a model less than 50 do.
    assert found.own_utility > local.own_utility
    with pytest.raises(fedpareto.UserError, match="no rows that could lie in one place"):
        _together(Federation(0, (0,), {}, np.ones((1, 2))), "deep-sea-treasure")


def test_the_reference_is_kept_and_stands_in_the_table(noise, tmp_path):
    fedpareto.run(noise, "fedavg", clients=3, rounds=1, out=tmp_path / "run")
    assert "central" not in load(tmp_path / "run").references
    keep_central(tmp_path / "run")
    kept = (tmp_path / "run" / "central.json").read_bytes()
    keep_central(tmp_path / "run")
    assert (tmp_path / "run" / "central.json").read_bytes() == kept
    record = load(tmp_path / "run")
    table = comparison([record])
    assert [row.label for row in table.rows] == ["fedavg", "constant", "plain alone", "plain pooled", "central"]
    points = record.references["central"][0]
    assert table.cell("central", "mean_0").mean == pytest.approx(points[:, 0].mean())
    assert any(note.startswith("Central: for each client's preference") for note in table.notes)
