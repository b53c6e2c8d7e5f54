"""Differential privacy around any algorithm whose clients reply with a model, and nothing else.

Central: McMahan et al., "Learning differentially private recurrent language models", 2018, with a fixed clip. Local:
the same noise on each client's own update, before it leaves. What ε this is: trust.privacy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.fine_tuning import FineTuned, FineTunedState
from fedpareto.core import rng
from fedpareto.core.algorithm import (
    Algorithm,
    Needs,
    S,
    Setting,
    State,
    Taxonomy,
    by_client,
    participants,
    privacy_of,
    small_setting,
)
from fedpareto.core.clients import Clients
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError
from fedpareto.trust.privacy import Exposure, Privacy, epsilon

KEPT = "kept"
"""The name under which clients are told that they hold a tuned model."""
PURPOSE = "privacy"
"""The name of the random streams that noise is drawn from."""


@dataclass(frozen=True)
class PrivateState(State, Generic[S]):
    """The algorithm's own state, and how often each client was selected for an update."""

    inner: S | None = None
    asked: Tensor = torch.empty(0, dtype=torch.int64)
    """`[n]`, in the order of `setting.clients`. Selected clients count, not those that replied: a late reply has left
    its client.
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
    def needs(self) -> Needs:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.needs

    @property
    def sums(self) -> bool:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.sums

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
            model = model + self.privacy.deviation * self._normal(clients.addresses, model)
        return {"model": model}

    def _normal(self, addresses: rng.Addresses, like: Tensor) -> Tensor:
        """N(0, 1) for each entry of `like` `[n, d]`, from the streams of n addresses or from the machine's own."""
        if self.privacy.randomness == "seed":
            return addresses.to(like.device).normal(PURPOSE, like.shape[1]).to(like)
        return torch.as_tensor(np.random.default_rng().standard_normal(tuple(like.shape))).to(like)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own."""
        return self.algorithm.private_state(setting)

    def summand(self, message: Message, reply: Message) -> Message:
        """The algorithm's own."""
        return self.algorithm.summand(message, reply)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own."""
        return self.algorithm.personal(clients, message)

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> PrivateState[S]:
        """No client was selected yet."""
        return PrivateState(
            setting, inner=self.algorithm.begin(setting), asked=torch.zeros(len(setting.clients), dtype=torch.int64)
        )

    def ask(self, state: PrivateState[S]) -> list[Tasks]:
        """The algorithm's own tasks."""
        return self.algorithm.ask(_inner(state))

    def tell(self, state: PrivateState[S], replies: Replies) -> PrivateState[S]:
        """The algorithm's own aggregation; central: of replies that share N(0, (zC/n)²), which is then in the mean."""
        inner = self.algorithm.tell(_inner(state), self._noised(state, replies))
        if inner.round == state.round:
            raise UserError(f"privacy: {self.name} takes several exchanges a round; noise is drawn for one")
        asked = state.asked.clone()
        asked[torch.as_tensor(np.unique(_rows_at_work(state.setting, self.ask(state))), device=asked.device)] += 1
        return replace(state, inner=inner, asked=asked, round=inner.round)

    def _noised(self, state: PrivateState[S], replies: Replies) -> Replies:
        if self.privacy.kind != "central" or not self.privacy.deviation:
            return replies
        address = rng.Addresses.of([rng.Address(state.setting.seed, round=state.round + 1)])
        (size,) = self.reply_shapes(state.setting)["train"]["model"]
        noise = self.privacy.deviation / len(replies) * self._normal(address, state.setting.initial[None, :size])
        return replies.moved("model", noise[0])

    def solutions(self, state: PrivateState[S]) -> Parcels:
        """The algorithm's own."""
        return self.algorithm.solutions(_inner(state))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own."""
        return self.algorithm.reply_shapes(setting)

    def shares(self, setting: Setting) -> np.ndarray | None:
        """The algorithm's own."""
        return self.algorithm.shares(setting)

    def describe(self, state: PrivateState[S]) -> dict[str, Any]:
        """What the algorithm itself describes, and ε of the rounds so far, of all seeds together."""
        setting = state.setting
        exposure = Exposure(
            int(state.asked.max()) * setting.repeats,
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

    kept: Tensor = torch.empty(0)
    """1 for clients that hold a tuned model, `[n]`, once the last round is over; empty before."""


@dataclass(frozen=True)
class PrivatelyTuned(FineTuned[S]):
    """The "+ft" variant under privacy: only its client needs a tuned model, so it never leaves, and needs neither
    clipping nor noise; the last round costs no privacy.
    """

    personalised: ClassVar[bool] = True

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """As the algorithm itself: tuned models stay with their clients."""
        return self.algorithm.needs

    def begin(self, setting: Setting) -> KeptState[S]:
        """The algorithm's own beginning."""
        return KeptState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: FineTunedState[S]) -> list[Tasks]:
        """As fine-tuning, but the last step keeps its result."""
        tasks = super().ask(state)
        return [replace(task, step="keep") for task in tasks] if state.round == state.setting.rounds - 1 else tasks

    def keep(self, clients: Clients, message: Message) -> Message:
        """Local training from the client's own solution; the reply is empty."""
        assert isinstance(self.algorithm, Private), "made so by protected"
        tuned = self.algorithm.algorithm.train(clients, message)["model"]
        clients.state = {**clients.state, "tuned": tuned}
        return {}

    def tell(self, state: FineTunedState[S], replies: Replies) -> KeptState[S]:
        """The algorithm's own aggregation; in the last round only the list of clients that have tuned their models."""
        assert isinstance(state, KeptState), "a state made by begin"
        if state.round < state.setting.rounds - 1:
            told = super().tell(state, replies)
            assert isinstance(told, KeptState), "fine-tuning keeps the class of its state"
            return told
        kept = by_client(state.setting, replies, state.setting.initial.new_ones(len(replies)))
        return replace(state, kept=kept, round=state.round + 1)

    def solutions(self, state: FineTunedState[S]) -> Parcels:
        """The algorithm's own solutions, and whether the client holds a tuned model that it uses instead."""
        assert isinstance(state, KeptState), "a state made by begin"
        sent = super().solutions(state)
        return replace(sent, own={**sent.own, KEPT: state.kept}) if len(state.kept) else sent

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own, from what the client was sent or from what it tuned and kept."""
        message = dict(message)
        if (kept := message.pop(KEPT, None)) is not None:
            message["model"] = torch.where(kept.unsqueeze(1) > 0, clients.state["tuned"], message["model"])
        return self.algorithm.personal(clients, message)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and a place for the tuned model."""
        (size,) = self.algorithm.reply_shapes(setting)["train"]["model"]
        return {**self.algorithm.private_state(setting), "tuned": setting.initial[:size].clone()}

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


def _rows_at_work(setting: Setting, tasks: Sequence[Tasks]) -> np.ndarray:
    return np.concatenate([setting.rows(some.clients) for some in tasks])


def _inner(state: PrivateState[S]) -> S:
    assert state.inner is not None, "a state made by begin has the algorithm's own state"
    return state.inner
