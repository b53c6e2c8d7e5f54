"""When a run chooses its step sizes on validation rows, what it says of that, and that it stays the same run."""

from __future__ import annotations

import io
import re

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.record import reading
from fedpareto.report import terminal
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.steps import in_words
from fedpareto_papers.praffl.published import PRAFFL_OWN
from folders import assert_same_results, rows


def people(rows_in_all=240, seed=0):
    """Few rows, many columns, and a label that two of them and a coin decide: a network learns the coin by heart."""
    stream = np.random.default_rng(seed)
    x = stream.standard_normal((rows_in_all, 12))
    label = x[:, 0] + x[:, 1] + 1.2 * stream.standard_normal(rows_in_all) > 0
    frame = pd.DataFrame(x, columns=[f"x{i}" for i in range(12)])
    return frame.assign(group=stream.integers(0, 2, rows_in_all), label=label.astype(int))


def table(rows_in_all=240):
    return fedpareto.table(people(rows_in_all), "label", "group", unmeasured="worst")


FAST = {"clients": 4, "rounds": 4, "engine": {"threads": 1, "chunk": 64}}


def run(algorithm, **more):
    return fedpareto.run(table(), algorithm, **{**FAST, **more})


def test_a_step_size_of_the_users_own_is_taken_and_none_is_chosen():
    assert run("fedavg", rounds=1).spec.algorithm.channel.validated
    for more in ({"learner": {"lr": 0.01}}, {"step": "fixed"}):
        found = run("fedavg", rounds=1, **more)
        assert not found.spec.algorithm.channel.validated
        assert "step" not in found.spec.to_mapping()
    assert run("fedavg", rounds=1, learner={"batch_size": 16}).spec.algorithm.channel.validated


def test_without_validation_rows_the_learners_step_is_taken_as_before():
    spec = Draft({"problem": "convex", "clients": 4}).finish()
    assert spec.step == "fixed"
    assert not spec.algorithm.channel.validated
    with pytest.raises(UserError, match=r"step is validated, but 'convex' has no validation rows.*take step=fixed"):
        Draft({"problem": "convex", "clients": 4, "step": "validated"}).finish()


def test_a_spec_of_the_version_before_means_what_it_meant():
    spec = Draft({"problem": "compas", "algorithm": "fedavg"}).finish()
    assert spec.step == "validated"
    before = {key: value for key, value in spec.to_mapping().items() if key != "step"}
    assert "lr" in before["learner"]
    assert Draft(before).finish().step == "fixed"
    assert Draft(spec.to_mapping()).finish().to_mapping() == spec.to_mapping()


def test_noise_is_for_models_and_not_for_step_sizes():
    private = {"privacy": {"kind": "central", "noise": 1.0, "clip": 1.0}, "learner": {"batch_size": 16}}
    one = Draft({"problem": "compas", "algorithm": {"name": "fedavg", "weighting": "equal"}, **private})
    assert one.finish().step == "fixed"
    with pytest.raises(UserError, match="share of the noise"):
        Draft({**one.values, "step": "validated"}).finish()
    own = {"privacy": {"kind": "local", "noise": 1.0, "clip": 1.0}}
    spec = Draft({"problem": "compas", "algorithm": "fedpref", **own}).finish()
    assert spec.step == "validated", "what a client chooses for itself is never sent"


def said(values):
    spec = Draft({"problem": "synthetic", "clients": 3, **values}).finish()
    return spec.beforehand()


def test_where_no_step_size_is_chosen_the_run_says_why():
    noise = {
        "privacy": {"kind": "central", "noise": 1.0, "clip": 1.0},
        "algorithm": {"name": "fedavg", "weighting": "equal"},
    }
    split = {"problem": "compas"}
    (line,) = said({**noise, **split})
    assert re.match(
        r"the step size [\d.]+ is taken as it is, not chosen on validation rows: with privacy.kind=central", line
    )
    assert "share of the noise" in line
    assert said({"algorithm": "fedavg", "problem": "convex"}) == []
    assert said({"algorithm": "fedavg", **split})[0].startswith("step sizes ")
    assert said({"algorithm": "fedavg", "step": "fixed", **split}) == []


def test_what_praffl_costs_is_said_before_it_begins():
    *_, line = said({"algorithm": {"name": "praffl", "body_epochs": 10, "head_epochs": 20, "sampled": 64}})
    assert "30 times, in 20 of them under 64 preferences" in line
    assert "1290 passes of fedavg" in line
    *_, line = said({"algorithm": "praffl+ft"})
    assert "65 passes of fedavg" in line
    # reproduce stays with the paper.
    assert dict(PRAFFL_OWN, balanced=0, used_body=0) == {
        "body_epochs": 10,
        "head_epochs": 20,
        "sampled": 64,
        "balanced": 0,
        "used_body": 0,
    }


def test_it_is_said_before_and_recorded_after(tmp_path):
    found = run("fedavg", out=tmp_path / "common")
    said = "step sizes 0.001, 0.0033, 0.01 are tried on validation rows: each client of the first round"
    assert in_words(found.spec.algorithm, found.spec.learner).startswith(said)
    assert (tmp_path / "common" / "run.json").read_text().count(said) == 1
    assert rows(tmp_path / "common")[-1]["step_factor"] in (0.1, 0.3333, 1.0)
    run("fedpref", out=tmp_path / "own")
    assert sum(rows(tmp_path / "own")[-1]["step_factors"].values()) == FAST["clients"]
    for name in ("common", "own"):
        screen = Console(width=100, record=True, file=io.StringIO())
        screen.print(terminal.show(reading.load(tmp_path / name)))
        text = screen.export_text()
        assert re.search(r"step size +the learner's × (0\.1|0\.3333|1)\b", text)
        assert "1 clients" not in text


@pytest.mark.parametrize("algorithm", ["fedavg", "fedpref", "local", "fedavg+ft", "fedpref+safe"])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path, algorithm):
    spec = run(algorithm, rounds=3, participation=0.6).spec
    whole = start(spec, tmp_path / "whole")
    calls = iter(range(9))
    with pytest.raises(Stopped):
        start(spec, tmp_path / "cut", stop=lambda: next(calls) == 1)
    resume(tmp_path / "cut")
    assert whole is not None
    assert_same_results(tmp_path / "whole", tmp_path / "cut")


def test_local_training_is_not_below_a_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    problem = table(960)
    seeds, clients = 2, 4
    found = {
        step: fedpareto.run(
            problem,
            "local",
            clients=clients,
            rounds=10,
            seeds=seeds,
            preferences="1,0",
            step=step,
            evaluate_every=10,
            engine={"threads": 1, "chunk": 64},
        )
        for step in ("validated", "fixed")
    }
    means = {step: np.mean([one.points[:, 0] for one in each.solutions]) for step, each in found.items()}
    plain = []
    for seed in range(seeds):
        splits = problem.data(clients, seed)
        test = splits["test"].of_client(0)
        for client in range(clients):
            own = splits["train"].of_client(client)
            model = LogisticRegression().fit(own["features"].numpy(), own["label"].numpy())
            plain.append(model.score(test["features"].numpy(), test["label"].numpy()))
    assert means["validated"] >= np.mean(plain) - 0.035, "a network finds a plane that a regression has already"
    assert means["validated"] > means["fixed"] + 0.03, "the default learner overfits here"
