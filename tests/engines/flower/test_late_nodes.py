"""Nodes that are slow, away or silent under policies that do not wait: nothing is lost, and nobody is at fault."""

from __future__ import annotations

import numpy as np
import pytest
from memory_federation import federation_of, local_engine, small
from safetensors.torch import load_file

from fedpareto.core.messages import Replies
from fedpareto.engines.flower.node import MODEL_FILE
from fedpareto.engines.flower.post import HELLO
from fedpareto.experiments.dispatch import begun_as
from fedpareto.experiments.experiment import Experiment

SLOW = (899, 897)
"""The nodes of clients 1 and 3."""
FACTOR = 10
BUFFERED = {"kind": "buffered", "buffer": 2}


def six(algorithm, policy=BUFFERED, **values):
    return small(algorithm, policy=policy, **{"clients": 6, "rounds": 12} | values)


def slowed(grid, nodes=SLOW, factor=FACTOR):
    """Answers of these nodes come after so many of the others': slowness without a clock."""
    whose, due, taken = {}, {}, [0]
    push, pull = grid.push_messages, grid.pull_messages

    def push_messages(messages):
        messages = list(messages)
        names = push(messages)
        for name, message in zip(names, messages, strict=True):
            if message.metadata.message_type != HELLO:
                whose[name] = message.metadata.dst_node_id
                due[name] = taken[0] + (factor if whose[name] in nodes else 0)
        return names

    def pull_messages(names):
        found = pull([name for name in names if due.get(name, 0) <= taken[0]])
        taken[0] += sum(whose.get(one.metadata.reply_to_message_id) not in (None, *nodes) for one in found)
        return found

    grid.push_messages, grid.pull_messages = push_messages, pull_messages
    return grid


def watched(experiment):
    """Notes whose replies each round has, and how late they are."""
    arrivals, exchange = [], experiment.dispatch.exchange

    def noted(*given):
        (handed,) = exchange(*given)
        arrivals.append((handed.outcome.replies.clients.tolist(), handed.staleness.tolist()))
        return [handed]

    experiment.dispatch.exchange = noted
    return arrivals


def by_hand(spec, arrivals, exponent):
    """The states that these arrivals lead to: x ← now + (1 + τ)^−exponent · (x − begun), client by client."""
    engine, algorithm = local_engine(spec), spec.algorithm
    states = [algorithm.begin(begun_as(spec, engine.settings[0]))]
    for clients, staleness in arrivals:
        (now,) = algorithm.ask(states[-1])
        replies = {}
        for client, late in zip(clients, staleness, strict=True):
            (begun,) = algorithm.ask(states[-1 - late])
            (row,) = np.flatnonzero(begun.clients == client)
            reply = engine.run([begun.only(np.array([row]))]).replies
            message = {name: tensor[0] for name, tensor in reply.tensors.items()}
            moved = (1 + late) ** -exponent * (message["model"] - begun[client]["model"])
            replies[client] = message | {"model": now[client]["model"] + moved}
        states.append(algorithm.tell(states[-1], Replies.of(replies, round=len(states))))
    return states


def models(spec, state):
    return spec.algorithm.solutions(state).stacked()["model"]


# -- what is the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedavg", "fedpref", "ditto"])
def test_a_buffer_for_all_nodes_gives_the_record_and_the_models_of_the_local_run(name, tmp_path):
    spec = small(name, policy={"kind": "buffered", "buffer": 3})
    engine, _ = federation_of(spec, tmp_path)
    found, wanted = Experiment(spec, engine).run(), Experiment(spec, local_engine(spec)).run()
    for row, expected in zip(found.history, wanted.history, strict=True):
        for key in ("round", "replies", "failures", "bytes_up", "bytes_down", "hypervolume", "staleness"):
            assert row.get(key) == pytest.approx(expected.get(key), abs=1e-5)
    for client, model in wanted.models[0].items():
        kept = load_file(tmp_path / f"node{client}" / MODEL_FILE)["seed0"]
        assert float((kept - model).abs().max()) <= 1e-5


@pytest.mark.parametrize(("name", "exponent"), [("fedavg", 0.5), ("fedpref", 0)])
def test_late_replies_count_by_their_age_from_the_models_that_they_meet(name, exponent, tmp_path):
    """Nobody but a client itself changes its model of FedPref: what it sends late counts as it is."""
    spec = six(name)
    engine, grid = federation_of(spec, tmp_path)
    slowed(grid)
    experiment = Experiment(spec, engine)
    arrivals = watched(experiment)
    result = experiment.run()
    assert {client for clients, _ in arrivals for client in clients} == set(range(6)), "nobody is left behind"
    assert max(age for _, ages in arrivals for age in ages) >= 4
    states = by_hand(spec, arrivals, exponent)
    assert float((models(spec, experiment.states[0]) - models(spec, states[-1])).abs().max()) <= 1e-5
    assert [row.get("staleness") for row in result.history[:-1]] == [np.mean(ages) for _, ages in arrivals]
    assert not any(row["failures"] for row in result.history)
