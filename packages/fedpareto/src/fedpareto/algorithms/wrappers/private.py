"""Differential privacy around any algorithm that says what its clients' replies are (`Algorithm.reply_parts`).

Central: McMahan et al., "Learning differentially private recurrent language models", 2018, with a fixed clip. Local:
noise on each client's own reply, before it leaves; see trust.hiding. What ε this is: contract.privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.wrappers.fine_tuning import FineTuned, FineTunedState
from fedpareto.algorithms.wrappers.safe import Safe
from fedpareto.algorithms.wrappers.wrapper import Outer, Stateful, inner, own
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import (
    Algorithm,
    S,
    Setting,
    by_client,
    overrides,
    participants,
    small_setting,
)
from fedpareto.contract.channel import Channel
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.contract.privacy import Exposure, Privacy, epsilon, epsilon_of_all
from fedpareto.contract.problem import Objective
from fedpareto.tensors import rng
from fedpareto.trust import discrete
from fedpareto.trust.hiding import PURPOSE, Hiding, draws, ranges_of

KEPT = "kept"
"""The name under which clients are told that they hold a tuned model."""
TUNING = "fine_tune"
"""A step of the variant +ft only. Under privacy its result stays with the client."""


@dataclass(frozen=True)
class PrivateState(Outer[S]):
    """The algorithm's own state, and how often each client was selected for a reply."""

    asked: Tensor = torch.empty(0, dtype=torch.float64)
    """`[n]`, in the order of `setting.clients`. Selected clients count, not those that replied: a late reply has left
    its client. A sum whose noise was less than agreed, because many dropped out, counts more than once.
    """


@dataclass(frozen=True)
class Private(Stateful[PrivateState[S]], Generic[S]):
    """Any algorithm, with clipped updates, bounded values and Gaussian noise."""

    algorithm: Algorithm[S]
    privacy: Privacy

    def __post_init__(self) -> None:
        why = refusal(self.algorithm, self.privacy)
        if why:
            raise UserError(f"privacy.kind={self.privacy.kind} does not fit {self.algorithm.name}: {why}")

    needs, sums = own("needs"), own("sums")

    @property
    def channel(self) -> Channel:
        return replace(self.algorithm.channel, privacy=self.privacy)

    @cached_property
    def _sent(self) -> Mapping[str, Shapes]:
        """Shapes of what leaves a client, by step."""
        return self.reply_shapes(small_setting())

    # -- the client half ------------------------------------------------------------------------------------------

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        """The algorithm's own reply, clipped; local: with noise."""
        hiding = self.hiding(step, clients.problem.objectives)
        reply = self.algorithm.client_step(step, clients, message)
        if self.privacy.kind == "local":
            return hiding.hidden(message, reply, draws(self.privacy, clients.addresses))
        return hiding.clipped(message, reply)

    def hiding(self, step: str, objectives: tuple[Objective, ...]) -> Hiding:
        """The way in which a client is hidden in replies to a step."""
        parts, limits = self.algorithm.reply_parts, self.algorithm.reply_limits
        here = {name: parts[name] for name in self._sent[step]}
        ranges = ranges_of(objectives) if "objectives" in here.values() else None
        choices = {name: int(limits[name][1]) + 1 for name, part in here.items() if part == "choice"}
        return Hiding(self.privacy, here, ranges, choices)

    # -- the server half ------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> PrivateState[S]:
        """No client was selected yet; checks that what is sent of objectives has bounds."""
        sent = {name for names in self._sent.values() for name in names}
        of_objectives = any(self.algorithm.reply_parts.get(name) == "objectives" for name in sent)
        if self.privacy.objectives == "noised" or (of_objectives and self.privacy.noise):
            ranges_of(setting.objectives)
        return PrivateState(
            setting, inner=self.algorithm.begin(setting), asked=torch.zeros(len(setting.clients), dtype=torch.float64)
        )

    def tell(self, state: PrivateState[S], replies: Replies) -> PrivateState[S]:
        """The algorithm's own aggregation; central: of replies that share N(0, (zC/n)²), which is then in the mean."""
        told = self.algorithm.tell(inner(state), self._noised(state, replies))
        if self.privacy.kind == "central" and told.round == state.round:
            raise UserError(f"privacy: {self.name} takes several exchanges a round; central noise is drawn for one")
        asked_now = replies.asked
        if asked_now is None:
            asked_now = np.concatenate([tasks.clients for tasks in self.ask(state)])
        rows = _rows(state.setting, asked_now)
        each = torch.full((len(rows),), self._lacking(len(rows), len(replies)), dtype=torch.float64)
        asked = state.asked.index_add(0, torch.as_tensor(rows), each)
        return replace(state, inner=told, asked=asked, round=told.round)

    def _lacking(self, asked: int, replied: int) -> float:
        """Number of times that a reply counts: more than once if so many dropped out that their sum lacks noise."""
        if self.privacy.kind != "distributed":
            return 1.0
        return max(1.0, discrete.enough(self.privacy, asked) / max(replied, 1))

    def ring_noise(self, clients: Clients, whole: Tensor, unit: float, counts: Tensor) -> Tensor | None:
        """Distributed: each client's share of the noise that the sum will have."""
        if self.privacy.kind != "distributed" or not self.privacy.noise:
            return None
        return discrete.shares(self.privacy, clients.addresses, whole, unit, counts)

    def _noised(self, state: PrivateState[S], replies: Replies) -> Replies:
        if self.privacy.kind != "central" or not self.privacy.deviation:
            return replies
        address = rng.Addresses.of([rng.Address(state.setting.seed, round=state.round + 1)])
        shapes = self.reply_shapes(state.setting)[replies.step]
        (name,) = (one for one in shapes if self.algorithm.reply_parts[one] == "update")
        drawn = draws(self.privacy, address)(PURPOSE, int(np.prod(shapes[name])), state.setting.initial)
        return replies.moved(name, self.privacy.deviation / len(replies) * drawn[0].view(shapes[name]))

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own, without what is for fine-tuning: that stays with the client."""
        return {step: shapes for step, shapes in self.algorithm.reply_shapes(setting).items() if step != TUNING}

    def describe(self, state: PrivateState[S]) -> dict[str, Any]:
        """The algorithm's own description, and ε of the rounds so far, of all seeds together."""
        setting, most = state.setting, float(state.asked.max())
        evaluated = -(-state.round // setting.evaluate_every)
        exposure = Exposure(
            most * setting.repeats,
            state.round * setting.repeats,
            len(participants(state)),
            len(setting.clients),
            # Clients that take part in every round are not drawn: sampling does not hide them.
            drawn=not setting.regulars,
            # Reports on what was sent, now too; and on what a client made of it, if it took part.
            reports=(evaluated + 1 + min(math.ceil(most), evaluated)) * setting.repeats,
        )
        spent = {"epsilon": epsilon(self.privacy, exposure), "epsilon_of_all": epsilon_of_all(self.privacy, exposure)}
        return super().describe(state) | spent


# -- fine-tuning ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptState(FineTunedState[S]):
    """State of fine-tuning in which the server holds no tuned model."""

    kept: Tensor = torch.empty(0)
    """1 for clients that hold a tuned model, `[n]`, once the last round is over; empty before."""


@dataclass(frozen=True)
class PrivatelyTuned(FineTuned[S]):
    """The "+ft" variant under privacy: only its client needs a tuned model, so it never leaves, and needs neither
    clipping nor noise; the last round costs no privacy.
    """

    personalised: ClassVar[bool] = True

    needs = own("needs")  # Tuned models stay with their clients.

    def begin(self, setting: Setting) -> KeptState[S]:
        """The algorithm's own beginning."""
        return KeptState(setting, inner=self.algorithm.begin(setting))

    def ask(self, state: FineTunedState[S]) -> list[Tasks]:
        """Ask as fine-tuning does, but the last step keeps its result."""
        tasks = super().ask(state)
        return [replace(task, step="keep") for task in tasks] if state.round == state.setting.rounds - 1 else tasks

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        return self.keep(clients, message) if step == "keep" else super().client_step(step, clients, message)

    def keep(self, clients: Clients, message: Message) -> Message:
        """Local training from the client's own solution; the reply is empty."""
        plain = self._unhidden
        step = TUNING if TUNING in plain.reply_shapes(small_setting()) else "train"
        tuned = plain.client_step(step, clients, message)[self._tuned(small_setting())]
        clients.state = {**clients.state, "tuned": tuned}
        return {}

    def _tuned(self, setting: Setting) -> str:
        """The name of what clients tune: the whole model, or the part of it that they share."""
        steps = self._unhidden.reply_shapes(setting)
        return next(name for name in steps.get(TUNING, steps["train"]) if name in ("model", "models", "body"))

    @property
    def _unhidden(self) -> Algorithm[Any]:
        """The algorithm without its privacy: what its clients do before anything is clipped."""
        assert isinstance(self.algorithm, Private), "made so by protected"
        return self.algorithm.algorithm

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
            name = self._tuned(small_setting())
            is_kept = kept.view(-1, *[1] * (message[name].dim() - 1)) > 0
            message[name] = torch.where(is_kept, clients.state["tuned"], message[name])
        return self.algorithm.personal(clients, message)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and a place for the tuned model."""
        steps, name = self._unhidden.reply_shapes(setting), self._tuned(setting)
        shape = steps.get(TUNING, steps["train"])[name]
        return {**self.algorithm.private_state(setting), "tuned": setting.initial[: shape[-1]].expand(shape).clone()}

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own, and nothing in the last round."""
        return {**self.algorithm.reply_shapes(setting), "keep": {}}


# -- what fits, and the mechanism ----------------------------------------------------------------------------------


def protected(algorithm: Algorithm[Any], privacy: Privacy) -> Algorithm[Any]:
    """The algorithm under this privacy; unchanged if it is already."""
    present = algorithm.channel.privacy
    if present == privacy:
        return algorithm
    if present.kind != "none":
        raise UserError(f"{algorithm.name} is private already, with other parameters; give the algorithm without them")
    if privacy.kind == "none":
        return algorithm
    if isinstance(algorithm, FineTuned):
        return PrivatelyTuned(Private(algorithm.algorithm, privacy))
    if isinstance(algorithm, Safe):  # The model that a client keeps and chooses is never sent.
        return Safe(protected(algorithm.algorithm, privacy))
    return Private(algorithm, privacy)


def refusal(algorithm: Algorithm[Any], privacy: Privacy) -> str:
    """Why this kind of privacy would not protect what the algorithm's clients send; empty if it does."""
    steps = {step: names for step, names in algorithm.reply_shapes(small_setting()).items() if step != TUNING}
    sent = {name for names in steps.values() for name in names}
    if not sent:
        return "its clients send nothing, so there is nothing to protect"
    parts = algorithm.reply_parts
    if more := sorted(sent - parts.keys()):
        return f"its clients do not send a model only but {', '.join(more)}, which noise would not cover"
    by_size: Any = algorithm.method
    if getattr(by_size, "weighting", None) == "size":
        helps = not refusal(replace(by_size, weighting="equal"), privacy)
        return "its clients send their number of rows, which noise would not cover" + (
            "; weighting=equal does without" if helps else ""
        )
    if set(steps) != {"train"} and not overrides(algorithm, "reply_parts"):
        return f"its clients take more steps than train: {', '.join(sorted(steps))}"
    is_one = set(steps) == {"train"} and len(steps["train"]) == 1
    if privacy.kind == "distributed" and not (algorithm.sums and is_one):
        return "its server needs more than the sum of one update, which is all that would have noise; kind=local does"
    is_mean = algorithm.averages and is_one
    if privacy.kind == "central" and not is_mean:
        return "its server works with each client's own reply, and noise on a mean protects none; kind=local does"
    return ""


def _rows(setting: Setting, clients: np.ndarray) -> np.ndarray:
    """The rows of clients in any order, of whom some may be there more than once."""
    return np.searchsorted(setting.clients, clients)
