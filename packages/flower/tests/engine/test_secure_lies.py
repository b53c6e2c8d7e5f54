"""A server that lies under a secure sum: real nodes, real messages, and what it has in the end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace

import pytest
import torch
from memory_federation import node_of, small

from fedpareto.algorithms.wrappers.secured import COUNT, KEYS, PEERS, SHARES, SURVIVED
from fedpareto.config.errors import UserError
from fedpareto.contract.secure_sum import STEPS
from fedpareto.engines.single import Reply, Task, stacked
from fedpareto.trust import secure_keys as keys
from fedpareto.trust.secure_client import DROPPED
from fedpareto.trust.secure_client import SURVIVED as THERE
from fedpareto.trust.secure_server import Unmasking
from fedpareto_flower.engine import wire

CLIENTS, VICTIM = 6, 2
FEDAVG = {"name": "fedavg", "weighting": "equal"}


@dataclass
class Server:
    """Asks nodes whatever it likes."""

    spec: object
    folder: object
    budget: float = float("inf")
    nodes: dict = field(default_factory=dict)
    asked: int = 0

    def node(self, client):
        if client not in self.nodes:
            self.nodes[client] = node_of(self.spec, client, self.folder, budget=self.budget)
        return self.nodes[client]

    def ask(self, task, exchange):
        """The reply to a task, or why there is none."""
        self.asked += 1
        job = wire.Job(0, task.round, exchange, (task,))
        envelope = wire.Envelope("test", task.client, str(self.asked), (job,))
        answer = wire.decode_answer(self.node(task.client).answer(wire.encode_envelope(envelope)))
        (result,) = answer.results
        return result.replies[0].message if result.replies else result.failures[0].reason

    def kill(self):
        """All nodes: nothing is left of them but their files."""
        self.nodes = {}

    def begin(self):
        return self.spec.algorithm.begin(self.node(0).engine.settings[0])

    def tasks(self, state):
        """By client."""
        return {client: Task.of(some, client) for some in self.spec.algorithm.ask(state) for client in some}

    def step(self, state, exchange):
        """The state after an honest step."""
        tasks = self.tasks(state)
        said = [Reply(client, task.round, self.ask(task, exchange), task.step) for client, task in tasks.items()]
        return self.spec.algorithm.tell(state, stacked(said))

    def honest(self, until):
        """The state before a step of the first round, after honest ones."""
        state = self.begin()
        for exchange in range(STEPS.index(until)):
            state = self.step(state, exchange)
        return state


def server_of(tmp_path, clients=CLIENTS, budget=float("inf"), **values):
    return Server(small(FEDAVG, secure_sum={"kind": "masked"}, clients=clients, rounds=2, **values), tmp_path, budget)


def but(task, **changes):
    """The same task with other tensors."""
    return replace(task, message={**task.message, **changes})


def other_neighbours(message):
    return {name: message[name].flip(0) for name in (PEERS, KEYS)}


def other_model(message):
    """One that training cannot move."""
    return {"model": torch.full_like(message["model"], 1e8)}


def other_flags(message):
    return {SURVIVED: torch.cat([torch.tensor([DROPPED], dtype=torch.uint8), message[SURVIVED][1:]])}


@pytest.mark.parametrize(
    ("step", "changed"), [("share", other_neighbours), ("train", other_model), ("unmask", other_flags)]
)
def test_each_protected_question_has_one_answer_whatever_was_killed_in_between(step, changed, tmp_path):
    """Two models under the same masks differ by what was trained; two flags give both shares of one neighbour; two
    lists of neighbours are sealed with one nonce.
    """
    server = server_of(tmp_path, 4)
    task = server.tasks(server.honest(step))[VICTIM]
    first = server.ask(task, STEPS.index(step))
    for _ in range(2):
        with pytest.raises(UserError, match="answered before, to another task"):
            server.ask(but(task, **changed(task.message)), STEPS.index(step))
        again = server.ask(task, STEPS.index(step))
        assert all(torch.equal(tensor, again[name]) for name, tensor in first.items())
        server.kill()


@pytest.mark.takes_long
def test_nodes_that_are_killed_after_each_step_end_a_round_with_the_sum(tmp_path):
    server, plain = server_of(tmp_path, 4), Server(small(FEDAVG, clients=4, rounds=2), tmp_path / "plain")
    state = server.begin()
    for exchange in range(len(STEPS)):
        state = server.step(state, exchange)
        server.kill()
    wanted = plain.step(plain.begin(), 0)
    torch.testing.assert_close(state.inner.model, wanted.model, atol=1e-6, rtol=0)


def test_a_client_masks_only_with_enough_neighbours_whose_letters_open(tmp_path):
    server = server_of(tmp_path)
    task = server.tasks(server.honest("train"))[VICTIM]
    letters = task.message[SHARES]
    some = letters.clone()
    some[3:] = 0
    for false in (torch.zeros_like(letters), torch.ones_like(letters), letters.flip(0), some):
        assert server.ask(but(task, **{SHARES: false}), 2) == "raised UserError"
    assert "masked" in server.ask(task, 2)


def test_a_client_helps_to_unmask_only_a_sum_of_enough_neighbours(tmp_path):
    server = server_of(tmp_path)
    task = server.tasks(server.honest("unmask"))[VICTIM]
    for gone in (2, 5):
        flags = task.message[SURVIVED].clone()
        flags[:gone] = DROPPED
        assert server.ask(but(task, **{SURVIVED: flags}), 3) == "raised UserError"
    assert "revealed" in server.ask(task, 3)


@pytest.mark.parametrize("spelling", [0, 128])
def test_a_client_deals_shares_to_enough_different_neighbours(spelling, tmp_path):
    """With one key for two neighbours on either side of its number their masks cancel; a key has two spellings."""
    server = server_of(tmp_path)
    task = server.tasks(server.honest("share"))[VICTIM]
    keys, peers = task.message[KEYS], task.message[PEERS]
    for part in (31, 63):
        twice, own = keys.clone(), keys.clone()
        twice[0, part - 31 : part + 1] = twice[-1, part - 31 : part + 1]
        twice[0, part] ^= spelling
        own[1, part - 31 : part + 1] = task.message["secure.told"][part - 31 : part + 1]
        own[1, part] ^= spelling
        for false in (twice, own):
            assert server.ask(but(task, **{KEYS: false}), 1) == "raised UserError"
    few, again, itself = peers.clone(), peers.clone(), peers.clone()
    few[2:], again[1], itself[1] = -1, again[0], VICTIM
    for false in (few, again, itself):
        assert server.ask(but(task, **{PEERS: false}), 1) == "raised UserError"
    assert "shares" in server.ask(task, 1)


def test_one_lie_does_not_give_both_secrets_of_a_client(tmp_path):
    """The victim hears that all are in the sum, all others that it is not: they say what its key is, and it says no
    more of its own mask than a share.
    """
    server = server_of(tmp_path)
    state = server.honest("train")
    state = server.step(state, 2)
    answers = {}
    for client, task in server.tasks(state).items():
        flags = task.message[SURVIVED].clone()
        peers = [peer for peer in range(CLIENTS) if peer != client]
        if client != VICTIM:
            flags[peers.index(VICTIM)] = DROPPED
        assert (flags == THERE).sum() >= CLIENTS - 2
        answers[client] = server.ask(but(task, **{SURVIVED: flags}), 3)["revealed"].numpy()
    algorithm = server.spec.algorithm
    unmasking = Unmasking(
        state.members.numpy(),
        state.keys.numpy(),
        algorithm._peers(state),
        state.dealt.numpy(),
        state.survived.numpy(),
        1,
        b"",
        algorithm.secure_sum,
    )
    assert unmasking._secret(VICTIM, answers, 0), "its key"
    with pytest.raises(UserError, match="the mask of client 2 cannot be removed"):
        unmasking._secret(VICTIM, answers, 1)
    told = state.keys[VICTIM][2 * keys.KEY :].numpy().tobytes()
    assert told not in {keys.commitment(one[: keys.SECRET].tobytes()) for one in answers[VICTIM]}, "nor does it say it"


def test_a_sum_of_clients_that_were_sent_different_models_says_nothing(tmp_path):
    """If all others got a model that training cannot move, their sum would be one client's update."""
    server, plain = server_of(tmp_path, 4), Server(small(FEDAVG, clients=4, rounds=2), tmp_path / "plain")
    state, said = server.honest("train"), {}
    begun = plain.tasks(plain.begin())
    replies = []
    for client, task in server.tasks(state).items():
        own = {} if client == VICTIM else {"model": begun[client].message["model"] + 1.0}
        said[client] = plain.ask(but(begun[client], **own), 0)["model"]
        replies.append(Reply(client, 1, server.ask(but(task, **own), 2)))
    state = server.step(server.spec.algorithm.tell(state, stacked(replies)), 3)
    told = sum(said.values()) / len(said)
    assert ((state.inner.model - told).abs() > 1.0).all()


# -- noise behind masks --------------------------------------------------------------------------------------------

NOISE = {"kind": "distributed", "clip": 0.5, "noise": 4.0, "objectives": "withheld", "randomness": "system"}


def test_noise_behind_masks_is_neither_averaged_away_nor_uncounted(tmp_path):
    spec = server_of(tmp_path, 3, privacy=NOISE).spec
    once = spec.privacy.reply_cost
    server = Server(spec, tmp_path, spec.privacy.epsilon_of(100 * once))
    for attempt in range(1, 5):
        task = server.tasks(server.honest("train"))[VICTIM]
        first = server.ask(task, 2)
        assert torch.equal(server.ask(task, 2)["masked"], first["masked"]), "no fresh noise"
        assert server.node(VICTIM).account.spent == pytest.approx(spec.privacy.epsilon_of(attempt * once))
    task = server.tasks(server.honest("train"))[VICTIM]
    assert server.ask(task, 2) == "'train' was answered as often as was agreed on, 4 times"


@pytest.mark.parametrize("kind", ["distributed", "local"])
def test_the_server_does_not_say_how_much_noise_a_client_adds(kind, tmp_path):
    server = server_of(tmp_path, 3, privacy=NOISE | {"kind": kind, "randomness": "seed"})
    state = server.honest("train")
    task, found = server.tasks(state)[VICTIM], []
    for count in (3, 10**6, 0):
        other = Server(server.spec, tmp_path / str(count))
        shutil.copytree(tmp_path / f"node{VICTIM}", other.folder / f"node{VICTIM}")
        found.append(other.ask(but(task, **{COUNT: torch.tensor(count)}), 2)["masked"])
    assert all(torch.equal(one, found[0]) for one in found)
