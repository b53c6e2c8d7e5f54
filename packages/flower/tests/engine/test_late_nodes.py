"""Nodes that are slow, away or silent under policies that do not wait: nothing is lost, and nobody is at fault."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Error, Message
from memory_federation import QUICK, federation_of, local_engine, node_of, small
from safetensors.torch import load_file
from test_server import HOSTILE, answers_with, with_model

from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Replies
from fedpareto.record.store import RunFolder
from fedpareto.runs.loop import Experiment
from fedpareto.spec.draft import Draft
from fedpareto.spec.settings import begun_as
from fedpareto_flower.engine.node import MODEL_FILE
from fedpareto_flower.engine.post import AWAY, HELLO
from waiting import PATIENCE

SLOW = (899, 897)
"""The nodes of clients 1 and 3."""
FACTOR = 10
BUFFERED = {"kind": "buffered", "buffer": 2}


def six(algorithm, policy=BUFFERED, **values):
    return small(algorithm, policy=policy, **{"clients": 6, "rounds": 12} | values)


def slowed(grid, nodes=SLOW, factor=FACTOR):
    """Answers of these nodes come after so many of the others': slowness without a clock. How many came so far."""
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
    return lambda: taken[0]


def watched(experiment):
    """Notes whose replies each round has, and how late they are."""
    arrivals, exchange = [], experiment.dispatch.exchange

    def noted(*given):
        (handed,) = exchange(*given)
        arrivals.append((handed.replies.clients.tolist(), handed.staleness.tolist()))
        return [handed]

    experiment.dispatch.exchange = noted
    return arrivals


def by_hand(spec, arrivals, exponent=0.5):
    """The clients' models that these arrivals lead to: x ← now + (1 + τ)^−exponent · (x − begun), one by one."""
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
    return engine.models(0, algorithm.solutions(states[-1]))


def assert_by_hand(spec, folder, arrivals, exponent=0.5, nodes=4):
    """What the nodes that were heard at the end have kept is what these arrivals lead to."""
    expected = by_hand(spec, arrivals, exponent)
    found = {path.parent.name: load_file(path)["seed0"] for path in folder.glob(f"node*/{MODEL_FILE}")}
    assert len(found) >= nodes
    for client in range(6):
        if f"node{client}" in found:
            assert float((found[f"node{client}"] - expected[client]).abs().max()) <= 1e-5


def ages(arrivals):
    return {pair for clients, staleness in arrivals for pair in zip(clients, staleness, strict=True)}


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
    assert {client for client, _ in ages(arrivals)} == set(range(6)), "nobody is left behind"
    assert max(age for _, age in ages(arrivals)) >= 4
    assert_by_hand(spec, tmp_path, arrivals, exponent)
    assert [row.get("staleness") for row in result.history[:-1]] == [np.mean(late) for _, late in arrivals]
    assert not any(row["failures"] for row in result.history)


# -- nodes that leave, and servers that are killed -------------------------------------------------------------------


def test_the_task_of_a_node_that_leaves_stays_with_it_and_counts_when_it_returns(tmp_path):
    """Its answer was lost with its process. It comes back as another node of Flower, and answers the same task."""
    spec = six("ditto")
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = lambda node, message, reply: reply if node != 898 or message.metadata.message_type == HELLO else None
    experiment = Experiment(spec, engine)
    arrivals = watched(experiment)
    for _ in range(4):
        experiment._one_round()
        grid.nodes.pop(898, None)
    assert 2 not in {client for client, _ in ages(arrivals)}
    assert engine.at_work()[2][0] == 1
    grid.nodes[950] = node_of(spec, 2, tmp_path)
    result = experiment.run()
    assert max(age for client, age in ages(arrivals) if client == 2) >= 4
    assert not any(row["failures"] for row in result.history)
    assert_by_hand(spec, tmp_path, arrivals)


def test_a_node_that_is_away_when_it_is_asked_gets_the_newest_model_on_its_return(tmp_path):
    spec = six("fedavg", rounds=6)
    engine, grid = federation_of(spec, tmp_path)
    experiment = Experiment(spec, engine)
    away = grid.nodes.pop(898)
    arrivals = watched(experiment)
    for _ in range(3):
        experiment._one_round()
    grid.nodes[898] = away
    experiment.run()
    assert 2 in {client for client, _ in ages(arrivals)}
    assert max(age for client, age in ages(arrivals) if client == 2) < 3


def test_a_server_begins_without_those_who_are_away(tmp_path, caplog):
    spec = six("fedavg", rounds=2)
    engine, grid = federation_of(spec, tmp_path, replace(QUICK, join_timeout=1e6))
    grid.nodes.pop(898)
    result = Experiment(spec, engine).run()
    assert "starting without client 2" in caplog.text
    assert [row["replies"] for row in result.history] == [2, 2, 0]


@pytest.mark.parametrize("name", ["fedavg", "ditto"])
def test_a_killed_server_asks_again_for_what_was_out_and_nobody_trains_twice(name, tmp_path):
    """Nodes had done it, and tasks of a round that the server lost; what clients keep goes on from what counts."""
    spec = six(name, BUFFERED | {"concurrency": 4})
    engine, grid = federation_of(spec, tmp_path)
    with RunFolder.create(tmp_path / "run", spec) as folder:
        killed = Experiment(spec, engine, folder)
        slowed(grid)
        arrivals = watched(killed)
        for _ in range(4):
            killed._one_round()
        out = {client: round_ for client, (round_, _) in engine.at_work().items() if client in (1, 3)}
        clock, saved = killed.recorder.history[-1]["clock"], folder.checkpoint_file.read_bytes()
        killed._one_round()
        del arrivals[4:]
        folder.checkpoint_file.write_bytes(saved)  # As if it had been killed in the fifth round.
        again, others = federation_of(spec, tmp_path)
        slowed(others, factor=3)
        resumed = Experiment(spec, again, folder)
        resumed.restore(folder)
        assert resumed.dispatch.flights[0].now >= clock
        later = watched(resumed)
        result = resumed.run()
    assert len(out) == 2
    for client, round_ in out.items():
        first = next(number for number, (clients, _) in enumerate(later, 5) if client in clients)
        assert (client, first - round_) in ages(later)
    assert_by_hand(spec, tmp_path, arrivals + later)
    assert not any(row["failures"] for row in result.history)


def test_what_was_late_and_is_dropped_does_not_count_for_what_clients_keep(tmp_path):
    spec = six("ditto", {"kind": "deadline", "deadline": 1e-9, "late": "dropped"}, rounds=6)
    engine, grid = federation_of(spec, tmp_path)
    slowed(grid)
    experiment = Experiment(spec, engine)
    arrivals = watched(experiment)
    experiment.run()
    assert ages(arrivals) == {(client, 0) for client in (0, 2, 4, 5)}
    assert_by_hand(spec, tmp_path, arrivals, nodes=6)


# -- what is a failure -----------------------------------------------------------------------------------------------


def test_silence_is_no_failure_and_an_error_is_one(tmp_path, caplog):
    spec = six("fedavg", rounds=6)
    engine, grid = federation_of(spec, tmp_path)
    experiment = Experiment(spec, engine)

    def tamper(node, message, reply):
        if node not in SLOW:
            return reply
        return None if node == SLOW[0] else Message(Error(2, "out of memory"), reply_to=message)

    grid.tamper = tamper
    for _ in range(6):
        experiment._one_round()
    assert "client 3: the node failed: out of memory" in caplog.text
    assert "client 1" not in caplog.text
    assert sum(row["failures"] for row in experiment.recorder.history) > 0


def test_errors_of_flower_itself_are_no_failures_and_the_task_is_sent_again(tmp_path):
    spec = six("fedavg", {"kind": "buffered", "buffer": 6}, rounds=2)
    engine, grid = federation_of(spec, tmp_path)
    lost = iter(AWAY)

    def tamper(node, message, reply):
        code = next(lost, None) if node == HOSTILE and message.metadata.message_type != HELLO else None
        return reply if code is None else Message(Error(code, "gone"), reply_to=message)

    grid.tamper = tamper
    result = Experiment(spec, engine).run()
    assert next(lost, None) is None
    assert [(row["replies"], row["failures"]) for row in result.history] == [(6, 0), (6, 0), (0, 0)]


def test_an_update_far_longer_than_what_others_sent_in_earlier_rounds_is_refused(tmp_path, caplog):
    spec = six("fedavg", "asynchronous", rounds=8)
    engine, grid = federation_of(spec, tmp_path)
    grid.tamper = answers_with(with_model(lambda model: model + 1e6))
    experiment = Experiment(spec, engine)
    arrivals = watched(experiment)
    for _ in range(8):
        experiment._one_round()
    assert "client 1: refused: its update of 'model' is" in caplog.text
    assert {client for client, _ in ages(arrivals)} == {0, 2, 3, 4, 5}


# -- other policies --------------------------------------------------------------------------------------------------


def test_tiers_of_nodes_follow_what_they_take_and_the_slow_hold_up_nobody_else(tmp_path):
    """Time is counted in answers of the others, so that it goes on with them, however busy a machine is."""
    spec = six("fedavg", {"kind": "tiers", "lead": 100}, rounds=12)
    engine, grid = federation_of(spec, tmp_path, replace(QUICK, timeout=PATIENCE))
    experiment = Experiment(spec, engine)
    (air,) = experiment.dispatch.flights
    air.clock, air.now = slowed(grid, factor=10**6), 0.0
    arrivals = watched(experiment)
    for _ in range(12):
        experiment._one_round()
    assert {client for client, _ in ages(arrivals)} == {0, 2, 4, 5}
    assert {len(clients) for clients, _ in arrivals[2:]} == {2}


@pytest.mark.parametrize("policy", ["sync", {"kind": "buffered", "buffer": 3}], ids=["sync", "buffered"])
def test_a_selection_chooses_among_nodes_with_any_policy(policy, tmp_path):
    spec = six("fedavg", policy, participation=0.5, selection="round-robin", rounds=4)
    experiment = Experiment(spec, federation_of(spec, tmp_path)[0])
    exchange, asked = experiment.dispatch.exchange, []

    def noted(*given):
        handed = exchange(*given)
        asked.append(handed[0].replies.clients.tolist())
        return handed

    experiment.dispatch.exchange = noted
    result = experiment.run()
    assert asked == [[0, 1, 2], [3, 4, 5]] * 2
    assert [row["clock"] for row in result.history] == sorted(row["clock"] for row in result.history)
    assert "joules" not in result.history[0]


def test_fine_tuning_ends_with_a_round_of_everybody(tmp_path):
    spec = six("fedavg+ft", rounds=3)
    engine, grid = federation_of(spec, tmp_path, replace(QUICK, timeout=PATIENCE))
    slowed(grid, factor=3)
    result = Experiment(spec, engine).run()
    assert [row["replies"] for row in result.history] == [2, 2, 6, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"engine": "flower-local", "seeds": 2}, "a run has one seed, not 2"),
        ({"engine": "flower-sim"}, "nodes of flower-sim have no time of their own"),
        ({"engine": "flower-local", "devices": "tiers"}, "devices are simulated by the engine local"),
    ],
)
def test_what_nodes_cannot_have_is_refused_in_a_line(values, message):
    with pytest.raises(UserError, match=message) as refused:
        Draft({"algorithm": "fedavg", "clients": 6, "policy": "buffered", **values}).finish()
    assert len(str(refused.value).splitlines()) == 1
