"""A secure sum around any algorithm whose server needs no more than the sum of its clients' replies.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", 2017; with neighbours after
Bell et al., 2020. A round has four exchanges: clients advertise keys, deal shares of their secrets to their neighbours,
train and send what they trained under masks, and help to remove the masks that did not cancel. Keys and masks are the
machine's own randomness; the sum is the same whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.wrappers.fine_tuning import FineTuned
from fedpareto.algorithms.wrappers.safe import Safe
from fedpareto.algorithms.wrappers.wrapper import Outer, Stateful, inner
from fedpareto.config.errors import QuorumLost, UserError
from fedpareto.contract.algorithm import (
    Algorithm,
    Needs,
    S,
    Setting,
    participant_count,
    small_setting,
)
from fedpareto.contract.averaged import Averaged, apart
from fedpareto.contract.channel import Channel
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Replies, Shapes, Tasks, only_of, origins, places
from fedpareto.contract.secure_sum import FEWEST, STEPS, SecureSum, neighbourhood
from fedpareto.trust import secure_client as client_side
from fedpareto.trust.secure_client import OWN_SECRETS
from fedpareto.trust.secure_server import Unmasking, movement

PEERS, KEYS, TOLD, SHARES, COUNT, SURVIVED = (
    f"secure.{name}" for name in ("peers", "keys", "told", "shares", "count", "survived")
)
"""The names of what clients are sent."""
OWN = "secure.kept."
OWN_ROUND, OWN_PEERS, OWN_KEYS, OWN_SHARES, OWN_SHARE = (
    f"{OWN}{name}" for name in ("round", "peers", "keys", "shares", "share")
)
"""The names of what a client keeps during a round."""
LEAST = "secure.least"
"""The name of how many neighbours it has in a round that was agreed on, at the least."""
SIZE = "size"
"""The name of a client's number of rows, its weight where it sends it."""
RESUMED = "the run can be resumed when more are there"
EMPTY = torch.empty(0, dtype=torch.uint8)


@dataclass(frozen=True)
class SecuredState(Outer[S]):
    """The algorithm's own state, and within a round what clients have sent of the protocol so far."""

    step: str = STEPS[0]
    """The next one."""
    members: Tensor = torch.empty(0, dtype=torch.int64)
    """The ids of those who advertised keys, `[m]` …"""
    keys: Tensor = EMPTY
    """… what they advertised, `[m, 96]` …"""
    letters: Tensor = EMPTY
    """… the sealed shares that each dealt to its neighbours, `[m, k, bytes]`; 0 from those who did not …"""
    dealt: Tensor = torch.empty(0, dtype=torch.bool)
    """… who did, `[m]` …"""
    survived: Tensor = torch.empty(0, dtype=torch.bool)
    """… and whose masked reply is in the `total`, `[m]`."""
    total: Tensor = torch.empty(0, dtype=torch.int64)
    """The sum of the masked replies, `[D]`."""
    moved: float = 0.0
    """Distance of the last round's mean from where clients began."""


@dataclass(frozen=True)
class Secured(Stateful[SecuredState[S]], Generic[S]):
    """Any algorithm whose server needs only a sum, which is all that it learns."""

    algorithm: Algorithm[S]
    secure_sum: SecureSum

    needs: ClassVar[Needs] = "all rows"
    """Each is masked."""
    exchanges: ClassVar[int] = len(STEPS)
    waits: ClassVar[str] = "masks cancel among the clients of one round, so all of them are of the same one"

    def __post_init__(self) -> None:
        why = refusal(self.algorithm)
        if why:
            raise UserError(f"secure_sum.kind={self.secure_sum.kind} does not fit {self.algorithm.name}: {why}")

    @property
    def channel(self) -> Channel:
        return replace(self.algorithm.channel, secure_sum=self.secure_sum)

    # -- the client half ------------------------------------------------------------------------------------------

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        """A step of the protocol; the algorithm's own is part of `train`."""
        steps = {"advertise": self.advertise, "share": self.share, "train": self.train, "unmask": self.unmask}
        return steps[step](clients, message)

    def advertise(self, clients: Clients, message: Message) -> Message:
        """New secrets for this round, and what others need to know of them."""
        dealt = [client_side.advertised() for _ in range(len(clients))]
        secrets_, keys = (_bytes(part, clients) for part in zip(*dealt, strict=True))
        clients.state = {
            **_blank(clients.state),
            OWN_ROUND: clients.addresses.round.to(clients.preferences.device),
            OWN_SECRETS: secrets_,
        }
        return {"keys": keys}

    def share(self, clients: Clients, message: Message) -> Message:
        """Shares of the client's secrets, sealed for each of its neighbours."""
        self._must_be_in_order(clients, message[TOLD])
        clients.state = {**clients.state, OWN_PEERS: message[PEERS], OWN_KEYS: message[KEYS]}
        ids = clients.addresses.client.tolist()
        needed, least = self.secure_sum.needed, clients.state[LEAST].tolist()
        dealt = [self._party(clients, row, own).dealt(needed, least[row]) for row, own in enumerate(ids)]
        letters, shares = zip(*dealt, strict=True)
        clients.state = {**clients.state, OWN_SHARE: _bytes(shares, clients)}
        return {"shares": _tensor(np.stack(letters), clients)}

    def train(self, clients: Clients, message: Message) -> Message:
        """The algorithm's own step, its reply as whole numbers under the masks."""
        self._must_be_in_order(clients, message[TOLD])
        parties = [self._party(clients, row, client) for row, client in enumerate(clients.addresses.client.tolist())]
        letters = [_array(row) for row in message[SHARES]]
        needed = self.secure_sum.needed
        shares = [party.opened(received, needed) for party, received in zip(parties, letters, strict=True)]
        own = {name: tensor for name, tensor in message.items() if not name.startswith("secure.")}
        secrets_ = {name: tensor for name, tensor in clients.state.items() if name.startswith("secure.")}
        trained = self.algorithm.client_step("train", clients, own)
        # An algorithm may have replaced the whole state.
        clients.state, clients.trained = {**clients.state, **secrets_}, trained
        # A client's share of the noise is by those of whom it knows itself, not by what it is told.
        counts = torch.tensor([1 + int(some.any(axis=1).sum()) for some in shares])
        whole = self._whole(clients, self.algorithm.summand(own, trained), counts, int(message[COUNT].max()))
        words = self.secure_sum.ring.words
        sent = [client_side.digest_of({name: one[row] for name, one in own.items()}) for row in range(len(clients))]
        masked = [
            party.masked(row.cpu().numpy(), received, words, here)
            for party, row, received, here in zip(parties, whole, letters, sent, strict=True)
        ]
        clients.state = {**clients.state, OWN_SHARES: _tensor(np.stack(shares), clients)}
        return {"masked": _tensor(np.stack(masked), clients)}

    def _whole(self, clients: Clients, reply: Message, counts: Tensor, told: int) -> Tensor:
        """A reply as whole numbers, times its weight, and the weight itself. `counts` `[n]` add theirs up at the least,
        and as many as is `told`.
        """
        values = _flat({name: reply[name] for name in sorted(reply) if name != SIZE})
        if SIZE in reply:
            weight = reply[SIZE].double()[:, None]
            values = torch.cat([values * weight, weight], dim=1)
        ring = self.secure_sum.ring
        whole = ring.encoded(values, max(told, int(counts.max())))
        noise = self.algorithm.ring_noise(clients, whole, ring.unit, counts)
        return whole if noise is None else whole + noise.to(whole)

    def unmask(self, clients: Clients, message: Message) -> Message:
        """Give for each neighbour the share of its own mask or, if it dropped out, of the key of those with others; and
        the client's own share of its own mask. Then the round's secrets are forgotten.
        """
        self._must_be_in_order(clients)
        revealed = [
            self._party(clients, row, client).revealed(
                _array(message[SURVIVED][row]),
                _array(clients.state[OWN_SHARES][row]),
                _row(clients.state[OWN_SHARE], row),
                self.secure_sum.needed,
            )
            for row, client in enumerate(clients.addresses.client.tolist())
        ]
        clients.state = _blank(clients.state)
        return {"revealed": _tensor(np.stack(revealed), clients)}

    def _party(self, clients: Clients, row: int, client: int) -> client_side.Party:
        state = clients.state
        return client_side.Party(
            client,
            _row(state[OWN_SECRETS], row),
            _peers(state[OWN_PEERS][row]),
            _array(state[OWN_KEYS][row]),
            int(state[OWN_ROUND][row]),
        )

    def _must_be_in_order(self, clients: Clients, told: Tensor | None = None) -> None:
        """Raises UserError for a step of a round for which the client has no keys, or other ones than it has `told`:
        a client that was begun anew has made new ones, with which its masks would not cancel.
        """
        known = torch.equal(clients.state[OWN_ROUND].cpu(), clients.addresses.round.cpu())
        for row in range(len(clients) if known and told is not None else 0):
            secrets_ = _row(clients.state[OWN_SECRETS], row)
            known = known and told is not None and client_side.told_of(secrets_) == _row(told, row)
        if not known:
            raise UserError("secure_sum: this step belongs to keys that the client does not have")

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and the secrets of a round."""
        k, device = self.secure_sum.most_neighbours(len(setting.clients)), setting.initial.device
        own = {
            OWN_ROUND: torch.zeros((), dtype=torch.int64),
            OWN_SECRETS: torch.zeros(client_side.SECRETS, dtype=torch.uint8),
            OWN_PEERS: torch.zeros(k, dtype=torch.int64),
            OWN_KEYS: torch.zeros(k, client_side.ADVERTISED, dtype=torch.uint8),
            OWN_SHARES: torch.zeros(k, client_side.SHARES, dtype=torch.uint8),
            OWN_SHARE: torch.zeros(client_side.REVEALED, dtype=torch.uint8),
            LEAST: torch.tensor(self._least(setting)),
        }
        return {**self.algorithm.private_state(setting), **{name: one.to(device) for name, one in own.items()}}

    def personal_state(self, setting: Setting) -> Message:
        """The algorithm's own: secrets are no part of a model."""
        return self.algorithm.personal_state(setting)

    def _least(self, setting: Setting) -> int:
        """The fewest neighbours that a client shares its secrets with: there are more if nobody is lost."""
        asked = participant_count(setting.participation, len(setting.clients))
        return min(self.secure_sum.most_neighbours(len(setting.clients)), self.secure_sum.needed(asked) - 1)

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> SecuredState[S]:
        """The algorithm's own beginning."""
        return SecuredState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: SecuredState[S]) -> list[Tasks]:
        """The next step of the protocol; that of training has the algorithm's own tasks."""
        task = self._task(state)
        if state.step == "advertise":
            return [Tasks(task.clients, round=state.round + 1, step="advertise")]
        peers = self._peers(state)
        if state.step == "share":
            own = {PEERS: torch.as_tensor(peers), KEYS: _of_peers(state, peers, state.keys), TOLD: state.keys}
            return [self._tasks(state, np.ones(len(peers), dtype=bool), own)]
        if state.step == "unmask":
            flags = _of_peers(state, peers, (1 + state.survived.to(torch.uint8)) * state.dealt.to(torch.uint8))
            return [self._tasks(state, state.survived.cpu().numpy(), {SURVIVED: flags})]
        letters, members = _exchanged(state, peers), state.members.cpu().numpy()
        shared = {**task.shared, COUNT: torch.tensor(int(state.dealt.sum()))}
        (some,) = only_of([task], members[state.dealt.cpu().numpy()])
        rows = torch.as_tensor(places(members, some.clients))
        return [replace(some, shared=shared, own={SHARES: letters[rows], TOLD: state.keys[rows]})]

    def _tasks(self, state: SecuredState[S], who: np.ndarray, own: Message) -> Tasks:
        """A step for some of the members; `own` has a row for each member."""
        rows = np.flatnonzero(who)
        there = {name: tensor[torch.as_tensor(rows)] for name, tensor in own.items()}
        return Tasks(state.members.cpu().numpy()[rows], own=there, round=state.round + 1, step=state.step)

    def _task(self, state: SecuredState[S]) -> Tasks:
        """The algorithm's own, the same for all: masks cancel among clients that were sent the same."""
        tasks, *more = self.algorithm.ask(inner(state))
        if more or tasks.own:
            raise UserError(f"{self.algorithm.name} sends clients different models, so their masks would not cancel")
        return tasks

    def _peers(self, state: SecuredState[S]) -> np.ndarray:
        """The neighbours of each member, `[m, k]`."""
        most = self.secure_sum.most_neighbours(len(state.setting.clients))
        return neighbourhood(state.members.cpu().numpy(), state.keys.cpu().numpy().tobytes(), most)

    def tell(self, state: SecuredState[S], replies: Replies) -> SecuredState[S]:
        """Take what came of a step; after the last one, the algorithm's own aggregation of the mean."""
        if state.step == "advertise":
            heard = replies.only(np.flatnonzero(client_side.sound([_array(row) for row in replies["keys"]])))
            if len(heard) < (needed := max(FEWEST, 1 + self._least(state.setting))):
                raise _lost(state, f"only {len(heard)} clients advertised keys", str(needed))
            return replace(state, members=torch.as_tensor(heard.clients), keys=heard["keys"].cpu(), step="share")
        rows = torch.as_tensor(places(state.members.cpu().numpy(), replies.clients))
        there = torch.zeros(len(state.members), dtype=torch.bool)
        there[rows] = True
        if state.step == "share":
            self._must_be_enough(state, len(replies), "dealt shares of their secrets")
            letters = replies["shares"].new_zeros(len(there), *replies["shares"].shape[1:])
            letters[rows] = replies["shares"]
            return replace(state, letters=letters.cpu(), dealt=there, step="train")
        if state.step == "train":
            self._must_be_enough(state, len(replies), "sent what they trained")
            ring = self.secure_sum.ring
            return replace(state, total=replies["masked"].sum(0, dtype=ring.dtype), survived=there, step="unmask")
        return self._unmasked(state, replies)

    def _unmasked(self, state: SecuredState[S], replies: Replies) -> SecuredState[S]:
        """Remove the masks that are left, and tell the algorithm."""
        dealt, survived = state.dealt.cpu().numpy(), state.survived.cpu().numpy()
        members = state.members.cpu().numpy()
        told_keys, round_ = _array(state.keys), state.round + 1
        sent = client_side.digest_of(self._task(state).shared)
        unmasking = Unmasking(members, told_keys, self._peers(state), dealt, survived, round_, sent, self.secure_sum)
        try:
            masks = unmasking.left(replies.clients, _array(replies["revealed"]), len(state.total))
        except UserError as problem:
            raise QuorumLost(f"round {round_}: {problem}; {RESUMED}", []) from None
        ring = self.secure_sum.ring
        left = torch.as_tensor(masks.view(f"<i{ring.words.itemsize}").copy()).to(state.total.device)
        values = ring.decoded(state.total - left)
        averaged = self._averaged(state, members[survived], values)
        moved = self._moved(state, averaged)
        told = self.algorithm.tell(inner(state), averaged)
        return SecuredState(state.setting, told.round, inner=told, moved=moved)

    def _moved(self, state: SecuredState[S], averaged: Averaged) -> float:
        """Distance of the mean from where clients began; QuorumLost if that is further than they can be."""
        tasks = self._task(state)
        begun = origins(tasks.only(np.arange(1)).stacked(), {name: one[None] for name, one in averaged.means.items()})
        numbers = sum(map(torch.numel, begun.values()))
        most = self.channel.privacy.longest_mean(len(averaged), numbers, len(begun))
        most += self.secure_sum.ring.unit * math.sqrt(numbers)
        try:
            return movement(averaged.means, {name: one[0] for name, one in begun.items()}, state.moved, most)
        except UserError as problem:
            who = f"round {state.round + 1}: of {len(averaged)} clients together {problem}"
            raise QuorumLost(f"{who}; the round is not taken; the run can be resumed without the client", []) from None

    def _averaged(self, state: SecuredState[S], clients: np.ndarray, values: Tensor) -> Averaged:
        """Replies that the algorithm is told: the mean of all, and their mean weight."""
        shapes = dict(self.algorithm.reply_shapes(state.setting)["train"])
        has_size = shapes.pop(SIZE, None) is not None
        weight = values[-1] if has_size else values.new_tensor(float(len(clients)))
        flat = (values[:-1] if has_size else values) / weight
        like = state.setting.initial
        means = {name: part.to(like) for name, part in apart(flat, dict(sorted(shapes.items()))).items()}
        if has_size:
            means[SIZE] = (weight / len(clients)).to(like)
        return Averaged.over(clients, means, state.round + 1)

    def _must_be_enough(self, state: SecuredState[S], there: int, what: str) -> None:
        """Raises QuorumLost if too few of those who began the round are left for a sum that hides them."""
        begun = len(state.members)
        needed = max(self.secure_sum.needed(begun), FEWEST)
        if there < needed:
            because = f"{needed} (secure_sum.threshold={self.secure_sum.threshold:g})"
            raise _lost(state, f"only {there} of {begun} clients {what}", because)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """Shapes of what the protocol sends, by step."""
        k = self.secure_sum.most_neighbours(len(setting.clients))
        numbers = sum(int(np.prod(shape)) for shape in self.algorithm.reply_shapes(setting)["train"].values())
        return {
            "advertise": {"keys": (client_side.ADVERTISED,)},
            "share": {"shares": (k, client_side.LETTER)},
            "train": {"masked": (numbers,)},
            "unmask": {"revealed": (k + 1, client_side.REVEALED)},
        }

    @property
    def reply_types(self) -> Mapping[str, torch.dtype]:
        """Bytes, and whole numbers of the ring."""
        return dict.fromkeys(("keys", "shares", "revealed"), torch.uint8) | {"masked": self.secure_sum.ring.dtype}


def secured(algorithm: Algorithm[Any], secure_sum: SecureSum) -> Algorithm[Any]:
    """The algorithm with this secure sum; unchanged if it has it already."""
    present = algorithm.channel.secure_sum
    if present == secure_sum:
        return algorithm
    if present.kind != "none":
        raise UserError(f"{algorithm.name} has a secure sum already, with other parameters; give it without them")
    if isinstance(algorithm, Safe):  # The model that a client keeps and chooses is never sent.
        return Safe(secured(algorithm.algorithm, secure_sum))
    return Secured(algorithm, secure_sum) if secure_sum.kind != "none" else algorithm


def refusal(algorithm: Algorithm[Any]) -> str:
    """Why a sum is not all that this algorithm's server needs; empty if it is."""
    steps = algorithm.reply_shapes(small_setting())
    if isinstance(algorithm, FineTuned):
        return "in its last round every client sends a model of its own; take the algorithm without +ft"
    if not any(steps.values()):
        return "its clients send nothing, so there is nothing to add up"
    if algorithm.sums and set(steps) <= {"train", "fine_tune"}:
        return ""
    reasons: dict[Needs, str] = {
        "Gram matrix": "its server compares the clients' updates with each other, and a sum hides them",
        "norms": "its server measures each client's update, and a sum hides them",
        "all rows": "its server works with each client's own reply, and a sum hides it",
        "weighted sum": "its server weighs each client by what only that client sent, and a sum hides it",
    }
    return reasons[algorithm.needs]


# -- tensors and bytes ---------------------------------------------------------------------------------------------


def _blank(state: Message) -> Message:
    """Set the secrets in what a client keeps, and what belongs to them, to 0."""
    return {name: torch.zeros_like(one) if name.startswith(OWN) else one for name, one in state.items()}


def _lost(state: SecuredState[Any], what: str, needed: str) -> QuorumLost:
    return QuorumLost(f"round {state.round + 1}: {what}; a secure sum needs {needed}; {RESUMED}", [])


def _flat(reply: Message) -> Tensor:
    """All numbers of each reply, `[n, D]`, in double precision."""
    return torch.cat([tensor.double().flatten(1) for tensor in reply.values()], dim=1)


def _of_peers(state: SecuredState[Any], peers: np.ndarray, values: Tensor) -> Tensor:
    """Values `[m, ...]` of the neighbours of each member, `[m, k, ...]`; 0 where it has none."""
    rows = torch.as_tensor(np.searchsorted(state.members.cpu().numpy(), np.maximum(peers, 0)).clip(max=len(peers) - 1))
    found = values.cpu()[rows]
    found[torch.as_tensor(peers < 0)] = 0
    return found


def _exchanged(state: SecuredState[Any], peers: np.ndarray) -> Tensor:
    """Bytes that each member's neighbours sealed for it, `[m, k, bytes]`; 0 from those who dealt nothing."""
    members, letters = state.members.cpu().numpy(), state.letters.cpu().numpy()
    found = np.zeros_like(letters)
    for row, own in enumerate(members.tolist()):
        there = np.flatnonzero(peers[row] >= 0)
        others = np.searchsorted(members, peers[row, there])
        # A neighbour has this client in its own list, which is ascending up to where nobody is.
        place = (peers[others] == own).argmax(axis=1)
        found[row, there] = letters[others, place]
    return torch.as_tensor(found)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.cpu().numpy()


def _row(tensor: Tensor, row: int) -> bytes:
    return tensor[row].cpu().numpy().tobytes()


def _peers(row: Tensor) -> list[int]:
    return [one for one in row.tolist() if one >= 0]


def _bytes(rows: tuple[bytes, ...], clients: Clients) -> Tensor:
    return _tensor(np.stack([np.frombuffer(row, dtype=np.uint8) for row in rows]), clients)


def _tensor(array: np.ndarray, clients: Clients) -> Tensor:
    """Put an array on the clients' device; unsigned words as the signed ones that tensors have."""
    signed = array.view(f"<i{array.itemsize}") if array.dtype.kind == "u" and array.itemsize > 1 else array
    return torch.as_tensor(np.ascontiguousarray(signed)).to(clients.preferences.device)
