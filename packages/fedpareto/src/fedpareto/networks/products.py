"""Products of matrices within compiled functions: SciPy's BLAS, called by its address.

NumPy's product, which numba knows too, can neither add to what is there nor be told shapes without making views.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

NAMES = {types.float32: "sgemm", types.float64: "dgemm"}
for name in NAMES.values():  # By name, so that code which was kept on disk finds it in another process.
    llvmlite.binding.add_symbol(f"fedpareto_{name}", get_cython_function_address("scipy.linalg.cython_blas", name))


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
