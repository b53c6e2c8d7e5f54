"""What became of each client in each round of one seed: asked, heard, refused, left out; and its bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpareto.record.entries import Event, Line
from fedpareto.record.run_record import Record
from fedpareto_page.frames import frame

NOT_ASKED, REPLIED, NO_REPLY, REFUSED, LEFT_OUT, SHORTENED = range(6)
MEANING = {"0": "not asked", "1": "replied", "2": "no reply", "3": "refused", "4": "left out", "5": "shortened"}
MOST_CELLS = 200_000
"""Of one answer: above, rounds are left out."""
DOWN, UP = 0, 1
NEVER_CAME = ("dropped out", "said nothing", "answered after")
"""How reasons begin that tell of no reply, or of one that came too late."""


def grid(record: Record, seed: int, quorum: Any) -> bytes:
    """A frame. `quorum`: as the spec has it."""
    lines = [line for line in record.of_seed(seed) if line.columns.block(line.row, "traffic") is not None]
    thinned = math.ceil(len(lines) * record.clients / MOST_CELLS) if lines else 1
    lines = lines[::thinned] if thinned > 1 else lines
    state, traffic = states(lines, [event for event in record.events if event.seed == seed], record.clients)
    place = record.seeds.index(seed)
    head = {
        "rounds": [line.round + 1 for line in lines],
        "clients": list(range(record.clients)),
        "meaning": MEANING,
        "attackers": list(record.attackers[place]) if place < len(record.attackers) else [],
        "quorum": _needed(quorum, record.clients),
        "thinned": thinned if thinned > 1 else 0,
    }
    up, down = (traffic[:, way].astype(np.float32) for way in (UP, DOWN))
    return frame(head, {"state": state, "up": up, "down": down})


def states(lines: Sequence[Line], events: Sequence[Event], clients: int) -> tuple[np.ndarray, np.ndarray]:
    """`[k, n]`, what became of each client, and `[k, 2, n]`, the bytes of its tasks and replies.

    The line of a round tells what the round after it did, by whose number events call it.
    """
    if not lines:
        return np.zeros((0, clients), dtype=np.uint8), np.zeros((0, 2, clients))
    traffic = np.nan_to_num(lines[0].columns.stacked([line.row for line in lines], "traffic"))
    found = np.where(traffic[:, DOWN] > 0, NO_REPLY, NOT_ASKED).astype(np.uint8)
    found[traffic[:, UP] > 0] = REPLIED
    rows = {line.round + 1: k for k, line in enumerate(lines)}
    for event in events:
        k = rows.get(event.round)
        if k is not None and 0 <= event.client < clients:
            is_refused = not event.reason.startswith(NEVER_CAME) and (
                "refused" in event.reason or traffic[k, UP, event.client] > 0
            )
            found[k, event.client] = REFUSED if is_refused else NO_REPLY
    for k, line in enumerate(lines):
        for name, state in (("left_out", LEFT_OUT), ("shortened", SHORTENED)):
            who = line.columns.described(line.row, name)
            if who is not None and len(who):
                found[k, np.asarray(who, dtype=np.int64)] = state
    return found, traffic


def _needed(quorum: Any, clients: int) -> int | None:
    """Replies without which a round does not end, if all clients are asked; None where one is enough."""
    if not isinstance(quorum, int | float) or not quorum:
        return None
    return max(1, math.ceil(quorum * clients) if quorum < 1 else min(round(quorum), clients))
