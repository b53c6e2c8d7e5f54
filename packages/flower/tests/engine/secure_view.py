"""All that the server of a secure sum receives over the wire, all that it can compute from it, and whether any of it
differs from random numbers. Clients that make mistakes, to see that these are found.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from flwr.app import Message
from memory_federation import MemoryGrid, federation_of, node_of
from scipy.stats import chi2

from fedpareto.algorithms.wrappers.secured import OWN_SECRETS, Secured
from fedpareto.trust import secure_client, secure_keys
from fedpareto.trust.secure_client import Party, add, digest_of, own_mask
from fedpareto.trust.secure_server import Unmasking
from fedpareto_flower.engine import wire

LATE = 4
"""The client whose masked reply of the first round comes after the server has gone on without it."""
CARELESS = 2
"""The client that makes a mistake."""
SURELY_NOT_RANDOM = 1e-12
"""A probability that is not met by accident in all the tests of a year."""


# -- mistakes ------------------------------------------------------------------------------------------------------


class NoPairs(Party):
    """Leaves the masks out that it has in common with others; only its own remains, which the server removes."""

    def masked(self, whole, letters, words, sent):
        return super().masked(whole, np.zeros_like(letters), words, sent)


class NoOwnMask(Party):
    """Leaves its own mask out: its neighbours' help removes all others if it is thought to have dropped out."""

    def masked(self, whole, letters, words, sent):
        masked = super().masked(whole, letters, words, sent)
        return masked - own_mask(self.parts[2], self.about, len(masked), words)


class OneRoundForAll(Party):
    """Has the same masks in every round, if it has the same secrets."""

    @property
    def about(self):
        return (1).to_bytes(8, "little")

    def masked(self, whole, letters, words, sent):
        return super().masked(whole, letters, words, b"whatever it was sent")


@dataclass(frozen=True)
class Mistaken(Secured):
    """A client that masks as `party` does; with the same secrets in every round, if `forgetful`."""

    party: type = Party
    forgetful: bool = False

    def _party(self, clients, row, client):
        honest = super()._party(clients, row, client)
        return self.party(honest.client, honest.secrets, honest.peers, honest.told, honest.round)

    def advertise(self, clients, message):
        told = super().advertise(clients, message)
        if not self.forgetful:
            return told
        (own,) = clients.addresses.client.tolist()
        parts = [hashlib.sha256(bytes([own, part])).digest()[: secure_keys.SECRET] for part in range(3)]
        secrets_ = b"".join(parts)
        clients.state = {**clients.state, OWN_SECRETS: told["keys"].new_tensor(list(secrets_))[None]}
        return {"keys": told["keys"].new_tensor(list(secure_client.told_of(secrets_)))[None]}


MISTAKES = {
    "masks with others left out": ({"party": NoPairs}, [CARELESS]),
    "own mask left out": ({"party": NoOwnMask}, [LATE]),
    "masks of the last round again": ({"party": OneRoundForAll, "forgetful": True}, range(5)),
}


# -- what the server receives --------------------------------------------------------------------------------------


@dataclass
class Tapped:
    """What arrived, by step, round and client; and the states of the server on the way."""

    arrived: dict
    states: list

    def words(self, round_):
        return {client: one["masked"].view("<u8") for client, one in self.arrived["train", round_].items()}


def tapped(spec, folder, mistake=None):
    """A whole first round, in which one client is late, and the next one up to the masked replies."""
    arrived = {}

    def keep(node, message, reply):
        if reply is None or reply.has_error() or '"answer"' not in str(reply.content.config_records):
            return reply
        answer = wire.decode_answer(reply.content)
        for own in answer.results[0].replies:
            tensors = {name: tensor.numpy() for name, tensor in own.message.items()}
            arrived.setdefault((own.step, own.round), {})[answer.client] = tensors
            if own.step == "train" and own.round == 1 and answer.client == LATE:
                missing = replace(answer, results=(wire.Result(0),))
                return Message(wire.encode_answer(missing), reply_to=message)
        return reply

    engine, grid = federation_of(spec, folder)
    assert isinstance(grid, MemoryGrid)
    if mistake is not None:
        values, clients = MISTAKES[mistake]
        for client in clients:
            wrong = Mistaken(spec.algorithm.algorithm, spec.algorithm.secure_sum, **values)
            grid.nodes[900 - client] = node_of(spec, client, folder, algorithm=wrong)
    grid.tamper = keep
    algorithm = spec.algorithm
    states = [algorithm.begin(engine.settings[0])]
    while (states[-1].round, states[-1].step) != (1, "unmask"):
        replies = engine.run(algorithm.ask(states[-1])).replies
        states.append(algorithm.tell(states[-1], replies))
    return Tapped(arrived, states)


def computable(spec, seen):
    """Every vector of words that the server has or can make of what it was told: each of them hides a client."""
    found = {f"round {round_}, client {client}": one for round_ in (1, 2) for client, one in seen.words(round_).items()}
    state = next(one for one in seen.states if one.step == "unmask" and one.round == 0)
    told = seen.arrived["unmask", 1]
    helped = np.array(sorted(told))
    revealed = np.stack([told[client]["revealed"] for client in helped.tolist()])
    members, there, gone = (one.numpy() for one in (state.members, state.dealt, state.survived))
    peers, sent = spec.algorithm._peers(state), digest_of(spec.algorithm._task(state).shared)
    unmasking = Unmasking(members, state.keys.numpy(), peers, there, gone, 1, sent, spec.algorithm.secure_sum)
    answers, about = dict(zip(helped.tolist(), revealed, strict=True)), (1).to_bytes(8, "little")
    words = spec.algorithm.secure_sum.ring.words
    for client, masked in seen.words(1).items():
        row = int(np.searchsorted(members, client))
        if client != LATE:
            own = own_mask(unmasking._secret(row, answers, 1), about, len(masked), words)
            found[f"client {client} without its own mask"] = masked - own
            continue
        private, rest = secure_keys.private_key(unmasking._secret(row, answers, 0)), masked.copy()
        for other in unmasking._neighbours(row).tolist():
            key = secure_keys.agreed_key(private, unmasking._told(other, 1), secure_keys.MASKING, about + sent)
            add(rest, secure_keys.mask(key, len(rest), words), bool(members[other] < client))
        found[f"client {client}, late, without masks with others"] = rest
    return found


def leaks(vectors, secrets):
    """The names of vectors, and of differences between two, that are not like random words, or like a secret."""
    differences = {f"{one} less {other}": vectors[one] - vectors[other] for one, other in combinations(vectors, 2)}
    return [
        name
        for name, words in {**vectors, **differences}.items()
        if chance_of_bytes(words) < SURELY_NOT_RANDOM or any(is_like(words, secret) for secret in secrets)
    ]


def chance_of_bytes(words):
    """How probable it is that random bytes are at least as unequal in number (χ²)."""
    counts = np.bincount(np.frombuffer(np.ascontiguousarray(words).tobytes(), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), 255)


def is_like(words, secret):
    """Whether words, as numbers from −1 to 1, are correlated with a client's update."""
    numbers = np.ascontiguousarray(words).view("<i8")[: len(secret)].astype(float)
    return abs(np.corrcoef(numbers, secret)[0, 1]) > 7 / np.sqrt(len(secret))


def shares_and_seals(seen):
    """The bytes of all sealed shares, and of commitments: those of public keys are no random bytes."""
    for (step, _), of_clients in seen.arrived.items():
        for tensors in of_clients.values():
            if step == "share":
                yield tensors["shares"]
            elif step == "advertise":
                yield tensors["keys"][2 * secure_client.keys.KEY :]
