"""What clients share of normalisation layers, around any algorithm whose clients send a model back.

Averaged: all of it, as any other layer. Private statistics: SiloBN (Andreux et al., "Siloed federated learning for
multi-centric histopathology datasets", 2020). Private: FedBN (Li et al., "FedBN: federated learning on non-IID
features via local batch normalization", 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Literal

import torch
from torch import Tensor

from fedpareto.core.algorithm import (
    Algorithm,
    Found,
    Needs,
    S,
    Setting,
    Taxonomy,
    normalisation_of,
    small_setting,
)
from fedpareto.core.clients import Clients
from fedpareto.core.conditioned import Conditioned
from fedpareto.core.layout import Layout
from fedpareto.core.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.errors import UserError

OWN = "normalisation"
"""The name of the private state that holds a client's own entries."""


@dataclass(frozen=True)
class Normalised(Algorithm[S], Generic[S]):
    """Any algorithm whose replies are models, of which some entries stay with each client.

    A client puts its own entries into the model that it is sent, keeps what training makes of them, and sends back
    those that it was sent: so the server never sees them, its own never change, and no measure of an update counts
    them.
    """

    algorithm: Algorithm[S]
    normalisation: Literal["private-statistics", "private"]

    def __post_init__(self) -> None:
        why = refusal(self.algorithm)
        if why:
            raise UserError(f"normalisation={self.normalisation} does not fit {self.algorithm.name}: {why}")

    # -- the client half ------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """The algorithm's own, from a model with the client's own entries."""
        return self._step("train", clients, message)

    def __getattr__(self, step: str) -> Any:
        """Further client steps, in the same way; what else the algorithm has is its own."""
        if step.startswith("__") or step == "algorithm":
            raise AttributeError(step)
        found = getattr(self.algorithm, step)
        return partial(self._step, step) if step in self.algorithm.reply_shapes(small_setting()) else found

    def _step(self, step: str, clients: Clients, message: Message) -> Message:
        own = clients.state[OWN]
        places = self._places(clients.problem.layout)
        reply: Message = getattr(self.algorithm, step)(clients, _with_own(message, own, places))
        if "model" in reply and "model" in message:
            trained, sent = reply["model"], message["model"]
            here = _within(places, trained).to(trained.device)
            own = torch.cat([trained[:, here], own[:, len(here) :]], dim=1)
            reply = {**reply, "model": trained.index_copy(1, here, sent[:, here])}
        # An algorithm may have replaced the whole state.
        clients.state = {**clients.state, OWN: own}
        return reply

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own, with the client's own entries."""
        message = _with_own(message, clients.state[OWN], self._places(clients.problem.layout))
        return self.algorithm.personal(clients, message)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and the private entries of the initial model."""
        own = setting.initial[self._places(setting.layout).to(setting.initial.device)]
        return {**self.algorithm.private_state(setting), OWN: own.clone()}

    def _places(self, layout: Layout) -> Tensor:
        """Which entries of the flat model are private, ascending, `[p]`."""
        return private_entries(layout, self.normalisation)

    # -- the algorithm's own --------------------------------------------------------------------------------------

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
    def personalised(self) -> bool:  # type: ignore[override]
        """As the algorithm itself: what the server aggregates is the same."""
        return self.algorithm.personalised

    @property
    def averages(self) -> bool:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.averages

    @property
    def ends_as_planned(self) -> bool:  # type: ignore[override]
        """As the algorithm itself."""
        return self.algorithm.ends_as_planned

    def begin(self, setting: Setting) -> S:
        """The algorithm's own beginning."""
        return self.algorithm.begin(setting)

    def ask(self, state: S) -> list[Tasks]:
        """The algorithm's own tasks."""
        return self.algorithm.ask(state)

    def tell(self, state: S, replies: Replies) -> S:
        """The algorithm's own aggregation."""
        return self.algorithm.tell(state, replies)

    def solutions(self, state: S) -> Parcels:
        """The algorithm's own."""
        return self.algorithm.solutions(state)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The algorithm's own."""
        return self.algorithm.reply_shapes(setting)

    @property
    def reply_limits(self) -> Mapping[str, tuple[float, float]]:
        """The algorithm's own."""
        return self.algorithm.reply_limits

    def found(self, state: S) -> Found | None:
        """The algorithm's own."""
        return self.algorithm.found(state)

    def describe(self, state: S) -> dict[str, Any]:
        """The algorithm's own."""
        return self.algorithm.describe(state)

    def anatomy(self, layout: Layout, objectives: int) -> Conditioned | None:
        """The algorithm's own."""
        return self.algorithm.anatomy(layout, objectives)

    def model_parts(self, clients: Clients, message: Message) -> Message:
        """The algorithm's own."""
        return self.algorithm.model_parts(clients, message)


def normalised(algorithm: Algorithm[Any], way: str) -> Algorithm[Any]:
    """The algorithm with normalisation layers shared this way, inside of fine-tuning and privacy."""
    present = normalisation_of(algorithm)
    if present == way:
        return algorithm
    if present != "averaged":
        raise UserError(f"{algorithm.name} has normalisation={present} already; give the algorithm without it")
    inner = getattr(algorithm, "algorithm", None)
    if isinstance(inner, Algorithm):
        around: Any = algorithm
        outer: Algorithm[Any] = replace(around, algorithm=normalised(inner, way))
        return outer
    return Normalised(algorithm, way) if any(algorithm.reply_shapes(small_setting()).values()) else algorithm  # type: ignore[arg-type]


def refusal(algorithm: Algorithm[Any]) -> str:
    """Why entries of this algorithm's models cannot stay with clients; empty if they can."""
    setting = small_setting()
    shapes = algorithm.reply_shapes(setting)
    if type(algorithm).found is not Algorithm.found:
        return "its solutions are the server's own, and belong to no client"
    if "model" not in shapes.get("train", {}):
        return "its clients do not send a model back"
    others = {name for step in shapes.values() for name, shape in step.items() if setting.layout.size in shape}
    if others - {"model"}:
        return f"its clients send {', '.join(sorted(others - {'model'}))} beside a model"
    return ""


def private_entries(layout: Layout, way: str) -> Tensor:
    """The places of a flat model's entries that stay with each client, ascending."""
    names = layout.normalisation
    if way == "private-statistics":
        names = tuple(name for name in names if name in layout.buffers)
    return layout.marked(names).nonzero().flatten()


def _with_own(message: Message, own: Tensor, places: Tensor) -> Message:
    """A message whose model has the client's own entries; of a part of a model, those that are in it."""
    if "model" not in message:
        return message
    model = message["model"]
    here = _within(places, model).to(model.device)
    return {**message, "model": model.index_copy(1, here, own[:, : len(here)])}


def _within(places: Tensor, model: Tensor) -> Tensor:
    return places[places < model.shape[1]]
