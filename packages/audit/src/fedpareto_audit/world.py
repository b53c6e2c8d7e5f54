"""The two sides of an audit: a federation as it is set up, and a curious server with rows and clients of its own.

The server follows the protocol. It knows the spec, what it sends and what it receives, and holds a table of the same
kind: half of the rows that no client trains on. On those it trains shadow clients from the very messages that its real
clients get, and whole reference federations. The other half are strangers, only to measure by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from fedpareto.config.bounds import AtLeast, Bounded, Count
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.algorithm import Setting, State
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Message, Outcome, Parcels, Replies, Tasks, beginnings_of, places, taken
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.contract.solutions import held_out
from fedpareto.engines.local import LocalEngine
from fedpareto.moo.preferences import equidistant
from fedpareto.spec.settings import settings_of
from fedpareto.spec.spec import Spec
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Rows

Table = dict[str, Tensor]
"""Rows by column, `[rows, ...]`."""

SHARES = {"shadow": 0.45, "population": 0.15, "strangers": 0.4}
"""Shares of the rows that no client trains on: the attacker's to train shadows on, its own to measure them on, and
those by which the audit measures the attacker.
"""
FEWEST_ROWS = 40
"""Held-out rows below which nothing can be said."""
MOST_OF_A_TABLE = 2 / 3
"""Share of its rows that the attacker trains one shadow on at most: with all of them, shadows would be alike."""
APART = 1_000_003
"""Distance between the seeds of a federation and those of the attacker's own."""


Found = dict[str, tuple[float, float]]
"""Value of each measure of an attack, and that of guessing."""


@dataclass(frozen=True)
class Effort(Bounded):
    """The effort of an attacker."""

    shadows: Annotated[int, AtLeast(2)] = 32
    """Shadow clients for each message that differs."""
    references: Annotated[int, AtLeast(2)] = 4
    """Whole federations on the attacker's own rows."""
    rows: Annotated[int, AtLeast(2)] = 100
    """Rows of each client, and as many strangers, of which membership is guessed."""
    victims: Count = 10
    """Clients that are attacked."""
    batches: tuple[Count, ...] = (1, 8)
    """Rows in the gradient from which rows are reconstructed."""
    steps: Count = 200
    """Steps of an optimisation for rows."""


@dataclass(frozen=True)
class Own:
    """The attacker's rows, and the strangers."""

    shadow: Table
    population: Table
    strangers: Table

    @classmethod
    def of(cls, federation: Federation) -> Own:
        """Split the rows that a federation's clients hold out."""
        table = _held_out_rows(federation)
        count = len(next(iter(table.values()))) if table else 0
        if count < FEWEST_ROWS:
            raise UserError(
                f"an audit needs at least {FEWEST_ROWS} rows that no client trains on, half of them for the attacker; "
                f"this federation holds {count} out"
            )
        order = rng.generator(rng.Address(federation.seed), "audit").permutation(count)
        cuts = np.round(np.cumsum(list(SHARES.values()))[:-1] * count).astype(int)
        return cls(*(_rows(table, part) for part in np.split(order, cuts)))


def _held_out_rows(federation: Federation) -> Table:
    parts = []
    for name in ("validation", "test"):
        if name in federation.splits:
            rows = federation.splits[name]
            spans = [np.arange(a, a + k) for a, k in zip(rows.starts, rows.counts, strict=True)]
            parts.append(_rows(rows.columns, np.unique(np.concatenate(spans))))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}


def _rows(table: Any, index: np.ndarray) -> Table:
    return {name: column[torch.as_tensor(index)] for name, column in table.items()}


@dataclass(frozen=True)
class Answers:
    """Tasks, replies and reports of the shadows in the last training."""

    tasks: Tasks
    replies: Replies
    reported: Tensor
    """`[s, parts, m]`."""


@dataclass
class World:
    """One protection and one seed: the real federation with the references beside it, and the shadows."""

    spec: Spec
    seed: int
    effort: Effort
    own: Own = field(init=False)
    real: Federation = field(init=False)
    engine: LocalEngine = field(init=False)
    """Engine of the real federation, which is the first, and of the references."""
    shadow_engine: LocalEngine | None = None
    states: list[State] = field(default_factory=list)
    keeps: bool = False
    """True if clients keep something from round to round."""
    is_same: bool = True
    """True if all clients get the same message, so that all have the same shadows."""
    twins: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The clients that have shadows of their own, or one who stands for all."""
    tasks: list[Tasks] = field(default_factory=list)
    """Tasks of the last training of the real federation."""
    _answers: Answers | None = None
    replies: list[Replies] = field(default_factory=list)
    """Replies to them, of the real federation and of each reference."""
    reported: Tensor = field(default_factory=lambda: torch.empty(0))
    """Objectives that the real clients report of the models that they trained then, `[n, parts, m]`."""
    inside: list[np.ndarray] = field(default_factory=list)
    """The attacker's own rows that each reference was trained on, as booleans."""
    shadow_inside: np.ndarray = field(default_factory=lambda: np.empty((0, 0), dtype=bool))
    """Rows that each different shadow was trained on, `[s, rows]`, as booleans."""

    def __post_init__(self) -> None:
        self.real = self.spec.federation(self.seed)
        self.own = Own.of(self.real)
        setting = settings_of(self.spec)[self.spec.seeds.index(self.seed)]
        self.keeps = bool(self.spec.algorithm.private_state(setting))
        if self.keeps:  # Shadows have to follow their twins from the beginning.
            setting = replace(setting, participation=1.0)
        references = [self._reference(number) for number in range(self.effort.references)]
        seeds = [self.seed, *(self._other_seed(number) for number in range(len(references)))]
        settings = [replace(setting, seed=seed) for seed in seeds]
        self.engine = self._engine([self.real, *references], settings)
        self.states = [self.spec.algorithm.begin(one) for one in self.engine.settings]

    def _engine(self, federations: Sequence[Federation], settings: Sequence[Setting]) -> LocalEngine:
        spec = self.spec
        return LocalEngine(spec.algorithm, spec.problem, spec.learner, federations, settings, options=spec.engine)

    def _other_seed(self, number: int) -> int:
        return self.seed + APART * (number + 1)

    # -- the attacker's own clients --------------------------------------------------------------------------------

    def _reference(self, number: int) -> Federation:
        """As many clients as there really are, on half of the attacker's rows."""
        own, seed = self.own.shadow, self._other_seed(number)
        stream = rng.generator(rng.Address(seed), "audit reference")
        total, clients = len(next(iter(own.values()))), self.spec.clients
        chosen = stream.permutation(total)[: max(total // 2, clients)]
        pieces = np.array_split(chosen, clients)
        self.inside.append(np.isin(np.arange(total), chosen))
        m = len(self.spec.problem.objectives)
        preferences = equidistant(clients, m)[stream.permutation(clients)]
        common = self.real.common_preference
        if common is not None:
            preferences = self.real.preferences
        return self._federation(seed, pieces, preferences, common)

    def _federation(
        self, seed: int, pieces: Sequence[np.ndarray], preferences: np.ndarray, common: tuple[float, ...] | None = None
    ) -> Federation:
        """Clients with these of the attacker's rows; what it measures them on is the same for all."""
        train = Rows.of([_rows(self.own.shadow, piece) for piece in pieces])
        whole = len(next(iter(self.own.population.values())))
        n = len(pieces)
        apart = Rows(self.own.population, np.zeros(n, dtype=int), np.full(n, whole))
        splits = {name: train if name == "train" else apart for name in self.real.splits}
        return Federation(seed, tuple(range(n)), splits, preferences, common)

    def _begin_shadows(self, tasks: Sequence[Tasks]) -> None:
        """Shadows of everybody at once where all got the same, else of each client."""
        self.is_same = len(tasks) == 1 and not tasks[0].own and not tasks[0].begun
        asked = np.concatenate([some.clients for some in tasks])
        self.twins = asked[:1] if self.is_same else np.sort(asked)[: self.effort.victims]
        count, seed = self.effort.shadows, self._other_seed(self.effort.references)
        stream = rng.generator(rng.Address(seed), "audit shadows")
        total = len(next(iter(self.own.shadow.values())))
        usual = int(np.median(self.real.splits["train"].counts))
        size = max(1, min(usual, int(MOST_OF_A_TABLE * total)))
        pieces = [stream.permutation(total)[:size] for _ in range(count)]
        self.shadow_inside = np.stack([np.isin(np.arange(total), piece) for piece in pieces])
        m = len(self.spec.problem.objectives)
        preferences = equidistant(count, m)[stream.permutation(count)]
        one = self._federation(seed, pieces, preferences)
        n = count * len(self.twins)
        # The shadows of each twin are the same clients with the same rows, in other places.
        places = np.tile(np.arange(count), len(self.twins))
        splits = {
            name: Rows(rows.columns, rows.starts[places], rows.counts[places]) for name, rows in one.splits.items()
        }
        shadows = Federation(seed, tuple(range(n)), splits, preferences[places])
        setting = replace(self.engine.settings[0], seed=seed, clients=np.arange(n))
        self.shadow_engine = self._engine([shadows], [setting])

    def _for_shadows(self, tasks: Sequence[Tasks]) -> Tasks:
        n, count = self.effort.shadows * len(self.twins), self.effort.shadows
        first = tasks[0]
        if self.is_same:
            return _alike(first, np.arange(n), first.shared, {}, {})
        messages: dict[str, list[Tensor]] = {}
        begun: dict[str, list[Tensor]] = {}
        for twin in self.twins.tolist():
            some = next(some for some in tasks if twin in some.clients)
            row = int(np.searchsorted(some.clients, twin))
            for name, tensor in some[twin].items():
                messages.setdefault(name, []).append(tensor)
            for name, tensor in some.begun.items():
                begun.setdefault(name, []).append(tensor[row])
        own, starts = (
            {name: torch.stack(rows).repeat_interleave(count, dim=0) for name, rows in found.items()}
            for found in (messages, begun)
        )
        return _alike(first, np.arange(n), {}, own, starts)

    # -- the rounds ------------------------------------------------------------------------------------------------

    def play(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Play all rounds of all federations, until `stop` says so; keep everything of the last training."""
        algorithm, nobody = self.spec.algorithm, Parcels(np.empty(0))
        with self.engine.threads():
            while (before := self.states[0].round) < self.spec.rounds:
                if stop():
                    raise Stopped(f"stopped after round {before} of {self.spec.rounds}")
                is_last = before == self.spec.rounds - 1
                while self.states[0].round == before:
                    tasks = [algorithm.ask(state) for state in self.states]
                    is_watched = is_last and tasks[0][0].step == "train"
                    measured = [nobody if is_watched else None, *[None] * (len(tasks) - 1)]
                    outcomes = self.engine.run_all(tasks, measured)
                    if self.keeps or is_watched:
                        self._shadow(tasks[0], is_watched)
                    if is_watched:
                        self.tasks, self.replies = tasks[0], [outcome.replies for outcome in outcomes]
                        self.reported = _reported(outcomes[0])
                    pairs = zip(self.states, outcomes, strict=True)
                    self.states = [algorithm.tell(state, outcome.replies) for state, outcome in pairs]
        self._must_have_answers()

    def _must_have_answers(self) -> None:
        algorithm = self.spec.algorithm
        if not self.tasks:
            raise UserError(f"{algorithm.name} has no step 'train' in its last round, which an audit looks at")
        fewest = min(len(self.shadows_of(victim)) for victim in self.victims) if len(self.victims) else 0
        if fewest < 2 or not all(len(replies) for replies in self.replies):
            raise UserError("training diverged: too few valid replies are left in the last round to attack")

    def _shadow(self, tasks: Sequence[Tasks], is_watched: bool) -> None:
        """Let the shadows do what their twins do."""
        if self.shadow_engine is None:
            self._begin_shadows(tasks)
        assert self.shadow_engine is not None, "made just now"
        work = self._for_shadows(tasks)
        outcome = self.shadow_engine.run([work], Parcels(np.empty(0)) if is_watched else None)
        if is_watched:
            self._answers = Answers(work, outcome.replies, _reported(outcome))

    # -- what came of it -------------------------------------------------------------------------------------------

    @property
    def shadow(self) -> Answers:
        assert self._answers is not None, "the rounds are over"
        return self._answers

    @property
    def victims(self) -> np.ndarray:
        """The clients that are attacked, as rows of the last replies."""
        replied = self.replies[0].clients
        known = np.ones(len(replied), dtype=bool) if self.is_same else np.isin(replied, self.twins)
        return np.flatnonzero(known)[: self.effort.victims]

    def shadows_of(self, victim: int) -> np.ndarray:
        """The rows, among the shadows' replies, of those that got what this victim, a row of the replies, got."""
        count, replied = self.effort.shadows, self.shadow.replies.clients
        twin = 0 if self.is_same else int(np.searchsorted(self.twins, self.replies[0].clients[victim]))
        return np.flatnonzero(replied // count == twin)

    def numbers(self, shadows: np.ndarray) -> np.ndarray:
        """Return which shadows of a twin these rows of replies are: their rows and preferences are alike for all."""
        return np.asarray(self.shadow.replies.clients[shadows] % self.effort.shadows)

    def shadow_preferences(self, shadows: np.ndarray) -> Tensor:
        """Preferences of these rows of the shadows' replies, `[s, m]`."""
        assert self.shadow_engine is not None, "the rounds are over"
        return torch.as_tensor(self.shadow_engine.federations[0].preferences[self.numbers(shadows)])

    def preferences(self) -> Tensor:
        """Preferences of the victims, `[v, m]`."""
        return torch.as_tensor(self.real.preferences[self.replies[0].clients[self.victims]])

    def rows_of(self, victim: int) -> Table:
        """A random choice of a victim's training rows."""
        client = int(self.replies[0].clients[victim])
        table = self.real.splits["train"].of_client(client)
        stream = rng.generator(rng.Address(self.seed, client), "audit members")
        count = len(next(iter(table.values())))
        return _rows(table, stream.permutation(count)[: self.effort.rows])

    def strangers_for(self, victim: int) -> Table:
        """As many rows on which no client trained."""
        client = int(self.replies[0].clients[victim])
        stream = rng.generator(rng.Address(self.seed, client), "audit strangers")
        count = len(next(iter(self.own.strangers.values())))
        return _rows(self.own.strangers, stream.permutation(count)[: self.effort.rows])

    def final_models(self, run: int) -> Tensor:
        """Final models of the clients of a federation, `[n, d]`."""
        return self.engine.models(run, self.spec.algorithm.solutions(self.states[run])).rows

    def shadow_models(self) -> Tensor:
        """Models of the shadows after the last training, `[s, d]`, with what they keep for themselves."""
        assert self.shadow_engine is not None, "the rounds are over"
        asked = self.shadow.tasks.only(self.shadow.replies.clients)
        message = {**asked.stacked(), **self.shadow.replies.tensors}
        return self.shadow_engine.models(0, Parcels(self.shadow.replies.clients, own=message)).rows

    def usefulness(self) -> float:
        """The mean of the first objective over all clients, on held-out rows, at the end."""
        measured = self.engine.objectives(0, self.spec.algorithm.solutions(self.states[0]))
        place = self.engine.split_names.index(held_out(self.engine.split_names))
        return float(measured.rows[:, place, 0].mean())


def _alike(tasks: Tasks, clients: np.ndarray, shared: Message, own: Message, begun: Message) -> Tasks:
    return Tasks(clients, shared, own, round=tasks.round, step=tasks.step, lane=tasks.lane, begun=begun)


def _reported(outcome: Outcome) -> Tensor:
    """Objectives that clients report of the models that they trained, `[n, parts, m]`; 0 if they report none."""
    trained = outcome.evaluations.trained
    if not len(trained):
        return torch.zeros(len(outcome.replies), 1, 1)
    return taken({"all": trained.rows}, places(trained.clients, outcome.replies.clients))["all"].nan_to_num()


def updates_in(tasks: Sequence[Tasks], replies: Replies) -> Tensor:
    """Everything that replies say, `[n, f]`: models as differences to where they began, the rest as it is."""
    begun = beginnings_of(tasks, replies.clients, replies.tensors)
    parts = [
        (tensor - begun[name] if name in begun else tensor).reshape(len(replies), -1).float()
        for name, tensor in sorted(replies.tensors.items())
        if name != "size"
    ]
    return torch.cat(parts, dim=1)


def parts_in(replies: Replies, layout: Layout) -> list[slice]:
    """Places of a model's tensors, and of everything else, in `updates_in`."""
    found, start = [], 0
    for name, tensor in sorted(replies.tensors.items()):
        if name == "size":
            continue
        length = tensor[0].numel()
        inside = [place for place in layout.slices.values() if place.stop <= length and tensor.dim() == 2]
        found += [slice(start + place.start, start + place.stop) for place in inside] or [slice(start, start + length)]
        start += length
    return found


def model_in(tasks: Sequence[Tasks], replies: Replies) -> tuple[str, Message]:
    """The name of the model, or of its first layers, that clients reply with, and where it began; UserError if none."""
    begun = beginnings_of(tasks, replies.clients, replies.tensors)
    flat = [name for name, tensor in begun.items() if tensor.dim() == 2]
    if not flat:
        sent = ", ".join(sorted(replies.tensors)) or "nothing"
        raise UserError(f"clients send no model but {sent}")
    return max(flat, key=lambda name: begun[name].shape[1]), begun


def worn(first: Tensor, whole: Tensor) -> Tensor:
    """The first layers `[c]` with the others of a whole model `[d]`: what a server can do that sees only a body."""
    return torch.cat([first, whole[len(first) :]])


# -- what attacks share -----------------------------------------------------------------------------------------------


def supervised(world: World) -> SupervisedProblem:
    assert isinstance(world.spec.problem, SupervisedProblem), "checked before anything is trained"
    return world.spec.problem


def mean_of(world: World, run: int, rows: Tensor) -> Tensor:
    """Mean of what all clients of a federation sent, as the server weights them."""
    replies = world.replies[run]
    return mean_of_rows(rows, replies.tensors.get("size"))


def mean_of_rows(rows: Tensor, sizes: Tensor | None = None) -> Tensor:
    """Mean of rows weighted by sizes `[n]`, or all alike."""
    weights = rows.new_ones(len(rows)) if sizes is None else sizes.to(rows)
    return weights / weights.sum() @ rows
