"""Clients that have only some of the objectives, their tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedpareto.config.errors import UnknownName, UserError


def dealt(subsets: Sequence[str], names: Sequence[str], clients: int, what: str) -> np.ndarray:
    """Objectives `names` that each client has, booleans `[n, m]`; `what` begins a complaint.

    A subset is text such as "accuracy+demographic-parity". They are dealt to clients in turn; with commas, one text
    holds several of them, as on a command line. Without any, everybody has all objectives.
    """
    parts = [[name.strip() for name in one.split("+")] for text in subsets for one in text.split(",")]
    has = np.ones((clients, len(names)), dtype=bool)
    for number, own in enumerate(parts):
        if own == [""]:
            raise UserError(f"{what}: the set at place {number + 1} is empty; name an objective, such as '{names[0]}'")
        unknown = [name for name in own if name not in names]
        if unknown:
            raise UnknownName("objective", unknown[0], names)
        has[number :: len(parts)] = np.isin(names, own)
    nobodys = np.flatnonzero(~has.any(axis=0))
    if len(nobodys):
        more = f", or take {len(parts)} clients" if clients < len(parts) else ""
        raise UserError(f"{what}: nobody has the objective '{names[nobodys[0]]}'; add it to one of the sets{more}")
    return has
