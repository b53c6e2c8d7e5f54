"""A callback sees the rounds of a run, may end it, and cannot harm it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs.callbacks import Callback
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft

SMALL = {"clients": 4, "rounds": 5, "seeds": 1}


class Noted(Callback):
    """Keeps all that it is told."""

    def __init__(self, last=None):
        self.last, self.rounds, self.replies, self.models, self.ended = last, [], [], [], []

    def on_begin(self, run):
        self.rounds.append(run.round)

    def on_round(self, run):
        self.rounds.append(run.round)
        self.replies.append(run.replies[0])
        self.models.append(run.models())
        return run.round == self.last

    def on_end(self, run, how, result):
        self.ended.append((how, result))


class Broken(Callback):
    """Fails in its second round."""

    def on_round(self, run):
        if run.round == 2:
            raise RuntimeError("no\nroom")


def models_of(result):
    return torch.stack([result.models[0][client] for client in sorted(result.models[0])])


def test_it_is_told_of_the_beginning_of_each_round_and_of_the_end():
    noted = Noted()
    result = fedpareto.run("convex", "fedavg", callbacks=[noted], **SMALL)
    assert noted.rounds == [0, 1, 2, 3, 4, 5]
    assert noted.ended == [("finished", result)]


def test_it_sees_the_replies_of_which_the_servers_model_is_the_mean_and_the_models():
    noted = Noted()
    fedpareto.run("convex", "fedavg", callbacks=[noted], **SMALL)
    for replies, models in zip(noted.replies, noted.models, strict=True):
        weights = replies["size"] / replies["size"].sum()
        for model in models.values():
            torch.testing.assert_close(model, (weights[:, None] * replies["model"]).sum(0))


def test_one_that_returns_true_ends_the_run_with_the_result_of_a_run_that_was_so_long(tmp_path):
    ended = fedpareto.run("convex", "fedpref", callbacks=[Noted(last=3)], out=tmp_path / "ended", **SMALL)
    short = fedpareto.run("convex", "fedpref", **(SMALL | {"rounds": 3}))
    assert torch.equal(models_of(ended), models_of(short))
    assert [row["round"] for row in ended.history] == [0, 1, 2, 3]
    assert ended.kept == (3,)
    assert fedpareto.resume(tmp_path / "ended") is None, "it is finished"


def test_one_that_fails_is_named_in_one_line_and_changes_nothing(caplog):
    with caplog.at_level(logging.WARNING):
        followed = fedpareto.run("convex", "fedavg", callbacks=[Broken(), noted := Noted()], **SMALL)
    (line,) = [record.getMessage() for record in caplog.records if "callback" in record.getMessage()]
    assert line == "on_round of the callback Broken: RuntimeError: no room; the run goes on without it"
    assert torch.equal(models_of(followed), models_of(fedpareto.run("convex", "fedavg", **SMALL)))
    assert noted.rounds[-1] == 5, "others are told of all rounds"


def test_an_algorithm_with_a_last_round_of_its_own_cannot_be_ended_before(caplog):
    with caplog.at_level(logging.WARNING):
        result = fedpareto.run("convex", "fedavg+ft", callbacks=[Noted(last=2)], **SMALL)
    assert result.kept == (5,)
    assert "cannot end the run: fedavg+ft does in its last round what it does in no other" in caplog.text


@pytest.mark.parametrize(("raised", "how"), [(Stopped("enough"), "stopped"), (UserError("wrong"), "failed")])
def test_it_hears_of_every_end(raised, how):
    def on_round(_):
        raise raised

    noted = Noted()
    with pytest.raises(type(raised)):
        fedpareto.run("convex", "fedavg", on_round=on_round, callbacks=[noted], **SMALL)
    assert noted.ended == [(how, None)]


def test_a_run_that_goes_on_tells_from_where(tmp_path):
    spec = Draft(SMALL | {"problem": "convex", "algorithm": "fedavg"}).finish()
    rounds = []
    with pytest.raises(Stopped):
        start(spec, tmp_path / "run", rounds.append, stop=lambda: len(rounds) == 2)
    noted = Noted()
    fedpareto.resume(tmp_path / "run", callbacks=[noted])
    assert noted.rounds == [2, 3, 4, 5]


@dataclass(frozen=True)
class Forgetful(FedAvg):
    """Does not say that a round is over."""

    def tell(self, state, replies):
        return replace(super().tell(state, replies), round=state.round)


def test_a_tell_that_does_not_end_its_round_is_refused_and_hangs_nowhere():
    with pytest.raises(UserError, match=r"fedavg does not end round 1: after 1 exchange\(s\).*round=state.round \+ 1"):
        fedpareto.run("convex", Forgetful(), **SMALL)


def test_means_of_objectives_are_there_in_rounds_that_are_evaluated():
    seen = []

    class Means(Callback):
        def on_round(self, run):
            seen.append(run.progress.means)

    result = fedpareto.run("convex", "fedavg", callbacks=[Means()], evaluate_every=2, **SMALL)
    assert [bool(means) for means in seen] == [True, False, True, False, True]
    rows = [row["sent"]["test"] for row in result.history if row.get("sent")]
    assert np.allclose([list(means.values()) for means in seen if means], rows[:3])
