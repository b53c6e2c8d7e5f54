"""Common parts of algorithms with a few models for many clients: how they start, and which client uses which."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedpareto.contract.algorithm import Setting, State, to_everyone, to_participants
from fedpareto.contract.clients import Clients
from fedpareto.contract.messages import Parcels, Replies, Tasks
from fedpareto.tensors import rng

SPREAD = 0.1
"""Standard deviation of the initial models where the problem's own has no randomness."""


@dataclass(frozen=True)
class FewState(State):
    """The server's models."""

    models: Tensor = torch.empty(0)
    """θ_1 … θ_K, `[K, d]`."""


def distinct_start(setting: Setting, count: int) -> Tensor:
    """The initial model and others like it, `[count, d]`.

    The server knows one draw of the initialisation, not its distribution: it shuffles the entries of each tensor,
    which is as good as another draw where these are identically distributed. A model that shuffling cannot change gets
    a little noise.
    """
    others = [_redrawn(setting, number) for number in range(1, count)]
    return torch.stack([setting.initial, *others])


def same_start(setting: Setting, count: int) -> Tensor:
    """Copies of the initial model, `[count, d]`."""
    return setting.initial.expand(count, -1).clone()


def tasks(state: FewState) -> list[Tasks]:
    """Every participant gets all the models."""
    return to_participants(state, models=state.models)


def solutions(state: FewState) -> Parcels:
    """All the models for every client."""
    return to_everyone(state, models=state.models)


def means(models: Tensor, replies: Replies, of: Tensor, weighting: str) -> Tensor:
    """Each of `models` `[K, d]` as the mean of the replies that belong to it, by their rows or equally.

    `of` `[n]` says to which one each reply belongs; a model without any stays as it is.
    """
    weights = replies["size"] if weighting == "size" else models.new_ones(len(replies))
    weights = weights * (of == torch.arange(len(models), device=of.device)[:, None])
    total = weights.sum(dim=1, keepdim=True)
    found = replies.sum("model", weights / total.where(total > 0, 1))
    return torch.where(total > 0, found, models)


def losses(clients: Clients, models: Tensor) -> Tensor:
    """L_ik `[n, K]`: each client's own objective of each of `models` `[n, K, d]` on all its training rows."""
    return torch.stack([clients.loss(model) for model in models.unbind(dim=1)], dim=1)


def chosen(models: Tensor, choice: Tensor) -> Tensor:
    """The models `[n, d]` of `models` `[n, K, d]` that have the numbers `choice` `[n]`."""
    return models[torch.arange(len(models), device=models.device), choice]


def learn_each(clients: Clients, models: Tensor) -> Tensor:
    """Local training of each of `models` `[n, K, d]`, with minibatches of its own."""
    trained = [_with_lane(clients, lane).learn(model) for lane, model in enumerate(models.unbind(dim=1))]
    return torch.stack(trained, dim=1)


def learn_each_watched(clients: Clients, models: Tensor) -> tuple[Tensor, Tensor]:
    """Train as `learn_each`, and give the mean loss over the last epoch of each too, `[n, K]`, as the model changed."""
    both = [_with_lane(clients, lane).learn_watched(model) for lane, model in enumerate(models.unbind(dim=1))]
    trained, losses = zip(*both, strict=True)
    return torch.stack(trained, dim=1), torch.stack(losses, dim=1)


def _redrawn(setting: Setting, number: int) -> Tensor:
    address = rng.Address(setting.seed, lane=number)
    stream = rng.torch_generator(address, "another initial model")
    initial = setting.initial.cpu()
    layout = setting.layout
    parts = {name: initial[place] for name, place in layout.slices.items()}
    # Statistics of rows and constants are no draw of anything.
    weights = {name: _shuffled(part, stream) for name, part in parts.items() if name not in layout.buffers}
    model = torch.cat([*(parts | weights).values()])
    if torch.equal(model, initial):
        noise = SPREAD * torch.randn(model.shape, generator=stream, dtype=torch.float64).to(model)
        model = torch.where(layout.marked(layout.buffers), model, model + noise)
    return model.to(setting.initial)


def _shuffled(entries: Tensor, stream: torch.Generator) -> Tensor:
    return entries[torch.randperm(len(entries), generator=stream)]


def _with_lane(clients: Clients, lane: int) -> Clients:
    return replace(clients, addresses=clients.addresses.with_lane(lane))
