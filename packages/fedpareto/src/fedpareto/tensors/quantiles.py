"""Logarithm and normal quantile by additions, products, quotients and square roots only.

These four are rounded alike on every device, which a library's logarithm is not: so what is drawn with them has the
same bits on a CPU and on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; products of the first with whole numbers below 2²⁰ are exact."""
_TERMS = 14
"""Terms of the series of artanh: with arguments up to 0.172 the next is below 1e-17 of the sum."""

_CENTRE = (
    (
        *(3.3871328727963665, 133.14166789178438, 1971.5909503065513, 13731.69376550946),
        *(45921.95393154987, 67265.7709270087, 33430.57558358813, 2509.0809287301227),
    ),
    (
        *(1.0, 42.31333070160091, 687.1870074920579, 5394.196021424751),
        *(21213.794301586597, 39307.89580009271, 28729.085735721943, 5226.495278852854),
    ),
)
_SIDES = (
    (
        *(1.4234371107496835, 4.630337846156546, 5.769497221460691, 3.6478483247632045),
        *(1.2704582524523684, 0.2417807251774506, 0.022723844989269184, 0.0007745450142783414),
    ),
    (
        *(1.0, 2.053191626637759, 1.6763848301838038, 0.6897673349851),
        *(0.14810397642748008, 0.015198666563616457, 0.0005475938084995345, 1.0507500716444169e-09),
    ),
)
_FAR_SIDES = (
    (
        *(6.657904643501103, 5.463784911164114, 1.7848265399172913, 0.29656057182850487),
        *(0.026532189526576124, 0.0012426609473880784, 2.7115555687434876e-05, 2.0103343992922881e-07),
    ),
    (
        *(1.0, 0.599832206555888, 0.1369298809227358, 0.014875361290850615),
        *(0.0007868691311456133, 1.8463183175100548e-05, 1.421511758316446e-07, 2.0442631033899397e-15),
    ),
)


def logarithm(x: Tensor) -> Tensor:
    """ln x of positive double precision numbers, within an ulp or two."""
    mantissa, exponent = torch.frexp(x)
    small = mantissa < math.sqrt(0.5)
    mantissa, exponent = torch.where(small, mantissa * 2, mantissa), exponent.double() - small.double()
    z = (mantissa - 1) / (mantissa + 1)
    series = _polynomial([2 / (2 * k + 1) for k in range(_TERMS)], z * z) * z
    return exponent * _LN2_HIGH + (series + exponent * _LN2_LOW)


def normal_quantile(p: Tensor) -> Tensor:
    """Φ⁻¹(p) of double precision numbers between 0 and 1: algorithm AS 241, PPND16 (Wichura, 1988)."""
    q = p - 0.5
    centre = 0.180625 - q * q
    r = _root(-logarithm(torch.minimum(p, 1 - p)))
    side = torch.where(r <= 5, _ratio(_SIDES, r - 1.6), _ratio(_FAR_SIDES, r - 5))
    return torch.where(q.abs() <= 0.425, q * _ratio(_CENTRE, centre), torch.where(q < 0, -side, side))


def _root(x: Tensor) -> Tensor:
    """√x, rounded as it should be: the library behind torch on a CPU is sometimes an ulp off, NumPy's is not."""
    return torch.sqrt(x) if x.device.type != "cpu" else torch.as_tensor(np.sqrt(x.numpy()))


def _ratio(polynomials: tuple[Sequence[float], Sequence[float]], x: Tensor) -> Tensor:
    above, below = polynomials
    return _polynomial(above, x) / _polynomial(below, x)


def _polynomial(coefficients: Sequence[float], x: Tensor) -> Tensor:
    """Horner's rule, one product and one addition at a time: fused, they would be rounded otherwise."""
    value = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value
