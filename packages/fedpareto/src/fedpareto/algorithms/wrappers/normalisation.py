"""Sharing of normalisation layers, around any algorithm whose clients send back what they make of a model.

Averaged: all of it, as any other layer. Private statistics: SiloBN (Andreux et al., "Siloed federated learning for
multi-centric histopathology datasets", 2020). Private: FedBN (Li et al., "FedBN: federated learning on non-IID
features via local batch normalization", 2021).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Generic, Literal

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms.wrappers.wrapper import Wrapper
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import (
    Algorithm,
    S,
    Setting,
    model_sized,
    overrides,
    small_setting,
)
from fedpareto.contract.channel import Channel
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Tasks, beginnings
from fedpareto.tensors.layout import Layout

OWN = "normalisation"
"""The name of the private state that holds a client's own entries."""
MODELS = ("model", "models", "body")
"""The names of models in messages, or of their first layers: one `[n, d]`, or several `[n, K, d]`."""
UPDATES = "updates"
"""The name of updates of one model, one for each objective: `[n, m, d]`."""
FACTORS = frozenset({"left", "right"})
"""The names of compressed gradients, which come from `clients.gradients`."""


@dataclass(frozen=True)
class Normalised(Wrapper[S], Generic[S]):
    """Any algorithm whose replies are models or updates, of which some entries stay with each client.

    A client puts its own entries into every model that it is sent, keeps what training makes of them, and sends back
    those that it was sent: so the server never sees them, its own never change, and no measure of an update counts
    them. Updates and gradients are 0 there.
    """

    algorithm: Algorithm[S]
    normalisation: Literal["private-statistics", "private"]

    def __post_init__(self) -> None:
        why = refusal(self.algorithm)
        if why:
            raise UserError(f"normalisation={self.normalisation} does not fit {self.algorithm.name}: {why}")

    @property
    def channel(self) -> Channel:
        return replace(self.algorithm.channel, normalisation=self.normalisation)

    # -- the client half ------------------------------------------------------------------------------------------

    def client_step(self, step: str, clients: Clients, message: Message) -> Message:
        """The algorithm's own, from a model with the client's own entries."""
        own, places = clients.state[OWN], self._places(clients.problem.layout)
        at_work = _of_shared_entries(clients, places) if step in self._compressed else clients
        reply = self.algorithm.client_step(step, at_work, _with_own(message, own, places))
        own, reply = _apart(own, reply, message, places)
        # An algorithm may have replaced the whole state.
        clients.state, clients.memory = {**at_work.state, OWN: own}, at_work.memory
        return reply

    @cached_property
    def _compressed(self) -> frozenset[str]:
        """The steps that reply with compressed gradients."""
        shapes = self.algorithm.reply_shapes(small_setting())
        return frozenset(step for step, names in shapes.items() if names.keys() & FACTORS)

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The algorithm's own, with the client's own entries."""
        message = _with_own(message, clients.state[OWN], self._places(clients.problem.layout))
        return self.algorithm.personal(clients, message)

    def private_state(self, setting: Setting) -> Message:
        """The algorithm's own, and the private entries of the initial model; for each model that a client trains."""
        own = setting.initial[self._places(setting.layout).to(setting.initial.device)]
        several = self.algorithm.reply_shapes(setting).get("train", {}).get("models")
        if several is not None:
            own = own.expand(several[0], -1)
        return {**self.algorithm.private_state(setting), OWN: own.clone()}

    def _places(self, layout: Layout) -> Tensor:
        """Entries of the flat model that are private, ascending, `[p]`."""
        return private_entries(layout, self.normalisation)

    def model_parts(self, clients: Clients, message: Message) -> Message:
        """The algorithm's own, with the client's own entries."""
        message = _with_own(message, clients.state[OWN], self._places(clients.problem.layout))
        return self.algorithm.model_parts(clients, message)


def normalised(algorithm: Algorithm[Any], way: str) -> Algorithm[Any]:
    """The algorithm with normalisation layers shared this way, inside of fine-tuning and privacy."""
    present = algorithm.channel.normalisation
    if present == way:
        return algorithm
    if present != "averaged":
        raise UserError(f"{algorithm.name} has normalisation={present} already; give the algorithm without it")
    if isinstance(algorithm, Wrapper):
        return replace(algorithm, algorithm=normalised(algorithm.algorithm, way))
    return Normalised(algorithm, way) if any(algorithm.reply_shapes(small_setting()).values()) else algorithm  # type: ignore[arg-type]


def refusal(algorithm: Algorithm[Any]) -> str:
    """Why entries of this algorithm's models cannot stay with clients; empty if they can."""
    setting = small_setting()
    shapes = algorithm.reply_shapes(setting)
    if overrides(algorithm, "found"):
        return "its solutions are the server's own, and belong to no client"
    if not {*MODELS, UPDATES} & shapes.get("train", {}).keys():
        return "its clients train on their own, and are sent no model to train further"
    grown = {name for step in shapes for name in model_sized(algorithm, setting, step)}
    unknown = sorted(grown - {*MODELS, UPDATES} - FACTORS)
    if unknown:
        return f"its clients send {', '.join(unknown)}, of which nobody knows what comes from such layers"
    return ""


def private_entries(layout: Layout, way: str) -> Tensor:
    """The places of a flat model's entries that stay with each client, ascending."""
    names = layout.normalisation
    if way == "private-statistics":
        names = tuple(name for name in names if name in layout.buffers)
    return layout.marked(names).nonzero().flatten()


def _with_own(message: Message, own: Tensor, places: Tensor) -> Message:
    """A message whose models have the client's own entries, `[n, p]` or for each of K models `[n, K, p]`."""
    return message | {name: _put(message[name], own, places) for name in MODELS if name in message}


def _put(models: Tensor, own: Tensor, places: Tensor) -> Tensor:
    """Models `[n, d]` or `[n, K, d]` with these entries; of a part of a model, those that are in it."""
    here = _within(places, models)
    values = own[..., : len(here)]
    if values.dim() < models.dim():
        values = values.unsqueeze(1)
    return models.index_copy(-1, here, values.expand(*models.shape[:-1], -1))


def _apart(own: Tensor, reply: Message, message: Message, places: Tensor) -> tuple[Tensor, Message]:
    """Divide a client's reply to a message into what it keeps and what it sends."""
    if UPDATES in reply:
        here = _within(places, reply[UPDATES])
        # All objectives alike: the server's weights are not known yet, and the client's own are private.
        own = own + reply[UPDATES][..., here].mean(dim=1)
        return own, reply | {UPDATES: reply[UPDATES].index_fill(-1, here, 0)}
    for name in reply.keys() & set(MODELS):
        trained = reply[name]
        here = _within(places, trained)
        kept = trained[..., here].reshape(len(own), *own.shape[1:-1], -1)
        own = torch.cat([kept, own[..., len(here) :]], dim=-1)
        reply = reply | {name: trained.index_copy(-1, here, _sent(name, reply, message)[..., here])}
    return own, reply


def _sent(name: str, reply: Message, message: Message) -> Tensor:
    """The models from which those of a reply were trained, as the server sent them."""
    found = beginnings(Tasks(np.arange(len(reply[name])), own=message), reply)
    if name in found:
        return found[name]
    # It keeps one of several models that it was sent, or it was sent none: any entries will do, but its own.
    return message[name][:, :1] if name in message else torch.zeros_like(reply[name])


def _within(places: Tensor, models: Tensor) -> Tensor:
    return places[places < models.shape[-1]].to(models.device)


@dataclass(kw_only=True)
class _OfSharedEntries(Clients):
    """Clients whose gradients are 0 for the entries that they keep."""

    private: Tensor

    def gradients(self, model: Tensor) -> tuple[Tensor, Tensor]:
        losses, gradients = super().gradients(model)
        return losses, gradients.index_fill(-1, _within(self.private, gradients), 0)


def _of_shared_entries(clients: Clients, private: Tensor) -> Clients:
    known = {field.name: getattr(clients, field.name) for field in fields(Clients)}
    return _OfSharedEntries(**known, private=private)
