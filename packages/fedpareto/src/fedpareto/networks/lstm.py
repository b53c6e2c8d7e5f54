"""An LSTM layer over a stack of clients, with its own gradient.

torch's own LSTM cannot be stacked. Its steps written one by one can, but then every step adds to the gradients of all
weights: 80 characters write them 80 times. Here the intermediate values are kept, and one product covers all steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def stacked_lstm(
    inputs: Tensor,
    of_input: Tensor,
    recurrent: Tensor,
    bias: Tensor,
    state: Tensor | None = None,
    cell: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs `[steps, n, b, h]` for inputs `[steps, n, b, e]`, and the cell after the last step, `[n, b, h]`.

    Weights are `[n, e, 4h]` and `[n, h, 4h]`, the bias `[n, 4h]`, with the gates in the order in, forget, cell, out.
    The state and the cell before the first step are 0 unless given, `[n, b, h]` each.
    """
    nothing = inputs.new_zeros(*inputs.shape[1:3], recurrent.shape[1])
    begin = nothing if state is None else state, nothing if cell is None else cell
    if torch.compiler.is_compiling():
        return _as_torch_has_it(inputs, of_input, recurrent, bias, *begin)
    results: tuple[Tensor, Tensor] = _StackedLSTM.apply(  # type: ignore[no-untyped-call]
        inputs, of_input, recurrent, bias, *begin, torch.is_grad_enabled()
    )
    return results


def _as_torch_has_it(
    inputs: Tensor, of_input: Tensor, recurrent: Tensor, bias: Tensor, state: Tensor, cell: Tensor
) -> tuple[Tensor, Tensor]:
    """LSTM of one client, for who writes the graph down: one operator, instead of some for each step."""
    assert inputs.shape[1] == 1, "torch's own LSTM cannot be stacked"
    weights = (of_input[0].mT, recurrent[0].mT, bias[0], torch.zeros_like(bias[0]))
    outputs, _, last = torch.lstm(inputs[:, 0], (state, cell), weights, True, 1, 0.0, False, False, False)
    return outputs.unsqueeze(1), last


class _StackedLSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        of_input: Tensor,
        recurrent: Tensor,
        bias: Tensor,
        state: Tensor,
        cell: Tensor,
        is_kept: bool,
    ) -> tuple[Tensor, Tensor]:
        steps, n, rows, _ = inputs.shape
        width = recurrent.shape[1]
        # A step's own values are at the next index.
        outputs = inputs.new_empty(steps + 1, n, rows, width)
        cells = inputs.new_empty((steps if is_kept else 1) + 1, n, rows, width)
        outputs[0], cells[0] = state, cell
        gates = inputs.new_empty(steps if is_kept else 1, n, rows, 4 * width)
        for step in range(steps):
            here, before, after = (step, step, step + 1) if is_kept else (0, step % 2, (step + 1) % 2)
            torch.baddbmm(bias.unsqueeze(1), inputs[step], of_input, out=gates[here])
            gates[here].baddbmm_(outputs[step], recurrent)
            let_in, keep, new, let_out = _activated(gates[here])
            torch.mul(keep, cells[before], out=cells[after])
            cells[after].addcmul_(let_in, new)
            torch.mul(let_out, cells[after].tanh(), out=outputs[step + 1])
        if is_kept:
            ctx.save_for_backward(inputs, of_input, recurrent, gates, cells, outputs)
        return outputs[1:], cells[steps if is_kept else steps % 2].clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, of_last: Tensor) -> tuple[Tensor | None, ...]:
        """Back through the steps; then the gradients of inputs, weights and bias from all of them at once."""
        inputs, of_input, recurrent, gates, cells, outputs = ctx.saved_tensors
        steps, n, rows, _ = inputs.shape
        of_gates = torch.empty_like(gates)
        back = recurrent.mT.contiguous()
        of_cell, of_output = of_last, torch.zeros_like(cells[0])
        for step in reversed(range(steps)):
            let_in, keep, new, let_out = gates[step].chunk(4, dim=-1)
            squashed = cells[step + 1].tanh()
            of_output = of_output + gradient[step]
            of_cell = of_cell + torch.ops.aten.tanh_backward(of_output * let_out, squashed)
            parts = (
                torch.ops.aten.sigmoid_backward(of_cell * new, let_in),
                torch.ops.aten.sigmoid_backward(of_cell * cells[step], keep),
                torch.ops.aten.tanh_backward(of_cell * let_in, new),
                torch.ops.aten.sigmoid_backward(of_output * squashed, let_out),
            )
            torch.cat(parts, dim=-1, out=of_gates[step])
            of_cell = of_cell * keep
            of_output = torch.bmm(of_gates[step], back)

        def of_all_steps(values: Tensor) -> Tensor:
            """`[steps, n, b, k]` as `[n, steps · b, k]`."""
            return values.transpose(0, 1).reshape(n, steps * rows, -1)

        together = of_all_steps(of_gates)
        of_inputs = torch.bmm(together, of_input.mT.contiguous()).view(n, steps, rows, -1).transpose(0, 1)
        return (
            of_inputs,
            torch.bmm(of_all_steps(inputs).mT, together),
            torch.bmm(of_all_steps(outputs[:-1]).mT, together),
            together.sum(1),
            of_output,
            of_cell,
            None,
        )


def _activated(gates: Tensor) -> tuple[Tensor, ...]:
    let_in, keep, new, let_out = gates.chunk(4, dim=-1)
    for gate in (let_in, keep, let_out):
        gate.sigmoid_()
    return let_in, keep, new.tanh_(), let_out
