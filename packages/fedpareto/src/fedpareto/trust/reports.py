"""The objectives that clients report: measurements for the experimenter, and something about their rows.

A client's rows may move each of them over its whole range, so noise that hides a client is as large as that. It is
counted in ε like any other; see contract.privacy.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedpareto.contract.privacy import Privacy
from fedpareto.contract.problem import Objective
from fedpareto.tensors.rng import Addresses
from fedpareto.trust.hiding import bounded, draws, ranges_of

PURPOSE = "reported objectives"
"""The name of the random streams that noise is drawn from."""


def reported(privacy: Privacy, values: Tensor, objectives: Sequence[Objective], addresses: Addresses) -> Tensor | None:
    """Objectives that clients say their models have, `[n, parts, m]`; None if they say nothing.

    With `randomness=seed` the noise follows from the values: who is asked again says the same again.
    """
    if privacy.objectives == "withheld":
        return None
    if privacy.objectives == "rounded":
        return values.round(decimals=privacy.objectives_digits)
    if privacy.objectives == "exact":
        return values
    low, high = (bound.to(values) for bound in ranges_of(objectives))
    rows = values.double().cpu().contiguous().numpy()
    asked = torch.as_tensor(np.array([zlib.crc32(row.tobytes()) for row in rows], dtype=np.int64))
    addressed = replace(addresses, round=asked.to(addresses.round.device))
    count = values[0].numel()
    drawn = draws(privacy, addressed)(PURPOSE, count, values).view_as(values)
    noise = privacy.objectives_noise * math.sqrt(count) * (high - low) * drawn
    return bounded(bounded(values, low, high) + noise, low, high)
