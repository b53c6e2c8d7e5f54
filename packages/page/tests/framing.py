"""Frames read back, as the page's script does."""

from __future__ import annotations

import json

import numpy as np

from fedpareto_page.frames import STEP, TYPES


def unframe(content):
    """The head and the columns of a frame."""
    at = 4 + int.from_bytes(content[:4], "little")
    head = json.loads(content[4:at])
    columns = {}
    for entry in head.pop("columns"):
        kind, shape = np.dtype(TYPES[entry["type"]]), tuple(entry["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        columns[entry["name"]] = np.frombuffer(content, kind, count, at).reshape(shape)
        at += count * kind.itemsize
        at += -at % STEP
    assert at == len(content)
    return head, columns
