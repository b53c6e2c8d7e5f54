"""Client-led MOFL/D: MOFL/D (thesis, chapter 3) turned around. Section 2.2.3.2 calls fronts that clients lead
unexplored, and names what is open about them: how local fronts come together. This one is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import front_search, personal_models
from fedpareto.algorithms._shared.front_search import CHOSEN_ON, COMPARED_BY, front_of
from fedpareto.algorithms._shared.local_loss import senses
from fedpareto.algorithms.fronts.mofld import MOFLD
from fedpareto.config.bounds import Count, NotNegative, Share, Whole
from fedpareto.contract.algorithm import Algorithm, Found, Setting, State, Taxonomy, participants, to_everyone
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks, take_rows
from fedpareto.contract.privacy import Part
from fedpareto.contract.solutions import roles
from fedpareto.moo.preferences import equidistant
from fedpareto.moo.search.annealing import Annealing
from fedpareto.moo.search.history import History, Search
from fedpareto.moo.search.sampling import Lattice, RandomWeights
from fedpareto.moo.updates import ENTRIES
from fedpareto.tensors import rng


@dataclass(frozen=True)
class ClientMOFLDState(State):
    """The lanes of every client in this iteration, and what clients have posted of earlier ones."""

    weights: Tensor = torch.empty(0)
    """Weights for which each client trains in each of its lanes, as it said, `[n, s, m]`."""
    models: Tensor = torch.empty(0)
    """θ of each lane, `[n, s, d]`."""
    trained: Tensor = torch.empty(0)
    """True for each client that has trained in this iteration, `[n]`."""
    posted: Tensor = torch.empty(0)
    """The values that each client has posted of its t earlier lanes, on the three parts of its rows, `[n, t, 3, m]` in
    double precision; NaN where it has not trained.
    """
    posted_weights: Tensor = torch.empty(0)
    """`[n, t, m]`."""
    posted_models: Tensor = torch.empty(0)
    """The posted models on the joint front, `[k, d]` …"""
    front: Tensor = torch.empty(0, dtype=torch.int64)
    """… and which they are, as places in the n·t that are posted, `[k]`."""
    due: str = "search"
    """The next step: a search before the first training, `solve`, or `measure`, a search with results."""


@dataclass(frozen=True)
class ClientMOFLD(Algorithm[ClientMOFLDState]):
    """Every client runs its own search for weights, in lanes; the server only averages lanes whose weights are near.

    In each iteration a client says for which weights it will train. The server averages each lane with the nearest lane
    of every other client, if that is near enough. In the end the client measures its lanes on its own rows, posts the
    objective vectors, and goes on from those of its own. The posted vectors make the joint front.
    """

    name: ClassVar[str] = "client-mofld"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "client-led", "linearised objectives, a metaheuristic of each client", "arbitrary"
    )
    exchanges: ClassVar[int] = 3
    waits: ClassVar[str] = "lanes are averaged that were trained in the same round"
    personalised: ClassVar[bool] = True
    ends_as_planned: ClassVar[bool] = True

    generator: Literal["random", "lattice", "annealing", "gaussian-annealing"] = "random"
    """Search by which a client finds weights: at random, on an even lattice, the same for all clients, or by Pareto
    simulated annealing of importances or by Gaussian steps.
    """
    samples: Count = 5
    """n_s, lanes of a client in an iteration."""
    training_rounds: Whole = 0
    """Rounds of one training; a run has rounds / training_rounds iterations. 0: up to 5, as that allows."""
    radius: Share = 0.1
    """Largest distance between the weights of lanes that are averaged: half the sum of their differences. 0: only equal
    ones; 1: any.
    """
    noise: NotNegative = 0.0
    """Standard deviation of Gaussian noise on every value that a client posts."""

    @property
    def lanes(self) -> int:
        """Every client trains all its weights at a time."""
        return self.samples

    # -- the server: a notice board, and means of what is near -------------------------------------------------------

    def begin(self, setting: Setting) -> ClientMOFLDState:
        """Begin with nothing posted; until a client has said for what it trains, that is a lattice."""
        n, m, like = len(setting.clients), len(setting.objectives), setting.initial
        front_search.must_be_a_multiple(self, setting)
        lattice = torch.as_tensor(equidistant(self.samples, m)).to(like)
        return ClientMOFLDState(
            setting,
            weights=lattice.expand(n, -1, -1).clone(),
            models=like.expand(n, self.samples, -1).clone(),
            trained=like.new_zeros(n),
            posted=like.new_empty(n, 0, 3, m, dtype=torch.float64),
            posted_weights=like.new_empty(n, 0, m),
            posted_models=like.new_empty(0, len(like)),
        )

    def ask(self, state: ClientMOFLDState) -> list[Tasks]:
        """The next round in all lanes; or, before and after a training, a search."""
        present = participants(state)
        rows, iteration = state.setting.rows(present), state.round // self._rounds(state.setting)
        weights, models = take_rows(state.weights, rows), take_rows(state.models, rows)
        if state.due == "solve":
            return [
                Tasks(
                    present,
                    own={"model": models[:, lane], "weights": weights[:, lane]},
                    round=state.round + 1,
                    step="solve",
                    lane=iteration * self.samples + lane,
                )
                for lane in range(self.samples)
            ]
        if state.due == "search":
            return [Tasks(present, {"iterations": self._iterations(state)}, round=state.round + 1, step="search")]
        own = {
            "models": models,
            "weights": weights,
            "trained": take_rows(state.trained, rows),
            "earlier_weights": take_rows(state.posted_weights, rows),
            "earlier_values": take_rows(state.posted, rows)[:, :, CHOSEN_ON].to(models.dtype),
        }
        shared = {"iterations": self._iterations(state)}
        return [Tasks(present, shared, own, round=state.round + 1, step="search")]

    def _iterations(self, state: ClientMOFLDState) -> Tensor:
        return state.models.new_tensor(float(state.setting.rounds // self._rounds(state.setting)))

    def _rounds(self, setting: Setting) -> int:
        return front_search.training_rounds(self, setting)

    def tell(self, state: ClientMOFLDState, replies: Replies) -> ClientMOFLDState:
        """Lanes that are near come together; or clients have measured and searched."""
        if replies.step == "search":
            return self._searched(state, replies)
        rows, lanes = state.setting.rows(replies.clients), replies.lanes % self.samples
        mixed = self._averaged(state.weights[rows, lanes], rows, replies["size"], replies["model"])
        models, trained = state.models.clone(), state.trained.clone()
        models[rows, lanes], trained[rows] = mixed, 1.0
        state = replace(state, models=models, trained=trained)
        if (state.round + 1) % self._rounds(state.setting):
            return replace(state, round=state.round + 1)
        return replace(state, due="measure")

    def _averaged(self, weights: Tensor, clients: np.ndarray, sizes: Tensor, models: Tensor) -> Tensor:
        """Each of k lanes averaged with the nearest lane of every client, if that is within the radius, by the client's
        rows, `[k, d]`. `weights` `[k, m]` and `clients` `[k]` are those of the lanes; a block of lanes at a time.
        """
        own = torch.as_tensor(_lanes_of(clients), device=weights.device)
        weights, block, means = weights.double(), max(ENTRIES // len(weights), 1), []
        for start in range(0, len(weights), block):
            apart = torch.cdist(weights[start : start + block], weights, p=1) / 2
            nearest = own[torch.arange(len(own), device=own.device), apart[:, own].argmin(dim=2)]
            near = (apart.gather(1, nearest) <= self.radius + EQUAL).double()
            share = torch.zeros_like(apart).scatter_(1, nearest, near) * sizes.double()
            means.append((share / share.sum(dim=1, keepdim=True)).to(sizes.dtype) @ models)
        return torch.cat(means)

    def _searched(self, state: ClientMOFLDState, replies: Replies) -> ClientMOFLDState:
        """New weights of those who replied, and new models for all lanes; what was measured is posted."""
        rows = state.setting.rows(replies.clients)
        weights = personal_models.with_rows(state.weights, rows, replies["weights"])
        if state.due == "search":
            return replace(state, weights=weights, due="solve")
        values = state.posted.new_full((len(weights), *replies["values"].shape[1:]), torch.nan)
        known = torch.as_tensor(rows, device=values.device)
        values[known] = torch.where(
            state.trained[known].bool().view(-1, 1, 1, 1), replies["values"].double(), torch.nan
        )
        return replace(
            self._with_front(state, values),
            weights=weights,
            models=state.setting.initial.expand_as(state.models).clone(),
            trained=torch.zeros_like(state.trained),
            due="solve",
            round=state.round + 1,
        )

    def _with_front(self, state: ClientMOFLDState, values: Tensor) -> ClientMOFLDState:
        """The joint front of all that is posted, `values` `[n, s, 3, m]` being the last of it; of others no model is
        kept.
        """
        n, s = values.shape[:2]
        t = state.posted.shape[1]
        posted = torch.cat([state.posted, values], dim=1)
        before = state.front // t * (t + s) + state.front % t if t else state.front
        new = (torch.arange(n)[:, None] * (t + s) + t + torch.arange(s)).reshape(-1).to(before.device)
        places, models = torch.cat([before, new]), torch.cat([state.posted_models, state.models.flatten(0, 1)])
        kept = front_of(posted.flatten(0, 1)[places][:, CHOSEN_ON], state.setting)
        return replace(
            state,
            posted=posted,
            posted_weights=torch.cat([state.posted_weights, state.weights], dim=1),
            posted_models=models[kept],
            front=places[kept],
        )

    # -- the client half ---------------------------------------------------------------------------------------------

    def search(self, clients: Clients, message: Message) -> Message:
        """Value of the client's lanes on its own rows, and the weights for which it trains next."""
        n, m, iterations = len(clients), clients.preferences.shape[1], int(message["iterations"][0])
        worth = clients.preferences.new_zeros(n, self.samples, 3, m)
        history, past = clients.preferences.new_empty(n, 0, m), clients.preferences.new_empty(n, 0, m)
        if "models" in message:
            parts = roles(clients.problem.parts(clients.splits))
            worth = torch.stack([clients.evaluate(one)[:, parts] for one in message["models"].unbind(1)], dim=1)
            worth = worth.nan_to_num(nan=0.0) + self.noise * self._noise(clients, worth)
            known = torch.where(message["trained"].bool().view(-1, 1, 1), worth[:, :, CHOSEN_ON], torch.nan)
            history = torch.cat([message["earlier_weights"], message["weights"]], dim=1)
            past = torch.cat([message["earlier_values"], known], dim=1)
        chosen = self._proposed(clients, history, past * senses(clients), iterations)
        return {"weights": chosen.to(worth), "values": worth}

    def _noise(self, clients: Clients, like: Tensor) -> Tensor:
        return clients.addresses.normal("posted", like[0].numel()).view_as(like).to(like)

    def _proposed(self, clients: Clients, weights: Tensor, values: Tensor, iterations: int) -> Tensor:
        """The next weights of each client, by its own history and with its own random numbers, `[n, s, m]`."""
        search, seeds = self._search(iterations), clients.addresses.seed.tolist()
        iteration = min(weights.shape[1] // self.samples, iterations - 1)  # After the last one nobody trains.
        found = []
        for row, client in enumerate(clients.addresses.client.tolist()):
            history = History(*(one[row].double().cpu().numpy() for one in (weights, values)))
            found.append(search.propose(history, iteration, partial(_stream, seeds[row], client)))
        return torch.as_tensor(np.stack(found))

    def _search(self, iterations: int) -> Search:
        if self.generator == "lattice":
            return Lattice(self.samples, iterations)
        if self.generator == "random":
            return RandomWeights(self.samples)
        return Annealing(self.samples, step=MOFLD.step if self.generator == "gaussian-annealing" else None)

    def solve(self, clients: Clients, message: Message) -> Message:
        """Local training in one lane, under its weights."""
        return {"model": clients.learn(message["model"], weights=message["weights"]), "size": clients.sizes}

    def train(self, clients: Clients, message: Message) -> Message:
        """Train the client's chosen solution further under the client's own preference, for fine-tuning."""
        return {"model": clients.learn(self.personal(clients, message))}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The solution of the joint front with the largest weighted sum under the client's own preference."""
        return front_search.favourite(clients, message)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """Models; or new weights, and objective vectors of the old ones."""
        m, model = len(setting.objectives), {"model": (setting.layout.size,)}
        search = {"weights": (self.samples, m), "values": (self.samples, 3, m)}
        return {"solve": {**model, "size": ()}, "search": search, "train": model}

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Models in training, then what they are worth."""
        return {**super().reply_parts, "values": "objectives"}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """Weights are on the simplex."""
        return {**super().reply_limits, "weights": (-EQUAL, 1.0 + EQUAL)}

    # -- results -----------------------------------------------------------------------------------------------------

    def found(self, state: ClientMOFLDState) -> Found:
        """The joint front, by the vectors that clients posted."""
        weights, values = state.posted_weights.flatten(0, 1), state.posted.flatten(0, 1)
        return Found(weights[state.front].double(), values[state.front], state.posted_models)

    def solutions(self, state: ClientMOFLDState) -> Parcels:
        """The joint front, with its objective values, for every client to choose from."""
        found = self.found(state)
        if not len(found.models):
            return to_everyone(state, model=state.setting.initial)
        return to_everyone(state, model=found.models, values=found.values[:, CHOSEN_ON].to(found.models.dtype))

    def describe(self, state: ClientMOFLDState) -> dict[str, Any]:
        """The joint front, who posted it, and the weights behind it."""
        found, t = self.found(state), max(state.posted.shape[1], 1)
        return {
            "trainings": int(torch.isfinite(state.posted[..., 0, 0]).sum()),
            "front": found.values[:, COMPARED_BY].tolist(),
            "front_weights": found.weights.tolist(),
            "front_of": state.setting.clients[(state.front // t).cpu().numpy()].tolist(),
        }


EQUAL = 1e-6
"""Difference of weights in single precision that still counts as none."""


def _lanes_of(clients: np.ndarray) -> np.ndarray:
    """The lanes of each of c clients, from the client of each lane, `[c, s]`: who has fewer than others has its first
    one again.
    """
    order = np.argsort(clients, kind="stable")
    _, first, counts = np.unique(clients[order], return_index=True, return_counts=True)
    number = np.arange(counts.max())
    return np.asarray(order[first[:, None] + np.where(number < counts[:, None], number, 0)])


def _stream(seed: int, client: int, iteration: int) -> np.random.Generator:
    """A client's random numbers for its search in an iteration."""
    return rng.generator(rng.Address(seed, client=client, round=iteration), "weights")
