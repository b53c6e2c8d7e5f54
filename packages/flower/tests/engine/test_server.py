"""The server goes on with those that answer well, and says by name who did not and why."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict
from memory_federation import HOSTILE, QUICK, federation_of, node_of, one_exchange, play, small

from fedpareto.config.errors import QuorumLost
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.engines.reply_checks import too_far
from fedpareto.engines.single import Reply
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.options import FlowerOptions
from fedpareto_flower.engine.post import HELLO


def answers_with(change):
    """Replaces the answer (not the introduction) of the hostile node."""

    def tamper(node, message, reply):
        if node != HOSTILE or message.metadata.message_type == HELLO:
            return reply
        content = change(reply.content)
        return content if content is None or isinstance(content, Exception) else Message(content, reply_to=message)

    return tamper


def decoded(change):
    def apply(content):
        answer = wire.decode_answer(content)
        return wire.encode_answer(change(answer))

    return apply


def with_model(change):
    def apply(answer):
        (result,) = answer.results
        (reply,) = result.replies
        message = reply.message | {"model": change(reply.message["model"])}
        changed = Reply(reply.client, reply.round, message, reply.step, reply.lane)
        result = wire.Result(result.run, (changed,), (), result.sent, result.trained)
        return wire.Answer(answer.federation, answer.client, answer.nonce, (result,))

    return decoded(apply)


def with_header(**changes):
    def apply(content):
        entries = json.loads(content.config_records[wire.HEADER][wire.HEADER]) | changes
        records = dict(content.items()) | {wire.HEADER: ConfigRecord({wire.HEADER: json.dumps(entries)})}
        return RecordDict(records)

    return apply


def with_objectives(answer):
    (result,) = answer.results
    changed = wire.Result(result.run, result.replies, (), torch.zeros(7, 7), result.trained)
    return wire.Answer(answer.federation, answer.client, answer.nonce, (changed,))


ATTACKS = {
    "not finite": (with_model(lambda model: model.fill_(float("nan"))), "values that are not finite"),
    "infinite": (with_model(lambda model: model.fill_(float("inf"))), "values that are not finite"),
    "longer": (with_model(lambda model: torch.cat([model, model])), "at most"),
    "shorter": (with_model(lambda model: model[1:]), "has the shape"),
    "in double": (with_model(lambda model: model.double()), "at most"),
    "of integers": (with_model(lambda model: model.int()), "is of type"),
    "another client": (with_header(client=0), "claims to come from client 0"),
    "another federation": (with_header(federation="other"), "another federation"),
    "replayed": (with_header(nonce="0" * 32), "a replay"),
    "another seed": (with_header(results=[]), "does not name"),
    "empty": (lambda content: RecordDict(), "no header"),
    "objectives of another shape": (decoded(with_objectives), "at most"),
    "unreadable by Flower": (lambda content: ValueError("bad chunk"), "cannot be read (ValueError: bad chunk)"),
    "silent": (lambda content: None, "no answer within"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_node_is_refused_by_name_and_the_round_goes_on(attack, tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    change, reason = ATTACKS[attack]
    grid.tamper = answers_with(change)
    outcome = one_exchange(spec, engine)
    assert outcome.replies.clients.tolist() == [0, 2]
    (failure,) = outcome.failures
    assert failure.client == 1
    assert reason in failure.reason
    assert 1 not in outcome.evaluations.trained


# -- a registered node that lies -----------------------------------------------------------------------------------


def with_measured(value):
    def apply(answer):
        (result,) = answer.results
        false = torch.full_like(result.sent, value)
        return replace(answer, results=(replace(result, sent=false, trained=false),))

    return decoded(apply)


@pytest.mark.parametrize("value", [5.0, -0.5, float("nan"), float("inf"), 1e30])
def test_objectives_that_no_model_can_have_are_refused_by_name_and_its_model_is_not(value, tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = answers_with(with_measured(value))
    outcome = one_exchange(spec, engine)
    assert outcome.replies.clients.tolist() == [0, 1, 2]
    assert sorted(outcome.evaluations.sent) == sorted(outcome.evaluations.trained) == [0, 2]
    assert {failure.client for failure in outcome.failures} == {1}
    assert f"client 1: refused: its 'accuracy' is {value:g}, not from 0 to 1" in caplog.text


@pytest.mark.parametrize("factor", [1e30, 1e5])
@pytest.mark.parametrize("algorithm", ["fedavg", "fedpref", "fsmgda", "fedfew"])
def test_an_update_far_longer_than_the_others_is_refused_without_a_defence(factor, algorithm, tmp_path, caplog):
    spec = small(algorithm)
    engine, grid = federation_of(spec, tmp_path)

    def far(answer):
        (result,) = answer.results
        (reply,) = result.replies
        message = {name: tensor + factor if tensor.dim() else tensor for name, tensor in reply.message.items()}
        return replace(answer, results=(replace(result, replies=(replace(reply, message=message),)),))

    grid.tamper = answers_with(decoded(far))
    outcome = one_exchange(spec, engine)
    assert outcome.replies.clients.tolist() == [0, 2]
    (failure,) = outcome.failures
    assert "the median of the round is" in failure.reason or "at most 1e+15 is accepted" in failure.reason
    assert "client 1: refused" in caplog.text


def test_an_update_no_longer_than_its_model_passes_however_little_the_others_moved():
    tasks = [Tasks(np.arange(3), {"model": torch.ones(4).double()}, round=1)]

    def moved_by(*steps):
        return Replies(np.arange(3), {"model": torch.ones(3, 4).double() + torch.tensor(steps).view(3, 1)})

    assert not too_far(tasks, moved_by(1e-9, 1e-9, -1.0))
    assert list(too_far(tasks, moved_by(1e-9, 1e-9, 1.01))) == [2]


def test_where_most_did_not_move_nothing_is_said_about_those_who_did():
    tasks = [Tasks(np.arange(3), {"model": torch.zeros(4)}, round=1)]
    models = torch.zeros(3, 4)
    models[2] = 1
    assert not too_far(tasks, Replies(np.arange(3), {"model": models}))


def test_an_answer_kept_from_an_earlier_round_is_a_replay(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    kept = []

    def replay(content):
        kept.append(content)
        return kept[0]

    grid.tamper = answers_with(replay)
    assert not one_exchange(spec, engine).failures
    (failure,) = one_exchange(spec, engine, 1).failures
    assert "a replay" in failure.reason


def test_a_node_that_answers_for_another_is_refused(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)

    def from_elsewhere(node, message, reply):
        if node == HOSTILE and message.metadata.message_type != HELLO:
            reply.metadata.__dict__["_src_node_id"] = 900
        return reply

    grid.tamper = from_elsewhere
    (failure,) = one_exchange(spec, engine).failures
    assert "another node answered in its place" in failure.reason


def test_below_the_quorum_the_round_is_lost_with_its_reasons(tmp_path):
    spec = small("fedavg", quorum=3)
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = answers_with(lambda content: None)
    with pytest.raises(QuorumLost, match="client 1: no answer within"):
        one_exchange(spec, engine)


@pytest.mark.parametrize("before", ["away", "frozen"])
def test_a_node_that_comes_back_while_the_quorum_is_lost_is_asked_again(before, tmp_path, caplog):
    """Its process was killed, or stood still: the server looks again at who is there before it gives up."""
    spec = small("local", quorum=3)
    engine, grid = federation_of(spec, tmp_path)
    play(spec, engine, 1)
    node = grid.nodes[HOSTILE]
    if before == "away":
        del grid.nodes[HOSTILE]
    else:
        grid.tamper = lambda number, message, reply: None if number == HOSTILE else reply
    engine.flower = replace(QUICK, timeout=0.3 if before == "frozen" else 60)
    listed = grid.get_node_ids

    def back_after_a_while():
        if "too few answers for the quorum" in caplog.text:
            engine.flower = replace(QUICK, timeout=60)
            grid.nodes[HOSTILE], grid.tamper = node, lambda number, message, reply: reply
        return listed()

    grid.get_node_ids = back_after_a_while
    outcome = one_exchange(spec, engine, 1)
    assert outcome.replies.clients.tolist() == [0, 1, 2]
    assert not outcome.failures
    assert caplog.text.count("too few answers for the quorum") == 1


def test_nobody_waits_for_nodes_that_are_there_and_refused(tmp_path, caplog):
    spec = small("fedavg", quorum=3)
    engine, grid = federation_of(spec, tmp_path, replace(QUICK, timeout=60))
    grid.tamper = answers_with(with_header(client=0))
    with pytest.raises(QuorumLost, match="claims to come from client 0"):
        one_exchange(spec, engine)
    assert "waiting" not in caplog.text


def test_a_lost_message_is_asked_for_again(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path, FlowerOptions(**vars(QUICK) | {"retries": 1}))
    losses = []

    def lose_the_first(content):
        losses.append(1)
        return None if len(losses) == 1 else content

    grid.tamper = answers_with(lose_the_first)
    outcome = one_exchange(spec, engine)
    assert not outcome.failures
    assert len(losses) == 2


def test_a_node_whose_introduction_was_lost_is_asked_again(tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path, FlowerOptions(**vars(QUICK) | {"join_timeout": 60, "forgiveness": 60}))
    asked = []

    def lose_the_first(node, message, reply):
        asked.append(node)
        return None if asked.count(HOSTILE) == 1 and node == HOSTILE else reply

    grid.tamper = lose_the_first
    assert not one_exchange(spec, engine).failures
    assert asked.count(HOSTILE) == 3, "two questions and one task"
    assert "it did not identify itself within 0.2 s" in caplog.text


def test_a_node_that_fails_says_why(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[HOSTILE].answer = lambda content: 1 / 0
    (failure,) = one_exchange(spec, engine).failures
    assert "division by zero" in failure.reason


def test_a_node_may_leave_and_another_may_come_in_its_place(tmp_path):
    spec = small("local")
    engine, grid = federation_of(spec, tmp_path)
    states, _ = play(spec, engine, 1)
    node = grid.nodes.pop(HOSTILE)
    (failure,) = one_exchange(spec, engine, 1).failures
    assert (failure.client, failure.reason) == (1, "no node is connected for this client")
    grid.nodes[123] = node_of(spec, node.client, tmp_path)
    assert not one_exchange(spec, engine, 2).failures
    assert states[0].round == 1


def test_bytes_are_counted_for_every_client(tmp_path):
    spec = small("fedavg")
    engine, _ = federation_of(spec, tmp_path)
    one_exchange(spec, engine)
    model = 4 * spec.problem.layout.size
    assert sorted(engine.traffic) == [0, 1, 2]
    for traffic in engine.traffic.values():
        assert model < traffic.down < model + 1000
        assert model < traffic.up < model + 1000


def test_split_names_come_from_the_nodes(tmp_path):
    spec = small("fedavg")
    engine, _ = federation_of(spec, tmp_path)
    assert engine.split_names == ["train", "test", "own-test"]


def numbers_on_the_wire(grid):
    for message in grid.seen:
        for record in message.content.array_records.values():
            for array in record.values():
                yield array.data


@pytest.mark.parametrize("name", ["local", "fedpref", "fedcmoo", "fsmgda"])
def test_neither_preferences_nor_rows_nor_private_tensors_cross_the_wire(name, tmp_path):
    spec = small(name)
    engine, grid = federation_of(spec, tmp_path)
    play(spec, engine)
    assert not leaks(spec, grid)


def test_a_planted_leak_is_noticed(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    own = torch.as_tensor(spec.federation(0).preferences[1]).float()

    def leak(model):
        model[:2] = own
        return model

    grid.tamper = answers_with(with_model(leak))
    one_exchange(spec, engine)
    assert leaks(spec, grid)


def leaks(spec, grid):
    """Every secret of a client that is found, byte for byte and in either precision, in what crossed the wire."""
    secrets = {}
    federation = spec.federation(0)
    for client in federation.ids:
        preference = torch.as_tensor(federation.preferences[client])
        secrets[f"preference of {client}"] = preference
        for name, rows in federation.splits.items():
            for column, values in rows.of_client(client).items():
                if values.is_floating_point() and values[0].numel() > 1:
                    secrets[f"{name}.{column} of {client}"] = values[0]
    for node in grid.nodes.values():
        for (_, _, client), state in node.engine.private.items():
            secrets |= {f"private {name} of {client}": tensor for name, tensor in state.items()}
    crossed = list(numbers_on_the_wire(grid))
    found = []
    for what, value in secrets.items():
        forms = [value.float().numpy().tobytes(), value.double().numpy().tobytes()]
        if any(form in data for form in forms for data in crossed):
            found.append(what)
    return found
