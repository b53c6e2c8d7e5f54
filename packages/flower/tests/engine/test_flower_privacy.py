"""Privacy on nodes: the same numbers as in one stack, and one agreement on what is protected."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory_federation import federation_of, local_engine, node_of, play, small
from test_node import envelope_of, raw

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.engines.single import Task
from fedpareto_flower.engine import wire

FEDAVG = {"name": "fedavg", "weighting": "equal"}
PRIVACY = {"kind": "local", "clip": 0.5, "noise": 0.1}


@pytest.mark.parametrize(
    ("algorithm", "privacy"), [(FEDAVG, PRIVACY), (FEDAVG, PRIVACY | {"kind": "central"}), ("fedpref", PRIVACY)]
)
def test_private_models_are_the_same_on_nodes_and_in_one_process(algorithm, privacy, tmp_path):
    spec = small(algorithm, privacy=privacy)
    (state,), _ = play(spec, federation_of(spec, tmp_path)[0])
    (wanted,), _ = play(spec, local_engine(spec))
    found, expected = spec.algorithm.solutions(state), spec.algorithm.solutions(wanted)
    for client, message in expected.items():
        torch.testing.assert_close(found[client]["model"], message["model"], atol=1e-5, rtol=0)


def test_a_privately_tuned_model_stays_on_its_node(tmp_path):
    spec = small(FEDAVG | {"name": "fedavg+ft"}, privacy=PRIVACY)
    engine, _ = federation_of(spec, tmp_path)
    (state,), measured = play(spec, engine)
    _, wanted = play(spec, local_engine(spec))
    assert engine.models(0, spec.algorithm.solutions(state)) == {}
    assert all((tmp_path / f"node{client}" / "model.safetensors").is_file() for client in range(spec.clients))
    for client, objectives in wanted[-1].sent.items():
        torch.testing.assert_close(measured[-1].sent[client], objectives, atol=1e-5, rtol=0)


@pytest.mark.parametrize("change", [{"kind": "none"}, {"clip": 5.0}, {"noise": 0.0}, {"delta": 0.1}])
def test_a_node_with_other_privacy_may_not_join(change, tmp_path, caplog):
    spec = small(FEDAVG, privacy=PRIVACY)
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[900] = node_of(small(FEDAVG, privacy=PRIVACY | change), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(spec, engine)
    assert "disagrees on the kind or the parameters of differential privacy" in caplog.text


@pytest.mark.parametrize("randomness", ["seed", "system"])
def test_a_round_is_answered_once_so_that_noise_cannot_be_averaged_away(randomness, tmp_path):
    spec = small(FEDAVG, privacy=PRIVACY | {"randomness": randomness})
    node = node_of(spec, 0, tmp_path)
    first = raw(node.answer(envelope_of(spec, node, nonce="a")))
    assert raw(node.answer(envelope_of(spec, node, nonce="b"))) == first, "a server that resumes gets the same noise"
    again = node_of(spec, 0, tmp_path)
    assert raw(again.answer(envelope_of(spec, again, nonce="c"))) == first, "also from a node that was restarted"
    with pytest.raises(UserError, match="round 1 was answered before, to another task"):
        again.answer(other_model(envelope_of(spec, again, nonce="d")))
    again.ledger._file.write_text("[]")
    with pytest.raises(DamagedFile, match="damaged"):
        again.answer(envelope_of(spec, again, nonce="e"))


def other_model(content):
    envelope = wire.decode_envelope(content)
    (job,) = envelope.jobs
    tasks = tuple(replace(task, message={"model": task.message["model"] + 1}) for task in job.tasks)
    return wire.encode_envelope(replace(envelope, jobs=(replace(job, tasks=tasks),)))


def in_lane(number, content):
    envelope = wire.decode_envelope(content)
    jobs = tuple(replace(job, tasks=tuple(replace(task, lane=number) for task in job.tasks)) for job in envelope.jobs)
    return wire.encode_envelope(replace(envelope, jobs=jobs))


def test_a_round_is_answered_in_one_lane_where_the_algorithm_has_one(tmp_path):
    """Noise of twenty lanes could be averaged as that of twenty answers."""
    spec = small(FEDAVG, privacy=PRIVACY | {"randomness": "system"}, rounds=20)
    node = node_of(spec, 0, tmp_path)
    assert raw(node.answer(envelope_of(spec, node, nonce="a")))
    for lane in range(1, 20):
        with pytest.raises(UserError, match=f"is for lane {lane}; this federation has 1 at the most"):
            node.answer(in_lane(lane, envelope_of(spec, node, nonce=str(lane))))


def test_a_search_has_no_more_lanes_in_a_round_than_candidates(tmp_path):
    spec = small({"name": "mofld", "samples": 2}, privacy=PRIVACY, rounds=8)
    node = node_of(spec, 0, tmp_path)
    tasks, *_ = spec.algorithm.ask(spec.algorithm.begin(node.engine.settings[0]))
    job = wire.Job(0, 1, 0, (Task.of(tasks, 0),))
    asked = wire.encode_envelope(wire.Envelope("test", 0, "a", (job,)))
    for lane in (0, 1):
        (result,) = wire.decode_answer(node.answer(other_nonce(in_lane(lane, asked), str(lane)))).results
        assert result.replies
    (said,) = failures_of(node.answer(other_nonce(in_lane(2, asked), "c")))
    assert said == f"'{tasks.step}' was answered as often as was agreed on in round 1, 2 times"


def other_nonce(content, nonce):
    return wire.encode_envelope(replace(wire.decode_envelope(content), nonce=nonce))


def test_without_local_privacy_a_node_keeps_no_account(tmp_path):
    spec = small(FEDAVG)
    node = node_of(spec, 0, tmp_path)
    node.answer(envelope_of(spec, node, nonce="a"))
    node.answer(other_model(envelope_of(spec, node, nonce="b")))
    assert not node.ledger.folder.exists()


def test_the_privacy_of_a_tuned_algorithm_is_agreed_on_too(tmp_path, caplog):
    tuned = FEDAVG | {"name": "fedavg+ft"}
    engine, grid = federation_of(small(tuned, privacy=PRIVACY), tmp_path)
    grid.nodes[900] = node_of(small(tuned, privacy=PRIVACY | {"clip": 5.0}), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(small(tuned, privacy=PRIVACY), engine)
    assert "disagrees on the kind or the parameters of differential privacy" in caplog.text


# -- a node's own budget -------------------------------------------------------------------------------------------


COUNTED = PRIVACY | {"noise": 4.0, "objectives": "withheld"}


def in_round(number, content):
    envelope = wire.decode_envelope(content)
    jobs = tuple(
        replace(job, round=number, tasks=tuple(replace(task, round=number) for task in job.tasks))
        for job in envelope.jobs
    )
    return wire.encode_envelope(replace(envelope, jobs=jobs))


def failures_of(answer):
    return [failure.reason for result in wire.decode_answer(answer).results for failure in result.failures]


def test_a_node_that_has_spent_its_budget_refuses_by_name_and_the_rounds_go_on_without_it(tmp_path, caplog):
    spec = small(FEDAVG, privacy=COUNTED, rounds=4)
    engine, grid = federation_of(spec, tmp_path)
    cost = spec.privacy.reply_cost
    grid.nodes[899] = node_of(spec, 1, tmp_path, budget=spec.privacy.epsilon_of(2.5 * cost))
    (state,), _ = play(spec, engine)
    assert state.round == 4
    assert caplog.text.count("the privacy budget of client 1 is spent: another answer would make ε") >= 2
    assert grid.nodes[899].account.spent == spec.privacy.epsilon_of(2 * cost) < grid.nodes[899].budget
    assert not (tmp_path / "node0" / "private" / "client0-answered" / "spent.json").exists(), "it has no budget"


def test_what_was_charged_is_on_disk_before_the_answer_and_a_repeated_question_is_free(tmp_path):
    spec = small(FEDAVG, privacy=COUNTED)
    once = spec.privacy.epsilon_of(spec.privacy.reply_cost)

    def node():
        return node_of(spec, 0, tmp_path, budget=1.001 * once)

    (job,) = wire.decode_envelope(envelope_of(spec, node(), nonce="a")).jobs
    assert node()._affordable(job, job.tasks[0]) is None, "and now it is killed, before it trains"
    assert node().account.spent == once
    first = raw(node().answer(envelope_of(spec, node(), nonce="b")))
    assert raw(node().answer(envelope_of(spec, node(), nonce="c"))) == first, "no fresh noise"
    assert node().account.spent == once, "counted once: only one answer ever left"
    (said,) = failures_of(node().answer(in_round(2, envelope_of(spec, node(), nonce="d"))))
    assert said.startswith("the privacy budget of client 0 is spent")
    node().account._file.write_text("{}", encoding="utf-8")
    with pytest.raises(DamagedFile, match="nobody knows what privacy is left"):
        node().answer(in_round(3, envelope_of(spec, node(), nonce="e")))


def test_the_lower_of_two_budgets_counts_and_none_covers_what_has_no_noise(tmp_path):
    spec = small(FEDAVG, privacy=COUNTED | {"budget": 3.0})
    assert node_of(spec, 0, tmp_path).account.largest == 3.0
    assert node_of(spec, 0, tmp_path, budget=2.0).account.largest == 2.0
    assert node_of(spec, 0, tmp_path, budget=9.0).account.largest == 3.0
    with pytest.raises(UserError, match="no budget covers objectives without noise"):
        small(FEDAVG, privacy=PRIVACY | {"budget": 3.0})
    with pytest.raises(UserError, match="needs noise to count"):
        node_of(small(FEDAVG), 0, tmp_path, budget=2.0)


def test_reported_objectives_have_noise_that_is_charged_and_is_the_same_when_asked_again(tmp_path):
    noised = COUNTED | {"objectives": "noised", "objectives_noise": 2.0, "randomness": "system"}
    spec = small(FEDAVG, privacy=noised)
    one = spec.privacy.report_cost
    budget = spec.privacy.epsilon_of(spec.privacy.reply_cost + 2.01 * one)
    node = node_of(spec, 0, tmp_path, budget=budget)
    asked = envelope_of(spec, node, nonce="a")
    first, again = raw(node.answer(asked)), raw(node.answer(envelope_of(spec, node, nonce="b")))
    assert first == again
    (result,) = wire.decode_answer(node.answer(envelope_of(spec, node, nonce="c"))).results
    exact = node.engine.objectives(0, node._sent(wire.decode_envelope(asked).jobs[0].solution))[0]
    assert result.sent is not None
    assert result.trained is not None
    assert not torch.allclose(result.sent, exact)
    assert node.account.spent == pytest.approx(spec.privacy.epsilon_of(spec.privacy.reply_cost + 2 * one))
    (late,) = wire.decode_answer(node.answer(in_round(2, envelope_of(spec, node, nonce="d")))).results
    assert late.sent is None
    assert not late.replies


def test_a_report_of_what_was_trained_is_given_once_whoever_else_adds_noise(tmp_path):
    """Where the server adds the noise of models, the same question is free, and clients' reports have their own."""
    noised = COUNTED | {"kind": "central", "objectives": "noised", "randomness": "system"}
    spec = small(FEDAVG, privacy=noised, rounds=6)
    node = node_of(spec, 0, tmp_path, budget=100.0)
    first = envelope_of(spec, node, nonce="a")
    told = [raw(node.answer(other_nonce(first, nonce))) for nonce in "abc"]
    assert "0/measured/trained" in told[0]
    assert told == [told[0]] * 3
    with pytest.raises(UserError, match="answered before, to another task"):
        node.answer(other_nonce(other_model(first), "d"))


def test_a_node_reports_its_objectives_with_noise_as_often_as_was_agreed_on(tmp_path):
    """A server that asked in every round, or in rounds that nobody plans, could average the noise away."""
    noised = COUNTED | {"objectives": "noised", "randomness": "system"}
    spec = small(FEDAVG, privacy=noised, rounds=6)
    node = node_of(spec, 0, tmp_path)
    node.settings = [replace(one, evaluate_every=3) for one in node.settings]
    (job,) = wire.decode_envelope(envelope_of(spec, node)).jobs

    def asked(round_, tasks=()):
        one = replace(job, round=round_, tasks=tuple(replace(task, round=round_) for task in tasks))
        content = wire.encode_envelope(wire.Envelope("test", 0, f"{round_} {len(tasks)}", (one,)))
        (result,) = wire.decode_answer(node.answer(content)).results
        return result

    with pytest.raises(UserError, match="is for round 7; this federation has 6"):
        asked(7)
    assert asked(wire.LARGEST_NUMBER).sent is not None
    told = [asked(round_, job.tasks) for round_ in range(1, 7)]
    assert [one.sent is not None for one in told] == [True, True, *[False] * 4], "three in all: two rounds and the end"
    assert [one.trained is not None for one in told] == [True, False, False, True, False, False]
    assert all(one.replies for one in told)
