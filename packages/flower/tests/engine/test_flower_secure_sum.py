"""A secure sum among nodes: the same models as without it, and nothing in what the server receives but the sum."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from flwr.app import Message
from memory_federation import FEW_ROWS, federation_of, local_engine, node_of, play, small
from real_federation import nodes_of, server_of

from fedpareto.config.errors import UserError
from fedpareto_flower.engine import wire

MASKED = {"kind": "masked"}


def models_of(spec, states):
    return torch.stack([message["model"] for message in spec.algorithm.solutions(states[0]).values()])


def test_nodes_have_the_models_of_one_process_and_of_plain_fedavg(tmp_path):
    spec, plain = small("fedavg", secure_sum=MASKED), small("fedavg")
    engine, _ = federation_of(spec, tmp_path)
    states, measured = play(spec, engine)
    found = models_of(spec, states)
    wanted_states, wanted = play(spec, local_engine(spec))
    torch.testing.assert_close(found, models_of(spec, wanted_states), atol=1e-6, rtol=0)
    torch.testing.assert_close(found, models_of(plain, play(plain, local_engine(plain))[0]), atol=1e-6, rtol=0)
    assert sorted(engine.models(0, spec.algorithm.solutions(states[0]))) == [0, 1, 2], "the server knows the result"
    trained = [one for one in measured if len(one.trained)]
    assert len(trained) == spec.rounds, "what a client trained is measured once a round"
    for one, other in zip(trained, [one for one in wanted if len(one.trained)], strict=True):
        torch.testing.assert_close(one.trained.rows, other.trained.rows, atol=1e-5, rtol=0)


@pytest.mark.takes_long
def test_real_nodes_add_up_in_secret_over_a_real_wire(real, tmp_path):
    draft = FEW_ROWS | {"algorithm": "fedavg", "rounds": 2, "secure_sum": "masked"}
    spec = small("fedavg", rounds=2, secure_sum=MASKED)
    real.serve(nodes_of(draft, tmp_path))
    found = models_of(spec, play(spec, server_of(spec, real.grid))[0])
    plain = small("fedavg", rounds=2)
    torch.testing.assert_close(found, models_of(plain, play(plain, local_engine(plain))[0]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda masked: masked[:-1], r"refused: 'masked' has the shape \[\d+\], not \[\d+\]"),
        (lambda masked: masked.float(), r"refused: 'masked' is of type torch.float32, not torch.int64"),
    ],
)
def test_a_malformed_masked_reply_is_refused_by_name_and_the_others_go_on(damage, words, tmp_path, caplog):
    spec = small("fedavg", secure_sum=MASKED, clients=5, rounds=1)
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = lambda node, message, reply: damaged(message, reply, damage) if node == 897 else reply
    found = models_of(spec, play(spec, engine)[0])
    assert re.search(f"round 1, client 3: {words}", caplog.text)
    plain = small("fedavg", clients=5, rounds=1)
    other = local_engine(plain)
    begun = plain.algorithm.begin(other.settings[0])
    replies = other.run(plain.algorithm.ask(begun)).replies
    told = plain.algorithm.tell(begun, replies.only(np.array([0, 1, 2, 4])))
    torch.testing.assert_close(found[0], told.model, atol=1e-6, rtol=0)
    assert caplog.text.count("client 3") == 1


def damaged(message, reply, damage):
    """The same answer with another tensor in the place of the masked one."""
    if reply.has_error() or "masked" not in str(reply.content.config_records[wire.HEADER]):
        return reply
    answer = wire.decode_answer(reply.content)
    (result,) = answer.results
    (own,) = result.replies
    false = wire.Reply(own.client, own.round, {"masked": damage(own.message["masked"])}, own.step, own.lane)
    content = wire.encode_answer(
        wire.Answer(answer.federation, answer.client, answer.nonce, (wire.Result(0, (false,)),))
    )
    return Message(content, reply_to=message)


@pytest.mark.parametrize("change", [{"kind": "none"}, {"precision": 20}, {"threshold": 0.6}])
def test_a_node_with_another_secure_sum_may_not_join(change, tmp_path, caplog):
    spec = small("fedavg", secure_sum=MASKED)
    engine, grid = federation_of(spec, tmp_path)
    grid.nodes[900] = node_of(small("fedavg", secure_sum=MASKED | change), 0, tmp_path)
    with pytest.raises(UserError, match="missing: client 0"):
        play(spec, engine)
    assert "disagrees on the secure sum, its parameters or its version" in caplog.text
