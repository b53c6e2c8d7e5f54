"""The local engine: same numbers however the work is cut, and failures that are values."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedpref import FedPref
from fedpareto.algorithms.personal.local import Local
from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Failure, Parcels, Replies
from fedpareto.engines.faults import Faults
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices, clock_for
from fedpareto.engines.options import LocalOptions, bytes_of
from fedpareto.engines.reply_checks import enforce_quorum, required_replies
from fedpareto.problems.convex import Convex
from fedpareto.problems.synthetic import Synthetic
from fedpareto.testing.conformance import trial

PROBLEM = Convex()
ONE_STACK = Choices(threads=1, chunk=64)


def engine_of(algorithm, *, clients=6, seeds=(0,), problem=PROBLEM, choices=ONE_STACK, **more):
    federations = [Federation.create(problem, clients, seed) for seed in seeds]
    settings = [federation.setting(problem, 5) for federation in federations]
    return LocalEngine(algorithm, problem, problem.learner(), federations, settings, choices=choices, **more)


def first_exchange(engine):
    algorithm = engine.algorithm
    return engine.run(algorithm.ask(algorithm.begin(engine.settings[0])))


# -- failures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken(FedAvg):
    """Client 2 misbehaves."""

    name: ClassVar[str] = "broken"
    how: str = "nan"

    def train(self, clients, message):
        reply = super().train(clients, message)
        rows = torch.nonzero(clients.addresses.client == 2)
        if not len(rows):
            return reply
        if self.how == "raise":
            raise RuntimeError("the disk is full")
        if self.how in ("nan", "inf", "-inf"):
            reply["model"][rows[0], 3] = float(self.how)
        return reply


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_is_not_finite_has_no_objectives_instead_of_those_of_a_constant(value):
    engine = engine_of(FedAvg(), clients=3, problem=Synthetic())
    broken = engine.settings[0].initial.clone()
    broken[0] = value
    models = torch.stack([engine.settings[0].initial, broken, engine.settings[0].initial])
    sent = engine.run([], Parcels(np.arange(3), own={"model": models})).evaluations.sent
    assert sent[1].isnan().all()
    assert sent[0].isfinite().all()
    assert sent[2].isfinite().all()


@pytest.mark.parametrize("how", ["nan", "inf", "-inf"])
def test_an_update_that_is_not_finite_is_refused_by_name_and_the_others_count(how):
    outcome = first_exchange(engine_of(Broken(how=how)))
    assert outcome.replies.clients.tolist() == [0, 1, 3, 4, 5]
    (failure,) = outcome.failures
    assert (failure.client, failure.round) == (2, 1)
    assert str(failure) == "round 1, client 2: refused: 'model' holds 1 values that are not finite"


def test_a_client_that_raises_fails_alone_and_does_not_change_the_others():
    good, bad = first_exchange(engine_of(FedAvg())), first_exchange(engine_of(Broken(how="raise")))
    (failure,) = bad.failures
    assert failure.client == 2
    assert failure.reason == "raised RuntimeError: the disk is full"
    assert bad.replies.clients.tolist() == [0, 1, 3, 4, 5]
    assert torch.equal(good.replies["model"][bad.replies.clients], bad.replies["model"])


@dataclass(frozen=True)
class WrongReply(FedAvg):
    """Every client replies with something that was not declared."""

    name: ClassVar[str] = "wrong-reply"
    how: str = "shape"

    def train(self, clients, message):
        reply = super().train(clients, message)
        if self.how == "shape":
            return reply | {"model": reply["model"][:, :-1]}
        if self.how == "type":
            return reply | {"model": reply["model"].double()}
        if self.how == "extra":
            return reply | {"preference": clients.preferences}
        return {"size": reply["size"]}


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("shape", "refused: 'model' has the shape [7], not [8]"),
        ("type", "refused: 'model' is of type torch.float64, not torch.float32"),
        ("extra", "refused: the reply holds ['model', 'preference', 'size'], not ['model', 'size']"),
        ("missing", "refused: the reply holds ['size'], not ['model', 'size']"),
    ],
)
def test_a_reply_that_was_not_declared_is_refused_with_the_reason(how, reason):
    with pytest.raises(QuorumLost) as lost:
        first_exchange(engine_of(WrongReply(how=how)))
    assert reason in str(lost.value)


def test_below_the_quorum_the_round_stops_with_a_clear_error():
    engine = engine_of(FedAvg(), clients=12, faults=Faults(dropout=0.5), quorum=0.9)
    with pytest.raises(QuorumLost, match=r"round 1: only \d of 12 clients gave a valid reply, the quorum is 11"):
        first_exchange(engine)


def test_a_quorum_counts_clients_not_what_each_of_them_was_asked_for():
    replies = Replies(np.zeros(3), lanes=np.arange(3), rounds=np.ones(3, dtype=int))
    failures = [Failure(client, 1, "dropped out", lane=lane) for client in (1, 2) for lane in range(3)]
    enforce_quorum(1, replies, failures)
    with pytest.raises(QuorumLost, match="only 1 of 3 clients gave a valid reply, the quorum is 2"):
        enforce_quorum(2, replies, failures)


@pytest.mark.parametrize(
    ("quorum", "asked", "needed"), [(0, 10, 1), (0.5, 10, 5), (0.51, 10, 6), (3, 10, 3), (20, 10, 10), (1, 1, 1)]
)
def test_a_quorum_is_a_share_below_one_and_a_number_from_one_on(quorum, asked, needed):
    assert required_replies(quorum, asked) == needed


# -- injected faults -----------------------------------------------------------------------------------------------


def test_faults_come_as_often_as_asked_and_say_what_they_are():
    engine = engine_of(FedAvg(), clients=400, faults=Faults(dropout=0.3, stragglers=0.1, corrupt=0.2))
    outcome = first_exchange(engine)
    reasons = [failure.reason for failure in outcome.failures]
    dropped = sum("dropped out" in reason for reason in reasons)
    late = sum("straggler" in reason for reason in reasons)
    corrupt = sum(reason.startswith("refused") and "injected" in reason for reason in reasons)
    assert dropped + late + corrupt == len(reasons)
    assert len(outcome.replies) + len(reasons) == 400
    assert dropped / 400 == pytest.approx(0.3, abs=0.07)
    assert late / 400 == pytest.approx(0.7 * 0.1, abs=0.05)
    assert corrupt / 400 == pytest.approx(0.7 * 0.9 * 0.2, abs=0.06)
    kinds = {"not finite", "shape"}
    assert all(any(kind in reason for reason in reasons) for kind in kinds)


def test_the_same_seed_meets_the_same_faults_in_any_chunking():
    faults = Faults(dropout=0.3, corrupt=0.2, stragglers=0.1)
    one = first_exchange(engine_of(FedAvg(), clients=40, faults=faults)).failures
    other = first_exchange(engine_of(FedAvg(), clients=40, faults=faults, choices=Choices(1, 3))).failures
    assert sorted(map(str, one)) == sorted(map(str, other))


def test_a_straggler_keeps_its_private_progress_and_a_dropout_does_not():
    def private_models(faults):
        engine = engine_of(Local(), faults=faults)
        with pytest.raises(QuorumLost):
            first_exchange(engine)
        return engine.private

    assert len(private_models(Faults(stragglers=1.0))) == 6
    assert len(private_models(Faults(dropout=1.0))) == 0


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_fault_share_outside_zero_and_one_is_refused(share):
    with pytest.raises(UserError, match="dropout"):
        Faults(dropout=share)


# -- stacks --------------------------------------------------------------------------------------------------------


def test_several_federations_in_one_stack_equal_each_alone():
    seeds = (0, 5, 9)
    together = engine_of(FedPref(), seeds=seeds)
    states = [FedPref().begin(setting) for setting in together.settings]
    outcomes = together.run_all([FedPref().ask(state) for state in states], [None] * 3)
    for seed, outcome in zip(seeds, outcomes, strict=True):
        alone = first_exchange(engine_of(FedPref(), seeds=(seed,)))
        assert torch.equal(outcome.replies["model"], alone.replies["model"])


@pytest.mark.parametrize("chunk", [1, 4, 12])
def test_of_several_federations_some_may_be_measured_in_any_chunk(chunk):
    engine = engine_of(FedAvg(), seeds=(0, 5), choices=Choices(threads=1, chunk=chunk))
    states = [FedAvg().begin(setting) for setting in engine.settings]
    solutions = [FedAvg().solutions(states[0]), None]
    first, second = engine.run_all([FedAvg().ask(state) for state in states], solutions)
    alone = engine_of(FedAvg(), seeds=(0,))
    state = FedAvg().begin(alone.settings[0])
    wanted = alone.run(FedAvg().ask(state), FedAvg().solutions(state))
    assert torch.allclose(first.evaluations.trained.rows, wanted.evaluations.trained.rows)
    assert len(second.evaluations.trained) == len(second.evaluations.sent) == 0


def test_a_memory_budget_bounds_the_stack_and_changes_no_number():
    problem = Synthetic(hidden=(32, 16))
    roomy = engine_of(FedAvg(), problem=problem, clients=8, choices=None, options=LocalOptions(threads=1))
    tight = engine_of(FedAvg(), problem=problem, clients=8, choices=None, options=LocalOptions(threads=1, memory="1MB"))
    assert tight.choices.chunk < 8
    need = tight.learner.bytes_per_client(tight._probe(1))
    assert tight.choices.chunk * need <= 2**20
    one, other = first_exchange(roomy).replies, first_exchange(tight).replies
    assert torch.allclose(one["model"], other["model"], atol=1e-5)


def test_a_budget_below_one_client_is_refused_with_what_is_needed():
    with pytest.raises(UserError, match=r"one client needs about \d+[KM]B .* the budget is 1KB"):
        engine_of(FedAvg(), problem=Synthetic(), choices=None, options=LocalOptions(memory="1KB"))


@pytest.mark.parametrize(
    ("text", "number"),
    [("4GB", 4 * 2**30), ("512 mb", 2**29), ("1.5KB", 1536), ("7B", 7), ("4G", 2**32), ("2gib", 2**31)],
)
def test_memory_is_read_with_its_unit(text, number):
    assert bytes_of(text) == number


@pytest.mark.parametrize("text", ["4 bananas", "GB", "-1GB", "4"])
def test_memory_that_makes_no_sense_is_refused(text):
    with pytest.raises(UserError, match="write a number with a unit"):
        bytes_of(text)


def test_choices_are_measured_within_what_is_possible_and_can_be_given():
    measured = engine_of(FedAvg(), choices=None).choices
    assert 1 <= measured.chunk <= 6
    assert measured.threads >= 1
    given = engine_of(FedAvg(), choices=None, options=LocalOptions(threads=1, chunk=2)).choices
    assert given == Choices(threads=1, chunk=2)


def test_the_number_of_torch_threads_is_put_back():
    before = torch.get_num_threads()
    first_exchange(engine_of(FedAvg(), choices=Choices(before + 1, 64)))
    assert torch.get_num_threads() == before


def test_participants_are_drawn_from_seed_and_round():
    done = trial(FedAvg(), PROBLEM, participation=0.5)
    who = [outcome.replies.clients.tolist() for outcome in done.outcomes]
    assert all(len(clients) == 4 for clients in who), "half of seven is rounded to four"
    assert len({tuple(clients) for clients in who}) > 1, "every round has the same clients"
    again = trial(FedAvg(), PROBLEM, participation=0.5)
    assert who == [outcome.replies.clients.tolist() for outcome in again.outcomes]


def test_both_evaluations_are_given_for_the_sent_and_the_trained_model():
    engine = engine_of(FedAvg())
    state = FedAvg().begin(engine.settings[0])
    evaluations = engine.run(FedAvg().ask(state), FedAvg().solutions(state)).evaluations
    assert sorted(evaluations.sent) == sorted(evaluations.trained) == list(range(6))
    assert evaluations.sent[0].shape == (2, 2), "splits by objectives"
    preferences = engine.federations[0].preferences
    better = [
        float(evaluations.trained[c][0] @ torch.as_tensor(preferences[c]).float())
        < float(evaluations.sent[c][0] @ torch.as_tensor(preferences[c]).float())
        for c in range(6)
    ]
    assert all(better), "local steps lower each client's own weighted loss"


# -- privacy -------------------------------------------------------------------------------------------------------


def test_what_the_server_half_gets_holds_no_preference_and_no_data():
    names = {field.name for field in dataclasses.fields(Setting)}
    shared = {"seed", "clients", "rounds", "participation", "regulars", "repeats", "preference"}
    # What devices can train is public, and so is whether rounds wait, and when solutions are measured.
    shared |= {"widths", "waits", "evaluate_every"}
    # `judge` measures models on what the server has itself: an environment, or rows of its own.
    assert names == shared | {"layout", "objectives", "initial", "comparison", "judge"}
    for private in ("dirichlet", "0.5,0.5;0.5,0.5", "groups:1,1"):
        assert Federation.create(PROBLEM, 2, 0, private).setting(PROBLEM, 1).preference is None
    assert Federation.create(PROBLEM, 2, 0, "0.5,0.5").setting(PROBLEM, 1).preference == (0.5, 0.5), "given to all"


@pytest.mark.parametrize("name", ["local", "fedavg", "fedprox", "fedpref", "fedpref+ft"])
def test_no_message_holds_a_preference(name):
    """Preferences are planted as odd numbers; no tensor that crosses may contain one."""
    from fedpareto.contract.registry import make_algorithm

    planted = np.array([[0.123456789, 0.876543211]] * 6)
    algorithm = make_algorithm(name, {})
    federation = replace(Federation.create(PROBLEM, 6, 0), preferences=planted)
    done = trial(algorithm, PROBLEM, federation=federation)
    crossed = [{**tasks.shared, **tasks.own} for state in done.states[:-1] for tasks in algorithm.ask(state)]
    crossed += [outcome.replies.tensors for outcome in done.outcomes]
    for message in crossed:
        for tensor in message.values():
            for value in planted[0]:
                assert not bool(((tensor - value).abs() < 1e-9).any())


@pytest.mark.parametrize(
    ("device", "threads", "clock"),
    [("cpu", 1, time.thread_time), ("cpu", 2, time.perf_counter), ("cuda", 1, time.perf_counter)],
)
def test_chunks_are_chosen_by_the_threads_own_seconds_wherever_one_thread_does_the_work(device, threads, clock):
    """What other programs do then has no part in the choice."""
    assert clock_for(torch.device(device), threads) is clock
