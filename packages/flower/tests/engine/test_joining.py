"""Who may join: nodes of the clients that are missing, whose columns, protocol and protection are those agreed on."""

from __future__ import annotations

import json

import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from memory_federation import HOSTILE, federation_of, node_of, one_exchange, small

from fedpareto.config.errors import QuorumLost, UserError
from fedpareto_flower.engine import schema, wire
from fedpareto_flower.engine.post import HELLO
from fedpareto_flower.engine.schema import MEANING


def test_the_server_waits_for_its_nodes_and_says_who_is_missing(tmp_path):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    del grid.nodes[HOSTILE]
    with pytest.raises(UserError, match=r"only 2 of 3 nodes joined within 0\.2 s; missing: client 1"):
        one_exchange(spec, engine)


def test_with_a_quorum_it_starts_without_them(tmp_path):
    spec = small("fedavg", quorum=2)
    engine, grid = federation_of(spec, tmp_path)
    del grid.nodes[HOSTILE]
    outcome = one_exchange(spec, engine)
    assert outcome.replies.clients.tolist() == [0, 2]


def test_two_nodes_cannot_be_the_same_client(tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[HOSTILE] = node_of(spec, 2, tmp_path / "copy")
    with pytest.raises(UserError, match="missing: client 1"):
        one_exchange(spec, engine)
    assert "it claims to be client 2, but node" in caplog.text


def test_a_registered_key_belongs_to_one_client(tmp_path, caplog):
    spec = small("fedavg")
    engine, _ = federation_of(spec, tmp_path, owners={900: 0, 899: 2, 898: 1})
    with pytest.raises(UserError, match="missing: client 1, 2"):
        one_exchange(spec, engine)
    assert "its key was registered for another" in caplog.text


def test_a_node_with_other_columns_may_not_join(tmp_path, caplog):
    spec = small("fedavg")
    expected = schema.columns(spec.federation(0).splits)
    engine, grid = federation_of(spec, tmp_path, expected=expected)
    federation = grid.nodes[HOSTILE].federations[0]
    rows = federation.splits["train"]
    rows.columns["age"] = rows.columns.pop(next(iter(rows.columns)))
    with pytest.raises(UserError, match="missing: client 1"):
        one_exchange(spec, engine)
    assert "disagrees on the columns of the data" in caplog.text


def header_with(change):
    """Introduces the hostile node with a changed header."""

    def tamper(node, message, reply):
        if node != HOSTILE or message.metadata.message_type != HELLO:
            return reply
        header = json.loads(reply.content[wire.HEADER][wire.HEADER])
        change(header)
        return Message(RecordDict({wire.HEADER: ConfigRecord({wire.HEADER: json.dumps(header)})}), reply_to=message)

    return tamper


@pytest.mark.parametrize("said", [None, 0, wire.PROTOCOL - 1, wire.PROTOCOL + 1, str(wire.PROTOCOL), True])
def test_a_node_of_another_protocol_may_not_join(said, tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = header_with(lambda header: header.update(protocol=said))
    with pytest.raises(UserError, match="missing: client 1"):
        one_exchange(spec, engine)
    assert f"it speaks another protocol than {wire.PROTOCOL}: both sides need the same fedpareto" in caplog.text


@pytest.mark.parametrize("subject", ["model", "algorithm", "privacy", "secure_sum", "learner", "codec", "setting"])
def test_what_a_node_leaves_out_of_its_introduction_is_no_agreement(subject, tmp_path, caplog):
    spec = small("fedavg")
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = header_with(lambda header: header["schema"].pop(subject))
    with pytest.raises(UserError, match="missing: client 1"):
        one_exchange(spec, engine)
    assert f"it disagrees on {MEANING[subject]}" in caplog.text


def test_a_server_that_drops_the_protection_gets_nothing_from_nodes_that_have_it(tmp_path):
    """Nodes protect what they send by their own spec; there is nothing that a server could negotiate."""
    protected = small("fedavg", secure_sum={"kind": "masked"})
    engine, grid = federation_of(small("fedavg"), tmp_path)
    for number, client in ((900, 0), (HOSTILE, 1), (898, 2)):
        grid.nodes[number] = node_of(protected, client, tmp_path / "protected")
    agreed = schema.agreement(engine.algorithm, engine.learner, engine.settings, engine.codec)
    claim = header_with(lambda header: header["schema"].update(agreed))
    grid.tamper = lambda node, message, reply: claim(HOSTILE, message, reply)
    with pytest.raises(QuorumLost) as lost:
        one_exchange(small("fedavg", quorum=1), engine)
    assert sorted(failure.client for failure in lost.value.failures) == [0, 1, 2]
    assert all(failure.reason.startswith("raised ") for failure in lost.value.failures)
