"""FedMTL: Sen and Borcea, "FedMTL: privacy-preserving federated multi-task learning", 2024.

Every client has a private set of tasks. Of its model a block is shared by its tasks, the other layers belong to one of
them each. The server mixes what is similar, and is told of no layer to which task it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.algorithms._shared import personal_models
from fedpareto.algorithms._shared.personal_models import PersonalState
from fedpareto.config.bounds import NotNegative, Share
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm, Setting, Taxonomy
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Message, Parcels, Replies, Shapes, Tasks
from fedpareto.moo.similarity import cosines
from fedpareto.tensors.layout import Layout


@dataclass(frozen=True)
class FedMTLState(PersonalState):
    """The clients' models, in their own orders of task layers, and what each has learnt by itself."""

    learnt: Tensor = torch.empty(0)
    """Σ over its rounds of what local training changed, `[n, d]`: mixtures make clients no more similar in it."""


@dataclass(frozen=True)
class FedMTL(Algorithm[FedMTLState]):
    """A shared block φ_i, mixed by similarity, and task layers h_ia, each mixed with those of others that match it.

    A client's tasks are the objectives to which its preference gives weight. All task layers begin from the same
    values, and a client sends its own in an order that it tells nobody, those of tasks that it does not have unchanged:
    what tells them apart is what they have learnt.
    """

    name: ClassVar[str] = "fedmtl"
    taxonomy: ClassVar[Taxonomy] = Taxonomy(
        "client", "multi-task", "multi-task layers, similarity-based partial aggregation", "arbitrary separable"
    )
    personalised: ClassVar[bool] = True

    threshold: Share = 0.5
    """The cosine above which task layers may match; 1: nobody's do, every client keeps its own."""
    power: NotNegative = 1.0
    """The power of a similarity with which others weigh in; 0: all alike, which for the shared block is FedAvg."""

    # -- the client half -------------------------------------------------------------------------------------------

    def train(self, clients: Clients, message: Message) -> Message:
        """(φ_i, h_i) ← local training; layers of tasks that the client does not have stay as they were sent."""
        layout, sent = clients.problem.layout, self.personal(clients, message)
        trained, places = clients.learn(sent), task_layers(layout)
        has = (clients.preferences > 0)[:, : len(places), None].expand(-1, -1, places.shape[1]).flatten(1)
        spots = places.flatten().to(sent.device)
        trained = trained.index_copy(1, spots, torch.where(has, trained[:, spots], sent[:, spots]))
        return {"model": reordered(layout, trained, secret_order(clients, layout))}

    def personal(self, clients: Clients, message: Message) -> Tensor:
        """The model that was sent, with the task layers back in the order of the tasks."""
        layout = clients.problem.layout
        return reordered(layout, message["model"], secret_order(clients, layout).argsort(dim=1))

    # -- the server half -------------------------------------------------------------------------------------------

    def begin(self, setting: Setting) -> FedMTLState:
        """All clients at the same model, all task layers at the same values."""
        models = beginning(setting).expand(len(setting.clients), -1).clone()
        return FedMTLState(
            setting, models=models, heard=personal_models.heard_nobody(setting), learnt=torch.zeros_like(models)
        )

    def ask(self, state: FedMTLState) -> list[Tasks]:
        """Each client trains its own model."""
        return personal_models.tasks(state)

    def reply_shapes(self, setting: Setting) -> Mapping[str, Shapes]:
        """The trained model, nothing else."""
        return {"train": {"model": (setting.layout.size,)}}

    def tell(self, state: FedMTLState, replies: Replies) -> FedMTLState:
        """Each client that replied gets a mixture over those that replied; the others keep their models.

        Where a round does not wait for all, over the last replies of all who have ever replied.
        """
        after, replied = personal_models.trained_models(state, replies)
        places = torch.as_tensor(replied, device=after.device)
        learnt = state.learnt.index_add(0, places, replies["model"] - state.models[places])
        heard = None if state.heard is None else personal_models.hear(state, replied, replies["model"])
        known = replied if heard is None else np.flatnonzero(heard.ever.cpu().numpy())
        trained = after[known] if heard is None else heard.trained[known]
        rows = torch.as_tensor(np.searchsorted(known, replied), device=after.device)
        models = after.index_copy(0, places, self._mixed(state.setting.layout, trained, learnt[known])[rows])
        return replace(state, models=models, heard=heard, learnt=learnt, round=state.round + 1)

    def _mixed(self, layout: Layout, trained: Tensor, learnt: Tensor) -> Tensor:
        """φ_i ← Σ_j s_ij φ_j and h_ia ← Σ_jb c_iajb h_jb over the layers that match it, with weights that sum to 1.

        c are cosines of what was learnt. s_ij is that of the blocks; where there are task layers, the mean of it and of
        how far the tasks match.
        """
        n, places = len(trained), task_layers(layout).to(trained.device)
        spots, mixed = places.flatten(), trained.clone()
        block = torch.ones(layout.size, dtype=torch.bool, device=trained.device).index_fill(0, spots, False)
        similarity = cosines(learnt[:, block]).clamp_min(0)
        if len(places):
            matched = matches(learnt[:, spots].view(n, *places.shape), self.threshold)
            weights = torch.where(matched > 0, matched**self.power, 0).flatten(0, 1).flatten(1)
            layers = trained[:, spots].view(n * len(places), -1)
            mixed[:, spots] = (weights / weights.sum(1, keepdim=True) @ layers).view(n, -1)
            similarity = (similarity + common_tasks(matched, learnt[:, spots].view(n, *places.shape))) / 2
        weights = similarity**self.power
        mixed[:, block] = weights / weights.sum(1, keepdim=True) @ trained[:, block]
        return mixed

    def refreshed(self, reply: Message, begun: Message, now: Message, weights: Tensor) -> Message:
        """Left as it is: nobody else changes a client's θ_i, so a late reply meets the model from which it began."""
        return reply

    def solutions(self, state: FedMTLState) -> Parcels:
        """Each client's personal model, in its own order."""
        return personal_models.solutions(state)


def task_layers(layout: Layout) -> Tensor:
    """Places of the layers of each task in the flat vector, `[tasks, k]`; no tasks where the network has no such."""
    places = [torch.cat([torch.arange(layout.size)[layout.slices[name]] for name in head]) for head in layout.heads]
    sparse = {one.name for one in layout.connections}
    if len({len(place) for place in places}) > 1 or any(sparse & set(head) for head in layout.heads):
        raise UserError("fedmtl matches task layers of equal form; those of this network differ in size or connections")
    return torch.stack(places) if places else torch.empty(0, 0, dtype=torch.int64)


def beginning(setting: Setting) -> Tensor:
    """θ⁰ `[d]`, in which the layers of all tasks are those of the first: else their values would tell them apart."""
    places = task_layers(setting.layout).to(setting.initial.device)
    first = setting.initial[places[:1]].expand(len(places), -1)
    return setting.initial.index_copy(0, places.flatten(), first.flatten())


def secret_order(clients: Clients, layout: Layout) -> Tensor:
    """Task whose layers are in each place of what a client sends, `[n, tasks]`; the same in all rounds."""
    always = torch.zeros_like(clients.addresses.round)
    streams, tasks = replace(clients.addresses, round=always, lane=always), len(layout.heads)
    return streams.orders("task layers", torch.full_like(always, tasks), 1, tasks)[:, 0]


def reordered(layout: Layout, models: Tensor, order: Tensor) -> Tensor:
    """Models `[n, d]` with their task layers in another order `[n, tasks]`."""
    places = task_layers(layout).to(models.device)
    layers = models[:, places.flatten()].view(len(models), *places.shape)
    moved = layers.gather(1, order.unsqueeze(-1).expand_as(layers))
    return models.index_copy(1, places.flatten(), moved.flatten(1))


def matches(learnt: Tensor, threshold: float) -> Tensor:
    """The cosines of task layers `[n, tasks, k]` of two clients that match, `[n, tasks, n, tasks]`; 0 for others.

    Two layers match that are above the threshold, and each the most similar one of its client to the other. A layer
    matches itself.
    """
    n, tasks = learnt.shape[:2]
    alike = cosines(learnt.flatten(0, 1)).view(n, tasks, n, tasks)
    nearest = (alike == alike.amax(1, keepdim=True)) & (alike == alike.amax(3, keepdim=True)) & (alike > threshold)
    found, own = torch.where(nearest, alike, 0), torch.arange(n, device=learnt.device)
    found[own, :, own] = torch.eye(tasks).to(found)
    return found


def common_tasks(matched: Tensor, learnt: Tensor) -> Tensor:
    """Match of the tasks of two clients, `[n, n]`: the cosines of those that do, over their mean number."""
    tasks = learnt.abs().amax(2).gt(0).sum(1).clamp_min(1).to(matched)
    shared: Tensor = 2 * matched.sum((1, 3)) / (tasks[:, None] + tasks)
    return shared.fill_diagonal_(1)
