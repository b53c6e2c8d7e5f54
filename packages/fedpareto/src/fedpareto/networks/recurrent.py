"""Recurrent layers, step by step over a stack of clients: torch's own cannot be stacked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.config.errors import UserError
from fedpareto.networks.lstm import stacked_lstm
from fedpareto.tensors.training import Current, Now

Weights = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weights of the inputs `[g, e]`, of the state `[g, h]`, and a bias for each, `[g]`; g is h for each gate."""


def recurrent(layer: Any, name: str, current: Current, rows: Any, hx: Any = None) -> tuple[Tensor, Any]:
    """The outputs of torch's nn.RNN, nn.LSTM or nn.GRU, and its state after the last step."""
    if not isinstance(rows, Tensor) or rows.dim() != 3:
        raise UserError(f"the layer '{name}' is stacked for minibatches of equal length, [rows, steps, numbers]")
    if layer.proj_size:
        raise UserError(f"the layer '{name}' has a proj_size, which is not stacked; take a linear layer after it")
    now, values = current.now, rows if layer.batch_first else rows.transpose(0, 1)
    values = values.to(layer.weight_ih_l0.dtype)  # Where precision is mixed, layers before it may give a lower one.
    directions = 2 if layer.bidirectional else 1
    starts = _starts(layer, values, hx)
    ends = []
    for i in range(layer.num_layers):
        if i:
            values = now.dropped(f"{name} {i}", values, layer.dropout)
        outputs = []
        for direction in range(directions):
            here = values.flip(1) if direction else values
            before = [state[i * directions + direction] for state in starts]
            after, *end = _through(layer, now, here, before, _weights(layer, i, direction))
            outputs.append(after.flip(1) if direction else after)
            ends.append(end)
        values = torch.cat(outputs, dim=-1)
    states = tuple(torch.stack(parts) for parts in zip(*ends, strict=True))
    return values if layer.batch_first else values.transpose(0, 1), states if len(states) > 1 else states[0]


def _starts(layer: Any, values: Tensor, hx: Any) -> tuple[Tensor, ...]:
    """The states before the first step, `[layers · directions, b, h]` each: an LSTM has two, others one."""
    given = () if hx is None else hx if isinstance(hx, tuple) else (hx,)
    if given:
        return given
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    nothing = values.new_zeros(count, values.shape[0], layer.hidden_size)
    return (nothing, nothing) if isinstance(layer, nn.LSTM) else (nothing,)


def _weights(layer: Any, number: int, direction: int) -> Weights:
    suffix = f"l{number}{'_reverse' if direction else ''}"
    of_input, of_state = getattr(layer, f"weight_ih_{suffix}"), getattr(layer, f"weight_hh_{suffix}")
    if not layer.bias:
        nothing = of_input.new_zeros(len(of_input))
        return of_input, of_state, nothing, nothing
    return of_input, of_state, getattr(layer, f"bias_ih_{suffix}"), getattr(layer, f"bias_hh_{suffix}")


def _through(layer: Any, now: Now, values: Tensor, before: list[Tensor], weights: Weights) -> tuple[Tensor, ...]:
    """Outputs `[b, steps, h]` of inputs `[b, steps, e]` through one layer in one direction, and its last state."""
    if isinstance(layer, nn.LSTM):
        lstm: tuple[Tensor, ...] = now.call(_lstm, values, *before, *weights)
        return lstm
    kernel = _gru if isinstance(layer, nn.GRU) else _relu if layer.nonlinearity == "relu" else _tanh
    outputs: Tensor = now.call(kernel, values, *before, *weights)
    return outputs, outputs[:, -1]


# -- kernels of a stack, `[n, b, steps, e]` ------------------------------------------------------------------------


def _lstm(values: Tensor, state: Tensor, cell: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    of_input, of_state, bias, more = weights
    steps_first = values.permute(2, 0, 1, 3)
    outputs, last = stacked_lstm(
        steps_first, of_input.mT.contiguous(), of_state.mT.contiguous(), bias + more, state, cell
    )
    return outputs.permute(1, 2, 0, 3), outputs[-1], last


def _tanh(*tensors: Tensor) -> Tensor:
    return _elman(torch.tanh, *tensors)


def _relu(*tensors: Tensor) -> Tensor:
    return _elman(torch.relu, *tensors)


def _elman(squash: Any, values: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    """h ← σ(W x + b + U h + c)."""
    of_input, of_state, bias, more = weights
    of_values = values @ of_input.mT.unsqueeze(1) + (bias + more)[:, None, None]
    outputs = []
    for here in of_values.unbind(2):
        state = squash(torch.baddbmm(here, state, of_state.mT))
        outputs.append(state)
    return torch.stack(outputs, dim=2)


def _gru(values: Tensor, state: Tensor, *weights: Tensor) -> Tensor:
    """Gates in the order reset, update, new (Cho et al., 2014, with torch's place of the reset gate)."""
    of_input, of_state, bias, more = weights
    of_values = values @ of_input.mT.unsqueeze(1) + bias[:, None, None]
    outputs = []
    for here in of_values.unbind(2):
        reset, update, new = here.chunk(3, dim=-1)
        of_reset, of_update, of_new = torch.baddbmm(more.unsqueeze(1), state, of_state.mT).chunk(3, dim=-1)
        kept = torch.sigmoid(update + of_update)
        fresh = torch.tanh(new + torch.sigmoid(reset + of_reset) * of_new)
        state = torch.lerp(fresh, state, kept)
        outputs.append(state)
    return torch.stack(outputs, dim=2)
