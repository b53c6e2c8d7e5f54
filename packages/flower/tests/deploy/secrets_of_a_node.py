"""What must not leave a node, in every form in which it might travel."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np

PRECISIONS = ("<f2", "<f4", "<f8", ">f4", ">f8")


def forms(numbers):
    """Numbers as bytes of several precisions and orders, as hexadecimal digits and in base64."""
    for precision in PRECISIONS:
        raw = np.asarray(numbers, precision).tobytes()
        yield from (raw, raw.hex().encode(), base64.b64encode(raw)[:-4])


def texts(numbers):
    """Numbers as people and JSON write them: a few digits would be found anywhere by chance."""
    return [f"{number:.{digits}f}".encode() for number in numbers for digits in (6, 8)]


def secrets(node, table: Path, preference):
    """By kind: a node's preference, rows, labels, and what its table is called."""
    yield from (("preference", form) for form in [*forms(preference), *texts(preference)])
    yield from (("file", str(part).encode()) for part in (table, table.name, table.parent))
    for line in table.read_bytes().splitlines()[1:]:
        yield "row", line
        yield "row", line.split(b",")[3]  # The score, with nine digits.
    for rows in node.federations[0].splits.values():
        for row in rows.columns["features"].numpy():
            yield from (("row", form) for form in forms(row.ravel()))
        yield from (("label", form) for form in forms(rows.columns["label"].numpy().ravel()))


def found(things, node, table, preference):
    """The kinds of secrets that some bytes hold."""
    return {kind for kind, secret in secrets(node, table, preference) if secret in things}
