"""A node keeps its secrets and its place in time, over restarts of its process and of the server."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flwr.app import RecordDict
from memory_federation import federation_of, node_of, play, small
from safetensors.torch import load_file

from fedpareto.config.errors import DamagedFile, QuorumLost, UserError
from fedpareto.engines.single import Task
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.node import MODEL_FILE
from fedpareto_flower.engine.private import Moment, PrivateStore


def state(value):
    return {"model": torch.tensor([float(value)])}


def test_a_task_continues_from_the_newest_state_before_it(tmp_path):
    store = PrivateStore(tmp_path)
    assert store.before(0, 0, Moment(1, 0)) is None
    for number in (1, 2, 3):
        store.keep(0, 0, Moment(number, 0), state(number))
    assert store.before(0, 0, Moment(4, 0))["model"] == 3
    assert store.before(0, 0, Moment(3, 0))["model"] == 2
    assert store.before(0, 0, Moment(2, 0))["model"] == 1


def test_runs_lanes_and_exchanges_are_kept_apart(tmp_path):
    store = PrivateStore(tmp_path)
    store.keep(0, 0, Moment(1, 0), state(1))
    store.keep(0, 1, Moment(1, 0), state(2))
    store.keep(1, 0, Moment(1, 0), state(3))
    store.keep(0, 0, Moment(1, 1), state(4))
    assert store.before(0, 0, Moment(1, 1))["model"] == 1
    assert store.before(0, 0, Moment(2, 0))["model"] == 4
    assert store.before(0, 1, Moment(2, 0))["model"] == 2
    assert store.before(1, 0, Moment(2, 0))["model"] == 3


def test_what_the_server_has_undone_is_forgotten(tmp_path):
    store = PrivateStore(tmp_path)
    for number in (1, 2, 3):
        store.keep(0, 0, Moment(number, 0), state(number))
    store.keep(0, 0, Moment(2, 0), state(20))
    assert store.before(0, 0, Moment(4, 0))["model"] == 20


def test_state_of_rounds_that_never_counted_is_left_out_and_an_old_message_destroys_nothing(tmp_path):
    store = PrivateStore(tmp_path)
    store.keep(0, 0, Moment(1, 0), state(1), since=0)
    store.keep(0, 0, Moment(3, 0), state(3), since=1)  # Lost with a killed server, or dropped.
    assert store.before(0, 0, Moment(5, 0), since=1)["model"] == 1
    store.keep(0, 0, Moment(5, 0), state(5), since=1)
    store.keep(0, 0, Moment(3, 0), state(30), since=1)  # The same task, delivered once more.
    assert store.before(0, 0, Moment(7, 0), since=5)["model"] == 5


def test_only_a_few_states_are_kept_and_going_back_further_is_refused(tmp_path):
    store = PrivateStore(tmp_path)
    for number in range(1, 10):
        store.keep(0, 0, Moment(number, 0), state(number))
    assert len(list(tmp_path.iterdir())) == 3
    assert store.before(0, 0, Moment(8, 0))["model"] == 7
    with pytest.raises(UserError, match="gone back too far"):
        store.before(0, 0, Moment(5, 0))


def test_a_server_that_begins_again_finds_a_fresh_client(tmp_path):
    store = PrivateStore(tmp_path)
    for number in (1, 2):
        store.keep(0, 0, Moment(number, 0), state(number))
    assert store.before(0, 0, Moment(1, 0)) is None


def test_a_damaged_state_is_named(tmp_path):
    store = PrivateStore(tmp_path)
    store.keep(0, 0, Moment(1, 0), state(1))
    next(tmp_path.iterdir()).write_bytes(b"\x00" * 10)
    with pytest.raises(DamagedFile, match="round1"):
        store.before(0, 0, Moment(2, 0))


def test_a_state_that_was_altered_is_named_whichever_byte_it_was(tmp_path):
    store = PrivateStore(tmp_path)
    store.keep(0, 0, Moment(1, 0), state(1))
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for place in range(8, len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            found = store.before(0, 0, Moment(2, 0))
        except DamagedFile:
            continue
        assert found == state(1), f"byte {place}"  # A letter of the header that says nothing.


def restarted(grid, spec, folder):
    """Every node's process killed and started again: nothing but its files is left."""
    grid.nodes = {node: node_of(spec, old.client, folder) for node, old in grid.nodes.items()}


def final_models(folder, clients=3):
    return [load_file(folder / f"node{client}" / MODEL_FILE) for client in range(clients)]


@pytest.mark.parametrize("name", ["local", "fedpref"])
def test_nodes_killed_after_every_round_end_with_the_same_models(name, tmp_path):
    spec = small(name)
    engine, grid = federation_of(spec, tmp_path / "killed")
    states = None
    for rounds in range(1, spec.rounds + 1):
        states, _ = play(spec, engine, rounds, states)
        restarted(grid, spec, tmp_path / "killed")
    other, _ = federation_of(spec, tmp_path / "undisturbed")
    play(spec, other)
    for found, wanted in zip(final_models(tmp_path / "killed"), final_models(tmp_path / "undisturbed"), strict=True):
        assert torch.equal(found["seed0"], wanted["seed0"])


def test_a_server_that_repeats_a_round_does_not_train_on_advanced_state(tmp_path):
    spec = small("local")
    engine, _ = federation_of(spec, tmp_path / "resumed")
    states, _ = play(spec, engine, 2)
    play(spec, engine, 3, states)
    resumed, grid = federation_of(spec, tmp_path / "resumed")
    restarted(grid, spec, tmp_path / "resumed")
    play(spec, resumed, 3, states)
    other, _ = federation_of(spec, tmp_path / "undisturbed")
    play(spec, other)
    for found, wanted in zip(final_models(tmp_path / "resumed"), final_models(tmp_path / "undisturbed"), strict=True):
        assert torch.equal(found["seed0"], wanted["seed0"])


def envelope_of(spec, node, nonce="a", client=0, federation="test", round_=1):
    state = spec.algorithm.begin(node.engine.settings[0])
    (tasks,) = spec.algorithm.ask(state)
    task = Task.of(tasks, 0)
    job = wire.Job(0, round_, 0, (task,), spec.algorithm.solutions(state)[0], True)
    if client != 0:
        job = wire.Job(0, round_, 0)
    return wire.encode_envelope(wire.Envelope(federation, client, nonce, (job,)))


def raw(content):
    return {path: array.data for path, array in content.array_records.get(wire.TENSORS, {}).items()}


def test_the_same_envelope_again_gets_the_same_answer_also_after_a_restart(tmp_path):
    spec = small("fedavg")
    node = node_of(spec, 0, tmp_path)
    first = node.answer(envelope_of(spec, node))
    assert raw(node.answer(envelope_of(spec, node))) == raw(first)
    again = node_of(spec, 0, tmp_path)
    assert raw(again.answer(envelope_of(spec, again))) == raw(first)


def test_a_node_refuses_what_is_not_for_it(tmp_path):
    spec = small("fedavg")
    node = node_of(spec, 0, tmp_path)
    with pytest.raises(UserError, match="this node is client 0"):
        node.answer(envelope_of(spec, node, client=1))
    with pytest.raises(UserError, match="belongs to the federation test"):
        node.answer(envelope_of(spec, node, federation="other"))
    with pytest.raises(wire.Malformed):
        node.answer(RecordDict())


def changed_envelope(spec, node, task=(), job=()):
    envelope = wire.decode_envelope(envelope_of(spec, node))
    (whole,) = envelope.jobs
    tasks = tuple(replace(one, **dict(task)) for one in whole.tasks)
    round_ = dict(job).get("round", whole.round)
    tasks = tuple(replace(one, round=round_) for one in tasks)
    return wire.encode_envelope(replace(envelope, jobs=(replace(whole, tasks=tasks, **dict(job)),)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task": {"step": "__init__"}}, "names the step '__init__', not train"),
        ({"task": {"step": "describe"}}, "names the step 'describe', not train"),
        ({"task": {"lane": 3}}, "is for lane 3"),
        ({"task": {"lane": 2**50}}, "is for lane"),
        ({"job": {"round": 4}}, "is for round 4; this federation has 3"),
        ({"job": {"round": 2**53 - 1}}, "is for round"),
        ({"job": {"round": 0}}, "is for round 0"),
        ({"job": {"exchange": 1}}, "is for exchange 2"),
    ],
)
def test_what_the_spec_does_not_plan_is_refused_before_anything_is_called(changes, reason, tmp_path, monkeypatch):
    spec = small("fedavg")
    node = node_of(spec, 0, tmp_path)
    asked = changed_envelope(spec, node, **changes)
    monkeypatch.setattr(type(node.engine), "run_all", lambda *_: pytest.fail("the engine was called"))
    with pytest.raises(UserError, match=reason):
        node.answer(asked)
    assert node.algorithm == spec.algorithm
    assert not node.folder.exists()


def test_a_client_does_one_task_at_a_time(tmp_path):
    """Two of one lane are two answers for what was agreed to be one."""
    spec = small("fedavg")
    node = node_of(spec, 0, tmp_path)
    envelope = wire.decode_envelope(envelope_of(spec, node))
    (job,) = envelope.jobs
    twice = wire.encode_envelope(replace(envelope, jobs=(replace(job, tasks=job.tasks * 2),)))
    with pytest.raises(UserError, match="two tasks for one lane"):
        node.answer(twice)
    assert not node.folder.exists()


def test_a_node_holds_one_clients_rows_and_preference_only(tmp_path):
    spec = small("fedavg")
    whole = spec.federation(0)
    node = node_of(spec, 1, tmp_path)
    (own,) = node.federations
    assert own.ids == (1,)
    assert (own.preferences == whole.preferences[1:2]).all()
    for name, rows in whole.splits.items():
        mine = rows.of_client(1)
        for column, values in own.splits[name].columns.items():
            assert torch.equal(values, mine[column])


def test_what_an_exception_says_stays_at_the_node(tmp_path, monkeypatch):
    """A library's message may quote a row; the server learns the kind only."""
    spec = small("fedavg")
    engine, _ = federation_of(spec, tmp_path)

    def fails(self, clients, message):
        raise ValueError("could not read 'Jane Roe'")

    monkeypatch.setattr(type(spec.algorithm), "train", fails)
    state = spec.algorithm.begin(engine.settings[0])
    with pytest.raises(QuorumLost) as lost:
        engine.run(spec.algorithm.ask(state))
    assert {failure.reason for failure in lost.value.failures} == {"raised ValueError"}
