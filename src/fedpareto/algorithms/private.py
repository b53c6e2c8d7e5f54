"""Differential privacy around any algorithm whose clients reply with a model, and nothing else.

Central: McMahan et al., "Learning differentially private recurrent language models", 2018, with a fixed clip. Local:
the same noise on each client's own update, before it leaves. What ε this is: core.privacy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.fine_tuning import FineTuned, FineTunedState
from fedpareto.core import rng
from fedpareto.core.algorithm import (
    Algorithm,
    S,
    Setting,
    State,
    Taxonomy,
    participants,
    privacy_of,
    small_setting,
)
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message, Reply, Shapes, Task
from fedpareto.core.privacy import Exposure, Privacy, epsilon
from fedpareto.errors import UserError

PURPOSE = "privacy"
"""The name of the random streams that noise is drawn from."""


@dataclass(frozen=True)
class PrivateState(State, Generic[S]):
    """The algorithm's own state, and how often each client was selected for an update."""

    inner: S | None = None
    asked: tuple[int, ...] = ()
    """In the order of `setting.clients`. Selected clients count, not those that replied: a late reply has left its
    client.
    """


@dataclass(frozen=True)
class Private(Algorithm[PrivateState[S]]):
    """Any algorithm whose replies are models, with clipped updates and Gaussian noise."""

    algorithm: Algorithm[S]
    privacy: Privacy

    def __post_init__(self) -> None:
        why = refusal(self.algorithm, self.privacy)
        if why:
            raise UserError(f"privacy.kind={self.privacy.kind} does not fit {self.algorithm.name}: {why}")

    @property
    def name(self) -> str:  # type: ignore[override]
        """The algorithm's own."""
        return self.algorithm.name

    @property
    def taxonomy(self) -> Taxonomy:  # type: ignore[override]
        """The algorithm's own."""
        return self.algorithm.taxonomy

    @property
    def personalised(self) -> bool:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.personalised

    # -- the client half ------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """θ + clip(θ_i − θ), where θ was received and θ_i is the algorithm's own reply; local: + N(0, z²C²)."""
        received = message["model"]
        model = clipped(received, self.algorithm.train(clients, message)["model"], self.privacy.clip)
        if self.privacy.kind == "local" and self.privacy.deviation:
            model = model + gaussian(self._streams(clients), self.privacy.deviation, model)
        return {"model": model}

    def _streams(self, clients: Clients) -> Iterable[np.random.Generator]:
        if self.privacy.randomness == "seed":
            return clients.generators(PURPOSE)
        return (np.random.default_rng() for _ in clients.addresses)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own."""
        return self.algorithm.private_state(setting)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own."""
        return self.algorithm.personal(clients, message)

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> PrivateState[S]:
        """No client was selected yet."""
        return PrivateState(setting, inner=self.algorithm.begin(setting), asked=(0,) * len(setting.clients))

    def ask(self, state: PrivateState[S]) -> list[Task]:
        """The algorithm's own tasks."""
        return self.algorithm.ask(_inner(state))

    def tell(self, state: PrivateState[S], replies: Sequence[Reply]) -> PrivateState[S]:
        """The algorithm's own aggregation; central: of replies that share N(0, (zC/n)²), which is then in the mean."""
        at_work = {task.client for task in self.ask(state)}
        inner = self.algorithm.tell(_inner(state), self._noised(state, replies))
        if inner.round == state.round:
            raise UserError(f"privacy: {self.name} takes several exchanges a round; noise is drawn for one")
        asked = tuple(
            times + (client in at_work) for client, times in zip(state.setting.clients, state.asked, strict=True)
        )
        return replace(state, inner=inner, asked=asked, round=inner.round)

    def _noised(self, state: PrivateState[S], replies: Sequence[Reply]) -> Sequence[Reply]:
        if self.privacy.kind != "central" or not self.privacy.deviation:
            return replies
        address = rng.Address(state.setting.seed, round=state.round + 1)
        seeded = self.privacy.randomness == "seed"
        stream = rng.generator(address, PURPOSE) if seeded else np.random.default_rng()
        like = replies[0].message["model"][None]
        (noise,) = gaussian([stream], self.privacy.deviation / len(replies), like)
        return [replace(reply, message={"model": reply.message["model"] + noise}) for reply in replies]

    def solutions(self, state: PrivateState[S]) -> dict[int, Message]:
        """The algorithm's own."""
        return self.algorithm.solutions(_inner(state))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own."""
        return self.algorithm.reply_shapes(setting)

    def describe(self, state: PrivateState[S]) -> dict[str, Any]:
        """What the algorithm itself describes, and ε of the rounds so far, of all seeds together."""
        setting = state.setting
        exposure = Exposure(
            max(state.asked) * setting.repeats,
            state.round * setting.repeats,
            len(participants(state)),
            len(setting.clients),
            # Clients that take part in every round are not drawn: sampling does not hide them.
            drawn=not setting.regulars,
        )
        return self.algorithm.describe(_inner(state)) | {"epsilon": epsilon(self.privacy, exposure)}


# -- fine-tuning ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptState(FineTunedState[S]):
    """As of fine-tuning, but the server holds no tuned model."""

    kept: tuple[int, ...] = ()
    """Clients that hold a tuned model once the last round is over."""


@dataclass(frozen=True)
class PrivatelyTuned(FineTuned[S]):
    """The "+ft" variant under privacy: only its client needs a tuned model, so it never leaves, and needs neither
    clipping nor noise; the last round costs no privacy.
    """

    personalised: ClassVar[bool] = True

    def begin(self, setting: Setting) -> KeptState[S]:
        """The algorithm's own beginning."""
        return KeptState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: FineTunedState[S]) -> list[Task]:
        """As fine-tuning, but the last step keeps its result."""
        tasks = super().ask(state)
        return [replace(task, step="keep") for task in tasks] if state.round == state.setting.rounds - 1 else tasks

    def keep(self, clients: Clients, message: Message) -> Message:
        """Local training from the client's own solution; the reply is empty."""
        assert isinstance(self.algorithm, Private), "made so by protected"
        tuned = self.algorithm.algorithm.train(clients, message)["model"]
        clients.state = {**clients.state, "tuned": tuned}
        return {}

    def tell(self, state: FineTunedState[S], replies: Sequence[Reply]) -> KeptState[S]:
        """The algorithm's own aggregation; in the last round only the list of clients that have tuned their models."""
        assert isinstance(state, KeptState), "a state made by begin"
        if state.round < state.setting.rounds - 1:
            told = super().tell(state, replies)
            assert isinstance(told, KeptState), "fine-tuning keeps the class of its state"
            return told
        return replace(state, kept=tuple(reply.client for reply in replies), round=state.round + 1)

    def solutions(self, state: FineTunedState[S]) -> dict[int, Message]:
        """Nothing for clients that hold a tuned model, the algorithm's own solutions for the others."""
        assert isinstance(state, KeptState), "a state made by begin"
        own: dict[int, Message] = {client: {} for client in state.kept}
        return super().solutions(state) | own

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own, from what the client was sent or from what it tuned and kept."""
        return self.algorithm.personal(clients, message if "model" in message else {"model": clients.state["tuned"]})

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and a place for the tuned model."""
        return {**self.algorithm.private_state(setting), "tuned": setting.initial}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own, and nothing in the last round."""
        return {**self.algorithm.reply_shapes(setting), "keep": {}}


# -- what fits, and the mechanism ----------------------------------------------------------------------------------


def protected(algorithm: Algorithm[Any], privacy: Privacy) -> Algorithm[Any]:
    """The algorithm under this privacy; unchanged if it is already."""
    present = privacy_of(algorithm)
    if present == privacy:
        return algorithm
    if present.kind != "none":
        raise UserError(f"{algorithm.name} is private already, with other parameters; give the algorithm without them")
    if privacy.kind == "none":
        return algorithm
    if isinstance(algorithm, FineTuned):
        return PrivatelyTuned(Private(algorithm.algorithm, privacy))
    return Private(algorithm, privacy)


def refusal(algorithm: Algorithm[Any], privacy: Privacy) -> str:
    """Why this kind of privacy would not protect what the algorithm's clients send; empty if it does."""
    steps = algorithm.reply_shapes(small_setting())
    replies = {name for shapes in steps.values() for name in shapes}
    if not replies:
        return "its clients send nothing, so there is nothing to protect"
    more = sorted(replies - {"model"})
    if more:
        way_out = "; weighting=equal does without" if _equal_weights_help(algorithm, privacy) else ""
        return f"its clients do not send a model only but {', '.join(more)}, which noise would not cover{way_out}"
    if set(steps) != {"train"}:
        return f"its clients take more steps than train: {', '.join(sorted(steps))}"
    if privacy.kind == "central" and not algorithm.averages:
        return "its server works with each client's own update, and noise on a mean protects none; kind=local does"
    return ""


def _equal_weights_help(algorithm: Algorithm[Any], privacy: Privacy) -> bool:
    """Whether the number of rows is all that stands in the way."""
    by_size: Any = algorithm
    if getattr(by_size, "weighting", None) != "size":
        return False
    return not refusal(replace(by_size, weighting="equal"), privacy)


def clipped(received: Tensor, trained: Tensor, clip: float) -> Tensor:
    """θ + Δ · min(1, C / ‖Δ‖) with Δ = θ_i − θ, for each row of `[n, d]`; rows that are short enough as they are.

    What is returned is never further than C from θ, however coarse the numbers of its type are at θ.
    """
    origin = received.double()
    update = trained.double() - origin
    length = update.norm(dim=1, keepdim=True)
    allowed = update * (clip / length)
    near = (origin + allowed).to(trained)
    # Rounding may have moved an entry away from θ; the next number towards θ is within the allowed update.
    is_beyond = (near.double() - origin).abs() > allowed.abs()
    return torch.where(length <= clip, trained, torch.where(is_beyond, torch.nextafter(near, received), near))


def gaussian(streams: Iterable[np.random.Generator], deviation: float, like: Tensor) -> Tensor:
    """N(0, deviation²) for each entry of `like` `[n, d]`, row i from stream i."""
    rows = [stream.standard_normal(like.shape[1]) for stream in streams]
    return torch.as_tensor(deviation * np.stack(rows)).to(like)


def _inner(state: PrivateState[S]) -> S:
    assert state.inner is not None, "a state made by begin has the algorithm's own state"
    return state.inner
