"""Algorithms beside plain loops over clients, written from their papers in NumPy, under everything at once.

A loop is a generator that gets a `Plain` federation and yields each round's models: `[d]`, or `[n, d]` for clients with
their own. It may yield a pair instead, the second of which holds further arrays by name: fields of the server's state,
or private tensors of clients `[n, ...]`. `agrees` runs the library beside it and compares all of it in every round.

    def fedavg(plain):
        model = plain.initial
        for t in plain.rounds:
            models = [plain.descend(i, model, t) for i in plain.heard(t)]
            model = plain.shares(plain.heard(t)) @ models
            yield model

    agrees(FedAvg(), fedavg)

Of the library a loop has what is drawn at random and nothing else: who is asked, whose replies are lost, the order of
rows, preferences, and the initial model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from plain_problem import Answers, Table

from fedpareto.clock.policy import Policy
from fedpareto.clock.staleness import refreshed
from fedpareto.contract.algorithm import Algorithm, Setting, State, participants
from fedpareto.contract.federation import Federation
from fedpareto.contract.learner import Learner
from fedpareto.contract.messages import Replies, Tasks, only_of
from fedpareto.engines.faults import Fates, Faults, fates
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.tensors import rng

CLIENTS, ROUNDS, SEED = 6, 4, 48
PARTICIPATION = 0.7
"""5 of the 6 clients are asked in a round …"""
FAULTS = Faults(dropout=0.15, stragglers=0.25)
"""… of whom some do nothing, and others work and keep what they have learnt, but their replies are lost."""
LIMIT = 1e-9

Loop = Callable[["Plain"], Iterator[Any]]


@dataclass(frozen=True)
class Plain:
    """A federation as a plain loop sees it: arrays and what chance has decided; clients 0 … n − 1, rounds 1 … T."""

    problem: Any
    learner: Supervised
    federation: Federation
    setting: Setting
    faults: Faults
    begun: Any = None
    """The state before the first round, for models that are drawn at random."""
    late: Policy | None = None
    """Whether lost replies arrive a round late, and how much they count then."""
    _drawn: dict[tuple[int, int], Fates] = field(default_factory=dict)

    # -- what is known -----------------------------------------------------------------------------------------------

    @property
    def clients(self) -> range:
        """0 … n − 1."""
        return range(len(self.federation.ids))

    @property
    def rounds(self) -> range:
        """1 … T."""
        return range(1, self.setting.rounds + 1)

    @property
    def initial(self) -> np.ndarray:
        """θ⁰, `[d]`."""
        return self.setting.initial.double().numpy().copy()

    @property
    def preferences(self) -> np.ndarray:
        """w_i, `[n, m]`."""
        return self.federation.preferences.copy()

    @property
    def sizes(self) -> np.ndarray:
        """Training rows of each client, `[n]`."""
        return self.federation.splits["train"].counts.copy()

    def shares(self, clients: list[int], weighting: str = "size") -> np.ndarray:
        """What each of some clients counts in a mean: n_i / Σ n_k, or all alike."""
        counts = self.sizes[clients] if weighting == "size" else np.ones(len(clients))
        shares: np.ndarray = counts / counts.sum()
        return shares

    @property
    def layers(self) -> list[slice]:
        """Where each layer lies in θ."""
        return list(self.setting.layout.layers.values())

    @property
    def lr(self) -> float:
        """Step size of local training."""
        return self.learner.lr

    # -- what chance decided -----------------------------------------------------------------------------------------

    def asked(self, t: int) -> list[int]:
        """Who takes part in round t; nobody whose reply is still under way."""
        away = self._stragglers(t - 1) if self.late and t > 1 else []
        return [int(i) for i in participants(State(self.setting, round=t - 1)) if i not in away]

    def trained(self, t: int, lane: int = 0) -> list[int]:
        """Those of them who do the work, of this lane where there are several: the others have dropped out."""
        return [i for i in self.asked(t) if self.works(i, t, lane)]

    def heard(self, t: int, lane: int = 0) -> list[int]:
        """Whose replies arrive in round t: those of them who do not straggle, and perhaps stragglers of before."""
        before = self._stragglers(t - 1) if self.late and t > 1 else []
        return sorted([*(i for i in self.asked(t) if self.arrives(i, t, lane)), *before])

    def works(self, i: int, t: int, lane: int = 0) -> bool:
        """Whether a client does the work of round t if it is asked, as all are in a last round of some methods …"""
        return not self._fates(t, lane).drops_out[i]

    def arrives(self, i: int, t: int, lane: int = 0) -> bool:
        """… and whether its reply arrives."""
        return self.works(i, t, lane) and not self._fates(t, lane).straggles[i]

    def began(self, i: int, t: int) -> int:
        """The round in which a client began what arrives in round t."""
        return t if i in self.trained(t) else t - 1

    def fading(self, i: int, t: int) -> float:
        """s(τ) of what arrives in round t."""
        assert self.late is not None, "otherwise nothing is late"
        return float(self.late.weights(np.array([t - self.began(i, t)]))[0])

    def _stragglers(self, t: int) -> list[int]:
        return [i for i in self.trained(t) if self._fates(t).straggles[i]]

    def _fates(self, t: int, lane: int = 0) -> Fates:
        """Of all clients."""
        if (t, lane) not in self._drawn:
            addresses = rng.Addresses.at(self.setting.seed, np.arange(len(self.clients)), t, lane)
            self._drawn[t, lane] = fates(self.faults, addresses)
        return self._drawn[t, lane]

    def minibatches(
        self, i: int, t: int, purpose: str = "batches", epochs: int | None = None, steps: int = 0, lane: int = 0
    ) -> list[Table]:
        """The rows of each step of a client's training in a round; whole passes, or a number of steps."""
        steps = steps if steps or epochs else self.learner.steps
        count, size = int(self.sizes[i]), self.learner.batch_size
        per_epoch = -(-count // size)
        passes = -(-steps // per_epoch) if steps else epochs or self.learner.epochs
        address = rng.Addresses.at(self.setting.seed, np.array([i]), t, lane)
        orders = address.orders(purpose, torch.tensor([count]), passes, count)[0].numpy()
        found = [self._some(i, order[first : first + size]) for order in orders for first in range(0, count, size)]
        return found[:steps] if steps else found

    # -- losses ------------------------------------------------------------------------------------------------------

    def rows(self, i: int, split: str = "train") -> Table:
        """All rows of a client."""
        return self._tables[split][i]

    @cached_property
    def server_rows(self) -> Table:
        """Those that the server holds."""
        rows = self.problem.held_by_server(len(self.clients), self.setting.seed)
        return {name: column.double().numpy() for name, column in rows.of_client(0).items()}

    def _some(self, i: int, places: np.ndarray) -> Table:
        return {name: column[places] for name, column in self.rows(i).items()}

    @cached_property
    def _tables(self) -> dict[str, list[Table]]:
        return {
            name: [{key: column.double().numpy() for key, column in rows.of_client(i).items()} for i in self.clients]
            for name, rows in self.federation.splits.items()
        }

    def losses(self, i: int, theta: np.ndarray, rows: Table | None = None) -> np.ndarray:
        """f_j(θ) of a client's rows, `[m]`; of all its training rows, or of some."""
        return self.problem.plain_losses(theta, self.rows(i) if rows is None else rows)

    def gradients(self, i: int, theta: np.ndarray, rows: Table | None = None) -> np.ndarray:
        """∇f_j(θ) likewise, `[m, d]`."""
        return self.problem.plain_gradients(theta, self.rows(i) if rows is None else rows)

    def loss(self, i: int, theta: np.ndarray, rows: Table | None = None) -> float:
        """F_i(θ) = Σ_j w_ij f_j(θ)."""
        return float(self.preferences[i] @ self.losses(i, theta, rows))

    def gradient(self, i: int, theta: np.ndarray, rows: Table | None = None) -> np.ndarray:
        """∇F_i(θ), `[d]`."""
        return self.preferences[i] @ self.gradients(i, theta, rows)

    def descend(
        self,
        i: int,
        theta: np.ndarray,
        t: int,
        pull: Callable[[np.ndarray], np.ndarray] | None = None,
        *,
        weights: np.ndarray | None = None,
        moves: slice | np.ndarray | None = None,
        **batches: Any,
    ) -> np.ndarray:
        """Local training: θ ← θ − lr·(Σ_j w_j ∇f_j(θ) + pull(θ)) for every minibatch.

        w is the client's preference or other `weights`; `moves`: the entries of θ that are trained, all by default.
        """
        theta, weights = theta.copy(), self.preferences[i] if weights is None else weights
        moves = slice(None) if moves is None else moves
        for rows in self.minibatches(i, t, **batches):
            slope = weights @ self.gradients(i, theta, rows) + (0.0 if pull is None else pull(theta))
            theta[moves] -= self.lr * slope[moves]
        return theta


def agrees(
    algorithm: Algorithm[Any],
    loop: Loop,
    *,
    problem: Any = None,
    learner: Learner | None = None,
    clients: int = CLIENTS,
    rounds: int = ROUNDS,
    seed: int = SEED,
    participation: float = PARTICIPATION,
    preferences: Any = "dirichlet",
    faults: Faults = FAULTS,
    late: Policy | None = None,
    chunk: int = CLIENTS,
    limit: float = LIMIT,
) -> None:
    """The library's models, and what else the loop yields, differ by at most `limit` in every round.

    With `late` rounds do not wait: what the faults would lose by being late arrives a round later.
    """
    problem = problem or Answers()
    learner = learner or problem.learner()
    assert isinstance(learner, Supervised), "a plain loop has minibatches"
    federation = Federation.create(problem, clients, seed, preferences)
    setting = replace(federation.setting(problem, rounds, participation), waits=late is None)
    options, choices = LocalOptions(precision="float64"), Choices(threads=1, chunk=chunk)
    lost = faults if late is None else Faults(dropout=faults.dropout)
    engine = LocalEngine(algorithm, problem, learner, [federation], [setting], options, lost, choices=choices)
    state = algorithm.begin(engine.settings[0])
    plain = Plain(problem, learner, federation, engine.settings[0], faults, getattr(state, "inner", state), late)
    told, under_way = loop(plain), UnderWay(plain)
    for t in range(1, rounds + 1):
        while state.round < t:
            tasks = algorithm.ask(state)
            if late is None:
                replies = engine.run(tasks).replies
            else:
                replies = under_way.arrived(algorithm, tasks, engine.run(only_of(tasks, plain.asked(t))).replies)
            state = algorithm.tell(state, replies)
        models, named = _pair(next(told))
        ours = engine.models(0, algorithm.solutions(state))
        assert list(ours.clients) == list(range(clients))
        found = ours.rows.numpy()
        compare(f"models after round {t}", found, np.broadcast_to(models, found.shape), limit)
        for name, expected in named.items():
            compare(f"{name} after round {t}", _array(_of(engine, state, name)), _array(expected), limit)
    assert next(told, None) is None, "the loop has more rounds than the run"


@dataclass
class UnderWay:
    """Replies that arrive a round late, and what they answer."""

    plain: Plain
    tasks: list[Tasks] = field(default_factory=list)
    replies: Replies | None = None

    def arrived(self, algorithm: Algorithm[Any], tasks: list[Tasks], replies: Replies) -> Replies:
        """What arrives in the round of these tasks, of those who answered them and of the round before."""
        t = tasks[0].round
        in_time = np.isin(replies.clients, self.plain.heard(t))
        here = [replies.only(np.flatnonzero(in_time)), *([self.replies] if self.replies else [])]
        both = Replies.cat(here)
        both = both.only(np.argsort(both.clients))
        found = refreshed(algorithm, self.plain.late, self, tasks, both)  # type: ignore[arg-type]
        self.tasks, self.replies = tasks, replies.only(np.flatnonzero(~in_time))
        assert found.clients.tolist() == self.plain.heard(t), "replies are those that the loop hears"
        return found

    def tasks_of_replies(self, late: Replies) -> list[Tasks]:
        """What late replies answer."""
        return self.tasks


def compare(what: str, found: np.ndarray, expected: np.ndarray, limit: float = LIMIT) -> None:
    """Nowhere further apart; what is not known, NaN or infinite, is not known in both."""
    assert found.shape == expected.shape, f"{what}: {found.shape} instead of {expected.shape}"
    same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    gap = float(np.abs(found[~same] - expected[~same]).max(initial=0.0))
    assert gap <= limit, f"{what}: they differ by {gap:.2g}, limit {limit:g}"


def _pair(told: Any) -> tuple[np.ndarray, dict[str, Any]]:
    return told if isinstance(told, tuple) else (told, {})


def _of(engine: LocalEngine, state: Any, name: str) -> Any:
    """A field of the server's state, or else what every client keeps."""
    if hasattr(state, name):
        return getattr(state, name)
    fresh = engine.algorithm.private_state(engine.settings[0])
    assert name in fresh, f"neither the state nor clients have '{name}', but {sorted(vars(state))}, {sorted(fresh)}"
    return engine.private.shelf(0, 0).read(engine.settings[0].clients, fresh)[name]


def _array(values: Any) -> np.ndarray:
    if isinstance(values, list | tuple):
        return np.stack([_array(one) for one in values])
    return np.asarray(values, dtype=np.float64)
