"""Both passes of small MLPs as machine code, client by client: what one client's layers need stays in a core's cache.

Imports numba. The first call in a process reads the code from a cache on disk, or takes seconds to make it. Matrices
are flat here: NumPy's product is given their shapes, and the other loops run along rows that the compiler can see to
be contiguous. A client's model is the weight `[in, out]` and the bias `[out]` of each layer in turn.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from fedpareto.tensors.jit import compiled

NAMES = {types.float32: "sgemm", types.float64: "dgemm"}
for name in NAMES.values():  # By name, so that code which was kept on disk finds it in another process.
    llvmlite.binding.add_symbol(f"fedpareto_{name}", get_cython_function_address("scipy.linalg.cython_blas", name))


# SciPy's BLAS, called by its address: NumPy's product, which numba knows too, can neither add to what is there nor be
# told shapes without making views.
def _multiply(typing: Any, turned: Any, m: Any, n: Any, k: Any, alpha: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """C ← alpha·A·B + beta·C for A `[m, k]`, B `[k, n]` and C `[m, n]`, each flat and row by row; where it is `turned`,
    Aᵀ `[k, m]` is given instead of A.
    """
    real, whole = c.dtype, types.int64
    signature = types.void(types.boolean, whole, whole, whole, real, a, b, real, c)

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        turned, m, n, k, alpha, left, right, beta, to = given
        as_given, transposed = (ir.Constant(ir.IntType(8), ord(letter)) for letter in "NT")
        rows, columns, inner = (builder.trunc(size, ir.IntType(32)) for size in (m, n, k))
        of_left, stride = builder.select(turned, transposed, as_given), builder.select(turned, rows, inner)

        def data(number: int, array: Any) -> Any:
            return context.make_array(signature.args[number])(context, builder, array).data

        # BLAS goes column by column: Cᵀ = Bᵀ·Aᵀ.
        arguments = [as_given, of_left, columns, rows, inner, alpha, data(6, right), columns]
        arguments += [data(5, left), stride, beta, data(8, to), columns]
        pointers = [
            builder.bitcast(
                one if isinstance(one.type, ir.PointerType) else cgutils.alloca_once_value(builder, one),
                cgutils.voidptr_t,
            )
            for one in arguments
        ]
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t] * len(pointers))
        function = cgutils.get_or_insert_function(builder.module, kind, f"fedpareto_{NAMES[real]}")
        builder.call(function, pointers)
        return context.get_dummy_value()

    return signature, generate


multiply: Any = intrinsic(_multiply)


@compiled
def forward(
    models: np.ndarray,
    widths: np.ndarray,
    relus: np.ndarray,
    inputs: np.ndarray,
    hidden: np.ndarray,
    outputs: np.ndarray,
) -> None:
    """Writes the outputs `[n, b · out]` of models `[n, d]` for inputs `[n, b · in]`, and those of all other layers, one
    layer after the other, into `hidden` `[n, ·]`; `relus` says behind which layers a ReLU is.
    """
    rows, last = inputs.shape[1] // widths[0], len(relus) - 1
    for client in range(len(models)):
        model, values, kept = models[client], inputs[client], hidden[client]
        at, place = 0, 0
        for layer in range(last + 1):
            fan_in, fan_out = widths[layer], widths[layer + 1]
            middle, end = at + fan_in * fan_out, at + (fan_in + 1) * fan_out
            weight, bias = model[at:middle], model[middle:end]
            at = end
            if layer == last:
                to = outputs[client]
            else:
                to = kept[place : place + rows * fan_out]
                place += rows * fan_out
            _layer(values, weight, bias, relus[layer], to)
            values = to


@compiled
def descend(
    models: np.ndarray,
    widths: np.ndarray,
    relus: np.ndarray,
    inputs: np.ndarray,
    hidden: np.ndarray,
    slopes: np.ndarray,
    spaces: np.ndarray,
    ones: np.ndarray,
    kept: float,
    lr: float,
    added: np.ndarray,
) -> None:
    """w ← kept·w − lr·∂, given the gradient `slopes` `[n, b · out]` of the outputs of the last forward pass, and what
    else is to be `added`, `[n, d]` or `[0, d]`; `spaces` `[3, ·]` is memory for one client, and `ones` are `[b]`.
    """
    rows, turned = len(ones), spaces[2]
    for client in range(len(models)):
        model, gradient, seen = models[client], slopes[client], hidden[client]
        at, place = len(model), hidden.shape[1]
        for layer in range(len(relus) - 1, -1, -1):
            fan_in, fan_out = widths[layer], widths[layer + 1]
            at -= (fan_in + 1) * fan_out
            middle, end = at + fan_in * fan_out, at + (fan_in + 1) * fan_out
            weight, bias = model[at:middle], model[middle:end]
            to = spaces[layer % 2][: rows * fan_in]
            if layer:
                values = seen[place - rows * fan_in : place]
                place -= rows * fan_in
                _to_inputs(gradient, weight, fan_in, turned, to)
                if relus[layer - 1]:
                    _mask(to, values)
            else:
                values = inputs[client]
            _step(weight, values, gradient, kept, lr, turned[:fan_in])
            _step(bias, ones, gradient, kept, lr, turned[:1])
            gradient = to
        if len(added):
            _add(model, added[client])


@compiled
def _layer(inputs: np.ndarray, weight: np.ndarray, bias: np.ndarray, relu: bool, to: np.ndarray) -> None:
    fan_out, rows = len(bias), len(to) // len(bias)
    fan_in, zero, one = len(weight) // fan_out, to.dtype.type(0), to.dtype.type(1)
    if fan_out == 1:
        for i in range(rows):
            row, total = inputs[i * fan_in : (i + 1) * fan_in], bias[0]
            for j in range(fan_in):
                total += row[j] * weight[j]
            to[i] = zero if relu and total < zero else total
    else:
        multiply(False, rows, fan_out, fan_in, one, inputs, weight, zero, to)
        _add_bias(to, bias, relu)


@compiled
def _add_bias(to: np.ndarray, bias: np.ndarray, relu: bool) -> None:
    fan_out, zero = len(bias), to.dtype.type(0)
    for i in range(len(to) // fan_out):
        row = to[i * fan_out : (i + 1) * fan_out]
        if relu:
            for j in range(fan_out):
                value = row[j] + bias[j]
                row[j] = zero if value < zero else value
        else:
            for j in range(fan_out):
                row[j] += bias[j]


@compiled
def _to_inputs(gradient: np.ndarray, weight: np.ndarray, fan_in: int, turned: np.ndarray, to: np.ndarray) -> None:
    """g·Wᵀ. A product with a transposed view takes longer than the copy."""
    fan_out, rows = len(weight) // fan_in, len(to) // fan_in
    if fan_out == 1:
        for i in range(rows):
            row, factor = to[i * fan_in : (i + 1) * fan_in], gradient[i]
            for j in range(fan_in):
                row[j] = factor * weight[j]
    else:
        for i in range(fan_in):
            row = weight[i * fan_out : (i + 1) * fan_out]
            for j in range(fan_out):
                turned[j * fan_in + i] = row[j]
        multiply(False, rows, fan_in, fan_out, to.dtype.type(1), gradient, turned, to.dtype.type(0), to)


@compiled
def _step(
    weight: np.ndarray, inputs: np.ndarray, gradient: np.ndarray, kept: float, lr: float, sums: np.ndarray
) -> None:
    fan_in = len(sums)
    fan_out, rows = len(weight) // fan_in, len(inputs) // fan_in
    if fan_out > 1:
        multiply(True, fan_in, fan_out, rows, -lr, inputs, gradient, kept, weight)
        return
    sums[:] = sums.dtype.type(0)
    for i in range(rows):
        row, factor = inputs[i * fan_in : (i + 1) * fan_in], gradient[i]
        for j in range(fan_in):
            sums[j] += factor * row[j]
    for j in range(fan_in):
        weight[j] = kept * weight[j] - lr * sums[j]


@compiled
def _mask(gradient: np.ndarray, outputs: np.ndarray) -> None:
    """A gradient behind a ReLU, given the ReLU's output, becomes the one before it."""
    zero = gradient.dtype.type(0)
    for i in range(len(gradient)):
        value = gradient[i]  # Read in any case, so that the loop has no branch.
        gradient[i] = value if outputs[i] > zero else zero


@compiled
def _add(tensor: np.ndarray, other: np.ndarray) -> None:
    for i in range(len(tensor)):
        tensor[i] += other[i]
