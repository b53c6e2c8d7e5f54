"""MOFL/D: Hartmann, Danoy, Alswaitti, Bouvry, 2023; thesis chapter 3 (algorithm 2).

The server searches for a front. In each iteration it proposes weights, has the federation train a model for each of
them, evaluates the models, and keeps the non-dominated ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared.front_search import (
    CHOSEN_ON,
    COMPARED_BY,
    TRAINED_FOR,
    favourite,
    front_of,
    must_be_a_multiple,
    training_rounds,
)
from fedpareto.algorithms._shared.inner_training import WEIGHTS, inner_algorithm, must_fit
from fedpareto.config.bounds import AtLeast, Count, NotNegative, Positive, PositiveShare, Whole
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Found, Needs, Setting, State, Taxonomy, participants, to_everyone
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Part
from fedpareto.contract.solutions import roles
from fedpareto.moo.search.annealing import Annealing
from fedpareto.moo.search.evolution import Evolution
from fedpareto.moo.search.history import History, Search
from fedpareto.moo.search.linear_support import LinearSupport
from fedpareto.moo.search.sampling import Lattice, RandomWeights
from fedpareto.tensors import rng


@dataclass(frozen=True)
class MOFLDState(State):
    """Every candidate by its number: those that are trained and measured, then those in training."""

    weights: Tensor = torch.empty(0)
    """𝒲, `[t + k, m]` in double precision, of t candidates that are done and k that are in training."""
    values: Tensor = torch.empty(0)
    """𝒱, `[t, 3, m]` in double precision, on the three parts of the data; NaN where no client measured."""
    models: Tensor = torch.empty(0)
    """ℳ, `[t, d]`."""
    inner: tuple[State, ...] = ()
    """States of the federations that train."""
    trained: bool = False
    """True once their last round is over, so that clients evaluate next."""

    @property
    def done(self) -> int:
        """Number t of trained candidates."""
        return len(self.values)

    @property
    def in_training(self) -> range:
        """Numbers of candidates, which are also the lanes in which they are trained."""
        return range(self.done, len(self.weights))


@dataclass(frozen=True)
class _Training:
    """A federation inside the federation, which trains one candidate, or several together.

    A client that trains k candidates counts as k members: those of a candidate follow one another.
    """

    algorithm: Algorithm[Any]
    state: Any
    lanes: Sequence[int]
    """Lanes of its candidates."""

    def ask(self, rows: np.ndarray) -> Iterator[tuple[int, Tasks]]:
        """Yield for each candidate its tasks, of the clients in these rows."""
        (tasks,) = self.algorithm.ask(self.state)
        clients = len(tasks) // len(self.lanes)
        for number, lane in enumerate(self.lanes):
            yield lane, tasks.only(number * clients + rows)

    def tell(self, replies: Replies, rows: np.ndarray) -> Any:
        """The state after the replies of its own members; unchanged if there are none. `rows` are the clients' rows."""
        clients = len(self.state.setting.clients) // len(self.lanes)
        here = np.flatnonzero(np.isin(replies.lanes, self.lanes))
        number = np.searchsorted(self.lanes, replies.lanes[here])
        own = replace(replies.only(here), clients=number * clients + rows[here], step="train")
        return self.algorithm.tell(self.state, own) if len(own) else self.state


@dataclass(frozen=True)
class MOFLD(Algorithm[MOFLDState]):
    """A front by decomposition: a search on the server proposes weights, the federation trains a model for each.

    Candidates of one iteration are trained side by side, each in its own lane: a client carries no state from one
    candidate to another. No preference is needed; at the end each client picks its preferred solution.
    """

    name: ClassVar[str] = "mofld"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "server-led", "linearised objectives, offline metaheuristic", "arbitrary"
    )
    exchanges: ClassVar[int] = 2
    waits: ClassVar[str] = "its search compares candidates that were trained for the same number of rounds"
    personalised: ClassVar[bool] = True
    ends_as_planned: ClassVar[bool] = True

    generator: Literal["annealing", "gaussian-annealing", "lattice", "random", "nsga2", "ols"] = "annealing"
    """Generator of weights: Pareto simulated annealing of importances or by Gaussian steps, an even lattice, at random,
    NSGA-II (needs pymoo), or optimistic linear support, which ends the run once no better solution is possible.
    """
    samples: Count = 5
    """n_s, candidates in an iteration."""
    training_rounds: Whole = 0
    """Rounds of one federated training; a run has rounds / training_rounds iterations. 0: up to 5, as that allows."""
    warm_start: bool = False
    """Start each training from the earlier candidate with the nearest weights instead of the initial model."""
    evaluation: Literal["client", "server"] = "client"
    """Evaluator of a candidate: the clients, weighted by size, or the server, on problems that allow it."""
    inner: str = "fedavg"
    """The algorithm that trains candidates: each separately, or by fedpref those of an iteration together. Any whose
    clients and server exchange one model in a round.
    """
    inner_set: tuple[str, ...] = ()
    """Hyper-parameters of the inner algorithm, such as mu=0.1 of fedprox."""
    threshold: float = 0.05
    """ε of FedPref, where that is the inner algorithm."""
    temperature: Positive = 1.0
    """T of annealing at its first decision, in units of the objectives' ranges."""
    cooling: PositiveShare = 0.9
    """Factor on T in every iteration."""
    alpha: Annotated[float, AtLeast(1)] = 1.05
    """α of annealing: how fast importances move away from those of the closest neighbour."""
    step: Positive = 0.2
    """Standard deviation of a step on the weights in gaussian-annealing."""
    tolerance: NotNegative = 0.001
    """Improvement that linear support considers too small to train for, in units of the objectives' ranges."""
    confirmations: Count = 1
    """Trainings after which linear support expects no better solution at a corner."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trainer.name  # noqa: B018 (it says what is wrong with inner)

    @cached_property
    def trainer(self) -> Algorithm[Any]:
        """The inner algorithm."""
        given = (*(f"threshold={self.threshold}" for _ in range(self.inner == "fedpref")), *self.inner_set)
        return inner_algorithm(self.inner, given)

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return self.trainer.needs

    @property
    def clusters_all(self) -> bool:  # type: ignore[override]
        return self.trainer.clusters_all

    @property
    def requires(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.trainer.requires

    @property
    def reveals(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.trainer.reveals

    @property
    def lanes(self) -> int:
        """Every client trains all candidates of an iteration."""
        return self.samples

    # -- algorithm 2, the server -----------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> MOFLDState:
        """Lines 1 to 3, and the first candidates."""
        self._check(setting)
        must_fit(self.trainer, setting)
        m, like = len(setting.objectives), setting.initial
        nothing = MOFLDState(
            setting,
            weights=like.new_empty(0, m, dtype=torch.float64),
            values=like.new_empty(0, 3, m, dtype=torch.float64),
            models=like.new_empty(0, len(like)),
        )
        return self._with_candidates(nothing)

    def _training_rounds(self, setting: Setting) -> int:
        return training_rounds(self, setting)

    def _check(self, setting: Setting) -> None:
        if self.generator == "ols" and len(setting.objectives) < 2:
            raise UserError("generator is ols, which needs two objectives or more; this problem has one, and no front")
        must_be_a_multiple(self, setting)
        if self.evaluation == "server" and setting.judge is None:
            raise UserError(
                "evaluation is server, but the server has no data of its own on this problem; evaluation=client does "
                "without"
            )

    def ask(self, state: MOFLDState) -> list[Tasks]:
        """Line 9, the next round of every training; or line 10 once they are over."""
        present = participants(state)
        if state.trained:
            return [
                Tasks(present, {"model": model}, round=state.round + 1, step="measure", lane=lane)
                for lane, model in zip(state.in_training, self._candidates(state), strict=True)
            ]
        weights, rows = state.weights.to(state.models.dtype), state.setting.rows(present)
        return [
            replace(own, clients=present, shared={**own.shared, WEIGHTS: weights[lane]}, step="solve", lane=lane)
            for training in self._trainings(state)
            for lane, own in training.ask(rows)
        ]

    def tell(self, state: MOFLDState, replies: Replies) -> MOFLDState:
        """One more round of every training; after the last one lines 10 to 15, with the clients' evaluation or the
        server's.
        """
        if state.trained:
            return self._measured(state, _mean_values(state, replies))
        rows = state.setting.rows(replies.clients)
        state = replace(state, inner=tuple(training.tell(replies, rows) for training in self._trainings(state)))
        if (state.round + 1) % self._training_rounds(state.setting):
            return replace(state, round=state.round + 1)
        if self.evaluation == "client":
            return replace(state, trained=True)
        assert state.setting.judge is not None, "checked by begin"
        return self._measured(state, state.setting.judge(self._candidates(state)).double())

    def _measured(self, state: MOFLDState, values: Tensor) -> MOFLDState:
        """Lines 11 to 15: the candidates are done, the next ones follow. Without any the run is over."""
        done = replace(
            state,
            values=torch.cat([state.values, values]),
            models=torch.cat([state.models, self._candidates(state)]),
            inner=(),
            trained=False,
            round=state.round + 1,
        )
        if done.round == done.setting.rounds:
            return done
        following = self._with_candidates(done)
        return following if following.in_training else replace(following, round=following.setting.rounds)

    def _with_candidates(self, state: MOFLDState) -> MOFLDState:
        """Lines 5 and 8: weights from the search, and federations that start to train for them."""
        iteration = state.round // self._training_rounds(state.setting)
        streams = partial(_stream, state.setting.seed)
        proposed = self._search(state.setting).propose(self._history(state), iteration, streams)
        weights = torch.as_tensor(proposed, dtype=torch.float64, device=state.weights.device)
        starts = self._starts(state, weights)
        state = replace(state, weights=torch.cat([state.weights, weights]))
        inner: list[State] = []
        for setting, lanes in self._federations(state):
            own = starts[[lane - state.done for lane in lanes]]
            begun = self.trainer.begin(replace(setting, initial=own[0]))
            if len(own) > 1:  # Each of the candidates that are trained together has its own start.
                begun = replace(begun, models=own.repeat_interleave(len(state.setting.clients), dim=0))
            inner.append(begun)
        return replace(state, inner=tuple(inner))

    def _starts(self, state: MOFLDState, weights: Tensor) -> Tensor:
        """θ_0 of each candidate, `[k, d]`."""
        if not (self.warm_start and state.done):
            return state.setting.initial.expand(len(weights), -1)
        nearest = torch.cdist(weights, state.weights).argmin(dim=1)
        return state.models[nearest]

    # -- the search for weights ------------------------------------------------------------------------------------

    def _search(self, setting: Setting) -> Search:
        if self.generator == "lattice":
            return Lattice(self.samples, setting.rounds // self._training_rounds(setting))
        if self.generator == "random":
            return RandomWeights(self.samples)
        if self.generator == "nsga2":
            return Evolution(self.samples)
        if self.generator == "ols":
            return LinearSupport(self.samples, self.tolerance, confirmations=self.confirmations)
        step = self.step if self.generator == "gaussian-annealing" else None
        return Annealing(self.samples, self.temperature, self.cooling, self.alpha, step)

    def _history(self, state: MOFLDState) -> History:
        """The trials that the search knows. Linear support draws conclusions from optima, so it sees what training
        optimises.
        """
        part = TRAINED_FOR if self.generator == "ols" else CHOSEN_ON
        values = state.values[:, part].cpu().numpy()
        signs = np.where([objective.maximise for objective in state.setting.objectives], 1.0, -1.0)
        return History(state.weights[: state.done].cpu().numpy(), values * signs)

    # -- the federations that train --------------------------------------------------------------------------------

    def _federations(self, state: MOFLDState) -> Iterator[tuple[Setting, Sequence[int]]]:
        """Yield the setting and the candidates of each training under way. All its members take part: a participant of
        a round trains every candidate.
        """
        lanes = state.in_training
        together = self.inner == "fedpref" and len(lanes) > 0
        for group in [lanes] if together else [[lane] for lane in lanes]:
            members = np.arange(len(group) * len(state.setting.clients))
            yield replace(state.setting, clients=members, participation=1.0, regulars=()), group

    def _trainings(self, state: MOFLDState) -> Iterator[_Training]:
        """The current trainings; they count rounds with the run, and their settings are not part of a checkpoint."""
        for inner, (setting, lanes) in zip(state.inner, self._federations(state), strict=True):
            yield _Training(self.trainer, replace(inner, setting=setting, round=state.round), lanes)

    def _candidates(self, state: MOFLDState) -> Tensor:
        """θ^w of each candidate in training, `[k, d]`; of personal models the mean over a candidate's."""
        sent = [training.algorithm.solutions(training.state) for training in self._trainings(state)]
        models = [one.shared["model"] if "model" in one.shared else one.own["model"] for one in sent]
        return (
            torch.cat([one.view(-1, state.models.shape[1]) for one in models])
            .view(len(state.in_training), -1, state.models.shape[1])
            .mean(dim=1)
        )

    # -- results ---------------------------------------------------------------------------------------------------

    def found(self, state: MOFLDState) -> Found:
        """𝒫ℱ and 𝒫ℱℳ, lines 13 and 14: the non-dominated candidates."""
        front = front_of(state.values[:, CHOSEN_ON], state.setting)
        return Found(state.weights[front], state.values[front], state.models[front])

    def solutions(self, state: MOFLDState) -> Parcels:
        """The whole front, with its objective values, for every client to choose from."""
        found = self.found(state)
        if not len(found.models):
            return to_everyone(state, model=state.setting.initial)
        return to_everyone(state, model=found.models, values=found.values[:, CHOSEN_ON].to(found.models.dtype))

    def describe(self, state: MOFLDState) -> dict[str, Any]:
        """The front and the weights behind it, how many trainings it took, and the weights that are next."""
        found = self.found(state)
        return {
            "trainings": state.done,
            "front": found.values[:, COMPARED_BY].tolist(),
            "front_weights": found.weights.tolist(),
            "candidates": state.weights[state.done :].tolist(),
        }

    # -- the client half -------------------------------------------------------------------------------------------

    def solve(self, clients: Clients, message: Message) -> Message:
        """The inner algorithm's local training, under the candidate's weights instead of the client's preference."""
        own = clients.preferences
        clients.preferences = message[WEIGHTS]
        try:
            return self.trainer.train(clients, {name: one for name, one in message.items() if name != WEIGHTS})
        finally:
            clients.preferences = own

    def measure(self, clients: Clients, message: Message) -> Message:
        """A candidate's objectives on each client's three splits."""
        parts = clients.problem.parts(clients.splits)
        return {"values": clients.evaluate(message["model"])[:, roles(parts)], "size": clients.sizes}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The solution with the largest weighted sum under the client's own preference, which stays private."""
        return favourite(clients, message)

    def train(self, clients: Clients, message: Message) -> Message:
        """Train the client's chosen solution further under the client's own preference, for fine-tuning."""
        return {"model": clients.learn(self.personal(clients, message))}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """Models in training; three vectors of objectives when they are measured."""
        model = {"model": (setting.layout.size,)}
        return {
            "solve": self.trainer.reply_shapes(setting)["train"],
            "measure": {"values": (3, len(setting.objectives)), "size": ()},
            "train": model,
        }

    @property
    def reply_parts(self) -> Mapping[str, Part]:
        """Models in training, then what they are worth."""
        return {**super().reply_parts, **self.trainer.reply_parts, "values": "objectives"}

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        return self.trainer.reply_limits

    def private_state(self, setting: Setting) -> Message:
        """Tensors that the algorithm which trains candidates keeps, of each candidate."""
        return self.trainer.private_state(setting)


def _mean_values(state: MOFLDState, replies: Replies) -> Tensor:
    """Eq. 3.1: Σ_i (n_i / n) F_i of each candidate over the clients that measured it, `[k, 3, m]`; NaN without any."""
    values = state.values.new_full((len(state.in_training), *state.values.shape[1:]), torch.nan)
    for row, lane in zip(values, state.in_training, strict=True):
        own = replies.in_lane(lane)
        if len(own):
            sizes = own["size"].double()
            row[:] = torch.einsum("i,ipm->pm", sizes / sizes.sum(), own["values"].double())
    return values


def _stream(seed: int, iteration: int) -> np.random.Generator:
    """The search's random numbers in an iteration."""
    return rng.generator(rng.Address(seed, round=iteration), "weights")
