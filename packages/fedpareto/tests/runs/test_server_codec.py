"""What the server sends, coded: a closed loop in which both ends hold the same, and what is lost is sent later."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.codecs import Codec
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.engines.downlink import NOTHING, Downlink, Replicas
from fedpareto.runs.loop import Experiment
from fedpareto.runs.runner import resume, start
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto_space.session.learning import ServerHalf
from folders import assert_same_results
from little_work import LITTLE_WORK

SMALL = {"problem": {"name": "convex", "dimension": 40}, "clients": 7, "rounds": 5}
LOSSY = ("float16-delta", "bfloat16-delta", "int8", "int8-delta", "int4-delta", "top10%-delta")
FAST = {"kind": "lognormal", "speed": 1e7, "latency": 0, "down": 1e30, "up": 1e30}
"""Unequal machines whose links take no time beside the training."""
BUFFERED = {"kind": "buffered", "buffer": 3, "concurrency": 4}


def spec_of(algorithm="fedavg", **values):
    parameters = LITTLE_WORK.get(algorithm, {})
    given = {"algorithm": {"name": algorithm, **parameters}, "engine": {"threads": 1, "chunk": 4}}
    return Draft({**SMALL, **given, **values}).finish()


def models(result, run=0):
    return torch.stack([result.models[run][client] for client in sorted(result.models[run])])


def column(result, name, seed=0):
    return [row.get(name) for row in result.history if row["seed"] == seed]


# -- nothing is lost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm", ["fedavg", "fedpref", "fedmgda-plus", "fedcmoo", "fedfew", "praffl", "mofld", "fedavg+ft", "ditto"]
)
def test_without_loss_a_run_is_the_plain_one_bit_for_bit(algorithm):
    problem = {"problem": {"name": "synthetic", "rows": 400}} if algorithm == "praffl" else {}
    given = {"participation": 0.6, "rounds": 4, "faults": {"dropout": 0.2}, **problem}
    plain, coded = (start(spec_of(algorithm, server_codec=codec, **given)) for codec in ("float32", "float32-delta"))
    assert torch.equal(models(plain), models(coded))
    assert column(plain, "bytes_up") == column(coded, "bytes_up")
    down = np.array([column(one, "bytes_down") for one in (plain, coded)])
    assert (down[0] >= down[1]).all(), "what would be longer coded travels as it is"
    assert algorithm != "fedcmoo" or down[0].sum() > 1.4 * down[1].sum(), "the same model twice in a round"


@pytest.mark.parametrize("policy", [BUFFERED, "asynchronous", "tiers", {"kind": "deadline", "deadline": 0.003}, "sync"])
def test_without_loss_nothing_changes_under_any_policy_where_links_take_no_time(policy):
    given = {"policy": policy, "devices": FAST, "seeds": 2}
    plain, coded = (start(spec_of(server_codec=codec, **given)) for codec in ("float32", "float32-delta"))
    for run, seed in enumerate((0, 1)):
        assert torch.equal(models(plain, run), models(coded, run))
        for name in ("clock", "staleness", "replies"):
            assert column(plain, name, seed) == column(coded, name, seed)


# -- by hand ---------------------------------------------------------------------------------------------------------


def test_two_rounds_by_hand():
    """θ₁ reaches everybody as r = θ₀ + decoded(θ₁ − θ₀); an update is measured from r, and counts from θ₁."""
    spec = spec_of(server_codec="int4-delta", rounds=2, algorithm="fedavg")
    codec = Codec.parse("int4-delta")
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        experiment._one_round()
        state = experiment.states[0]
        meant, began = state.model, state.setting.initial
        experiment._one_round()
        after = experiment.states[0].model
        (tasks,) = spec.algorithm.ask(state)
        held = torch.from_numpy(codec.decoded(meant.numpy(), began.numpy()))
        (theirs,) = [Tasks(tasks.clients, {"model": held}, round=tasks.round)]
        replies = engine.run([theirs]).replies
    assert not torch.equal(held, meant)
    expected = spec.algorithm.tell(state, replies.moved("model", meant - held)).model
    assert torch.equal(after, expected)
    down = [row["bytes_down"] for row in experiment.recorder.history]
    each = len(codec.encode(meant.numpy(), began.numpy()))
    assert down == [7 * 4 * 40, 7 * each]


def test_bytes_to_a_client_decide_when_it_begins():
    devices = {"kind": "equal", "speed": 1e15, "latency": 0.5, "down": 100.0, "up": 1e30}
    spec = spec_of(server_codec="int8-delta", devices=devices)
    with backends.opened(spec) as engine:
        experiment = Experiment(spec, engine)
        for _ in range(3):
            experiment._one_round()
    rows = [row["bytes_down"] / 7 for row in experiment.recorder.history]
    assert experiment.dispatch.flights[0].now == pytest.approx(sum(1 + size / 100 for size in rows), rel=1e-9)
    assert rows[0] == 160
    assert max(rows[1:]) < 80


@pytest.mark.parametrize("codec", LOSSY)
def test_what_is_lost_does_not_add_up(codec):
    """However long a run is, its models are about as far from the plain ones as after a few rounds."""
    given = {"rounds": 30, "evaluate_every": 30}
    plain, coded = (start(spec_of(server_codec=one, **given)) for one in ("float32", codec))
    moved = float((models(plain) - models(start(spec_of(rounds=1)))).norm())
    share = 0.15 if codec.startswith("top") else 0.02  # A tenth of the entries follows some rounds later.
    assert float((models(plain) - models(coded)).norm()) < share * moved


# -- replicas --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["float32-delta", *LOSSY])
def test_the_server_knows_what_a_client_decodes(word):
    """Clients that keep the last message they answered, and decode real bytes; some messages and replies are lost."""
    codec, draw = Codec.parse(word), np.random.default_rng(0)
    replicas, theirs = Replicas.none(5, 60), {}
    target = draw.normal(size=60).astype(np.float32)
    for _ in range(40):
        target = target + draw.normal(scale=0.1, size=60).astype(np.float32)
        who = np.sort(draw.choice(5, size=3, replace=False))
        sizes = replicas.send(who, target[None], np.zeros(3, dtype=np.int64), codec)
        got = {}
        for client, size in zip(who.tolist(), sizes.tolist(), strict=True):
            if client in theirs:
                data = codec.encode(target, theirs[client])
                got[client] = codec.decode(data, 60, theirs[client]) if len(data) < 240 else target
                assert size == min(len(data), 240)
            else:
                assert size == 240
                got[client] = target
            assert replicas.rows[replicas.sent[client]].tobytes() == got[client].tobytes()
        answers = [client for client in who.tolist() if draw.random() < 0.6]
        replicas.answered(np.array(answers, dtype=np.int64))
        theirs |= {client: got[client] for client in answers}
    used = np.concatenate([replicas.held, replicas.sent])
    assert len(replicas.rows) <= 2 * len(set(used[used != NOTHING].tolist())) + 4, "rows are used again"


def test_who_holds_the_same_shares_a_row():
    link = Downlink(Codec.parse("int8-delta"), np.arange(1000))
    for round_ in range(1, 20):
        (tasks,) = [Tasks(link.clients, {"model": torch.randn(50)}, round=round_)]
        link.post([tasks], link.clients)
        (held,) = link.held([tasks])
        assert held.shared["model"].shape == (50,)
        link.answered(link.clients)
    assert len(link.replicas[0, "model", (50,)].rows) <= 4


def test_repeating_a_message_sends_what_was_lost():
    codec, who = Codec.parse("int4-delta"), np.arange(1)
    replicas, value = Replicas.none(1, 100), torch.randn(1, 100).numpy()
    errors = []
    replicas.send(who, 0 * value, who, codec)
    for _ in range(6):
        replicas.answered(who)
        replicas.send(who, value, who, codec)
        errors.append(np.abs(replicas.rows[replicas.sent[0]] - value).max())
    assert errors[-1] <= 1e-4 * errors[0]


def test_a_model_that_is_not_finite_travels_as_it_is_and_spoils_nothing():
    codec, who = Codec.parse("int8-delta"), np.arange(2)
    replicas, good, bad = Replicas.none(2, 50), np.ones((1, 50), np.float32), np.full((1, 50), np.nan, np.float32)
    for values in (good, bad, 2 * good):
        sizes = replicas.send(who, values, 0 * who, codec)
        assert sizes.tolist() == [200, 200]
        assert np.array_equal(replicas.rows[replicas.sent], np.repeat(values, 2, axis=0), equal_nan=True)
        replicas.answered(who)
    assert replicas.send(who, 3 * good, 0 * who, codec).max() < 200


def test_replies_are_moved_by_what_their_clients_were_short_of():
    """Lane by lane; a choice among several models by the one that was chosen; differences not at all."""
    link = Downlink(Codec.parse("int4-delta"), np.arange(3))
    first = [Tasks(np.arange(3), {"models": torch.randn(2, 30)}, lane=lane, round=1) for lane in (0, 1)]
    link.post(first, np.arange(3))
    link.answered(np.arange(2))
    tasks = [Tasks(np.arange(3), {"models": torch.randn(2, 30)}, lane=lane, round=2) for lane in (0, 1)]
    link.post(tasks, np.arange(3))
    held = link.held(tasks)
    clients, lanes, choice = np.array([0, 2, 1]), np.array([0, 0, 1]), torch.tensor([1.0, 0.0, 1.0])
    trained, updates = torch.randn(3, 30), torch.randn(3, 30)
    tensors = {"model": trained, "choice": choice, "updates": updates}
    told = link.as_meant(tasks, held, Replies(clients, tensors, lanes=lanes))
    for row, (client, lane) in enumerate(zip(clients.tolist(), lanes.tolist(), strict=True)):
        meant, theirs = (some[lane][client]["models"][int(choice[row])] for some in (tasks, held))
        assert torch.equal(told["model"][row], trained[row] + (meant - theirs))
        assert torch.equal(meant, theirs) == (client == 2), "who did not answer gets all of it"
    assert torch.equal(told["updates"], updates)


def test_a_tensor_of_another_shape_travels_as_it_is():
    link = Downlink(Codec.parse("float32-delta"), np.arange(2))
    for shape, size in (((40,), 160), ((40,), None), ((2, 40), 320), ((40,), None)):
        tasks = [Tasks(np.arange(2), {"model": torch.ones(shape), "few": torch.ones(3)})]
        sizes = link.post(tasks, np.arange(2))
        assert (sizes == size + 12).all() if size else (sizes < 160).all()
        link.answered(np.arange(2))


# -- runs ------------------------------------------------------------------------------------------------------------


def test_a_seed_does_not_feel_the_others():
    given = {"policy": BUFFERED, "devices": "lognormal", "server_codec": "int8-delta"}
    together, alone = start(spec_of(seeds=[3, 5], **given)), start(spec_of(seeds=[5], **given))
    assert torch.equal(models(together, 1), models(alone))
    assert column(together, "bytes_down", 5) == column(alone, "bytes_down", 5)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedpref", "fedcmoo"])
def test_a_stopped_run_goes_on_bit_for_bit(algorithm, tmp_path):
    spec = spec_of(algorithm, server_codec="int4-delta", participation=0.6, seeds=2, faults={"dropout": 0.2})
    start(spec, tmp_path / "undisturbed")
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec, tmp_path / "stopped", stop=lambda: next(stops))
    resume(tmp_path / "stopped")
    assert_same_results(tmp_path / "undisturbed", tmp_path / "stopped")


def test_a_defence_measures_updates_from_where_clients_really_began():
    """Clipping at what an honest update has at most leaves everybody as they are."""
    given = {"server_codec": "int4-delta", "defence": {"rule": "clip", "norm": 1e3}}
    assert torch.equal(models(start(spec_of(**given))), models(start(spec_of(server_codec="int4-delta"))))
    median = start(spec_of(server_codec="int8-delta", defence="median"))
    assert float((models(median) - models(start(spec_of(defence="median")))).abs().max()) < 0.01


REFUSED = {
    "with the engine ray what the server sends travels as it is": {"engine": "ray"},
    "with the engine flower-local what the server sends": {"engine": "flower-local"},
    "there is no server that sends": {
        "algorithm": "dsfl",
        "engine": {"name": "mission", "route": "swarm"},
        "clients": 40,
    },
    "engine.precision is float64": {"engine": {"precision": "float64"}},
    "float32-delta loses nothing": {"privacy": "central"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused_in_a_line(message):
    with pytest.raises(UserError) as refused:
        Draft({"algorithm": "fedavg", **SMALL, "server_codec": "int8-delta", **REFUSED[message]}).finish()
    assert message in str(refused.value)
    assert "server_codec" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_a_session_has_its_own_way():
    with pytest.raises(UserError, match="server_codec is int8-delta, but in a session"):
        ServerHalf(spec_of(server_codec="int8-delta"))
