"""Common parts of AFL and AgnosticFair: a model for the worst mixture of clients, found by alternating steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.algorithm import Setting, State
from fedpareto.contract.messages import Replies
from fedpareto.moo.min_norm import Array, project_to_simplex


@dataclass(frozen=True)
class MixtureState(State):
    """The global model, and the mixture of clients that it is trained for."""

    model: Tensor = torch.empty(0)
    """w, `[d]`."""
    weights: tuple[float, ...] = ()
    """λ on the simplex, in the order of `setting.clients`."""
    losses: Tensor = torch.empty(0)
    """The loss that each client reported last, where rounds do not wait, `[n]`; NaN before."""


M = TypeVar("M", bound=MixtureState)


def unheard(setting: Setting) -> Tensor:
    """The losses before anybody has reported one; nothing, where rounds wait for all."""
    return torch.full((0 if setting.waits else len(setting.clients),), math.nan, dtype=torch.float64)


def stepped(state: M, replies: Replies, name: str, rate: float) -> M:
    """w ← Σ_k λ_k w_k, and λ ← Π(λ + γ F(w)) with the losses of the w that was sent, in replies under `name`."""
    weights, places = np.array(state.weights), state.setting.rows(replies.clients)
    shares = torch.as_tensor(_shares(weights, places, state.setting.waits)).to(state.model)
    model = replies.sum("model", shares)
    if not state.setting.waits and len(places) < len(weights):
        model = model + (1 - shares.sum()) * state.model
    reported, known = replies[name].double().cpu().numpy(), state.losses
    if state.setting.waits:
        weights[places] += rate * reported
    else:
        known = state.losses.clone()
        known[torch.as_tensor(places, device=known.device)] = torch.as_tensor(reported, device=known.device)
        weights += rate * (len(places) / len(weights)) * known.nan_to_num(float(known.nanmean())).cpu().numpy()
    return replace(state, model=model, weights=tuple(project_to_simplex(weights).tolist()), losses=known)


def _shares(weights: Array, places: Array, waits: bool) -> Array:
    """Weights of the models of those who replied, `[k]`: λ_k of their sum.

    Where a round does not wait for all, those who have less than an even share of λ count less, and w moves less: of a
    single reply λ would have no say otherwise.
    """
    total = weights[places].sum()
    if not waits and len(places) < len(weights):
        total = max(total, len(places) / len(weights))
    return np.asarray(weights[places] / total if total > 0 else np.full(len(places), 1 / len(places)))
