"""Replies that travel coded: the same numbers on nodes and in one process, in as many bytes as are counted."""

from __future__ import annotations

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from memory_federation import federation_of, local_engine, node_of, play, small

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.contract.messages import traffic
from fedpareto_flower.engine import wire

LOSSY = ("int8-delta", "int4-delta", "top10%-delta")


def models(spec, states):
    """Every client's solution, as bits."""
    solutions = [spec.algorithm.solutions(state) for state in states]
    return [
        {client: {name: tensor.numpy().tobytes() for name, tensor in one[client].items()} for client in one}
        for one in solutions
    ]


def played(spec, engine):
    return models(spec, play(spec, engine)[0])


@pytest.mark.parametrize("codec", LOSSY)
def test_nodes_and_one_process_hold_the_same_bits(codec, tmp_path):
    spec = small("fedavg", codec=codec)
    engine, _ = federation_of(spec, tmp_path)
    found = played(spec, engine)
    assert found == played(spec, local_engine(spec, chunk=1))
    assert found != played(small("fedavg"), local_engine(small("fedavg"), chunk=1))


@pytest.mark.parametrize("algorithm", ["fedpref", "ifca", "fsmgda", "fedavg+ft", "fedrep"])
def test_whatever_an_algorithm_sends_arrives_alike_on_nodes_and_in_one_process(algorithm, tmp_path):
    spec = small(algorithm, codec="int4-delta", rounds=2)
    engine, _ = federation_of(spec, tmp_path)
    assert played(spec, engine) == played(spec, local_engine(spec, chunk=1))


def test_a_lossless_codec_changes_no_bit(tmp_path):
    spec = small("fedpref", codec="float32-delta")
    engine, _ = federation_of(spec, tmp_path)
    assert played(spec, engine) == played(small("fedpref"), local_engine(small("fedpref"), chunk=1))


def test_bytes_are_counted_as_they_travel(tmp_path):
    spec = small("fedavg", codec="int8-delta")
    engine, grid = federation_of(spec, tmp_path)
    local, state = local_engine(spec, chunk=1), spec.algorithm.begin(engine.settings[0])
    tasks = spec.algorithm.ask(state)
    counted = [traffic(tasks, one.run(tasks).replies).up for one in (engine, local)]
    assert counted[0].tolist() == counted[1].tolist()
    answers = [one.content for one in grid.seen if wire.TENSORS in one.content and one.metadata.reply_to_message_id]
    real = [sum(len(array.data) for array in content[wire.TENSORS].values()) for content in answers]
    assert sorted(real) == sorted(up for up in counted[0].tolist() if up)
    plain = 4 * (state.model.numel() + 1)  # The model, and the number of rows.
    assert max(real) < 0.4 * plain


def test_a_node_that_starts_again_has_what_it_lost(tmp_path):
    spec = small("fedavg", codec="int4-delta", rounds=4)
    undisturbed = played(spec, local_engine(spec, chunk=1))
    engine, grid = federation_of(spec, tmp_path)
    states, _ = play(spec, engine, rounds=2)
    grid.nodes = {900 - client: node_of(spec, client, tmp_path) for client in range(spec.clients)}
    states, _ = play(spec, engine, states=states)
    assert models(spec, states) == undisturbed
    for kept in (tmp_path / "node0").rglob("*.safetensors"):
        kept.unlink()
    engine, grid = federation_of(spec, tmp_path)
    states, _ = play(spec, engine, rounds=2)
    for kept in (tmp_path / "node0").rglob("*.safetensors"):
        kept.unlink()
    assert models(spec, play(spec, engine, states=states)[0]) != undisturbed


def swapped(content, change):
    """An answer with the bytes of its model replaced."""
    records = dict(content[wire.TENSORS].items())
    name = next(name for name in records if name.endswith("/model"))
    data = change(records[name].data)
    records[name] = Array("uint8", (len(data),), wire.STYPE, data)
    return RecordDict({wire.HEADER: content[wire.HEADER], wire.TENSORS: ArrayRecord(records)})


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: b"", lambda data: bytes(len(data)), lambda data: data + b"x"]
)
def test_a_damaged_reply_is_refused_by_name_and_the_others_count(change, tmp_path):
    spec = small("fedavg", codec="int8-delta")
    engine, grid = federation_of(spec, tmp_path)

    def tamper(node, message, reply):
        if node == 900 and reply.has_content() and wire.TENSORS in reply.content:
            return Message(swapped(reply.content, change), reply_to=message)
        return reply

    grid.tamper = tamper
    outcome = engine.run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))
    assert outcome.replies.clients.tolist() == [1, 2]
    assert "'model' cannot be decoded as int8-delta" in outcome.failures[0].reason


def test_numbers_that_are_not_finite_are_refused_as_without_a_codec(tmp_path):
    spec = small("fedavg", codec="int8-delta", learner={"lr": 1e30, "epochs": 1})
    engine, _ = federation_of(spec, tmp_path)
    with pytest.raises(UserError, match="not finite"):
        engine.run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))
    with pytest.raises(UserError, match="not finite"):
        local_engine(spec).run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))


def test_a_node_with_another_codec_may_not_join(tmp_path, caplog):
    spec = small("fedavg", codec="int8-delta")
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[900] = node_of(spec, 0, tmp_path, codec=Codec.parse("int4-delta"))
    with pytest.raises(UserError, match="missing: client 0"):
        play(spec, engine)
    assert "disagrees on the codec" in caplog.text


def test_a_coded_choice_that_nobody_has_is_refused(tmp_path):
    spec = small("ifca", codec="int8-delta")
    engine, grid = federation_of(spec, tmp_path)

    def tamper(node, message, reply):
        if node != 900 or wire.TENSORS not in reply.content:
            return reply
        records = dict(reply.content[wire.TENSORS].items())
        for name in records:
            if name.endswith("/choice"):
                records[name] = wire._array(torch.tensor(77.0))
        content = RecordDict({wire.HEADER: reply.content[wire.HEADER], wire.TENSORS: ArrayRecord(records)})
        return Message(content, reply_to=message)

    grid.tamper = tamper
    outcome = engine.run(spec.algorithm.ask(spec.algorithm.begin(engine.settings[0])))
    assert outcome.failures[0].client == 0
    assert "'choice' is 77" in outcome.failures[0].reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"engine": "ray"}, "no client's reply travels"),
        ({"engine": {"name": "local", "precision": "float64"}}, "precision is float64"),
        ({"privacy": "central", "algorithm": {"name": "fedavg", "weighting": "equal"}}, "float32-delta loses nothing"),
        ({"codec": "int9-delta"}, "unknown codec 'int9-delta'; did you mean 'int8-delta'"),
    ],
)
def test_where_a_codec_makes_no_sense_it_is_refused_with_the_reason(changes, reason):
    with pytest.raises(UserError, match=reason):
        small(**({"algorithm": "fedavg", "codec": "int8-delta"} | changes))
