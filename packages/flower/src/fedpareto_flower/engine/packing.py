"""Small tensors travel in the record of their message's header.

Flower sends every object of a message by a request of its own, and a tensor is two objects, in a third one: a message
with a few small tensors is sent and fetched in three requests instead of ten, each of which takes 7 ms of the
processor. A large tensor stays an object: the SuperLink keeps it once for all nodes that get it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedpareto_flower.engine.wire import (
    DTYPES,
    HEADER,
    LARGEST_NUMBER,
    LONGEST_HEADER,
    LONGEST_NAME,
    MOST_DIMENSIONS,
    STYPE,
    TENSORS,
    Malformed,
    printable,
)

SMALL = 2**14
"""Bytes of the largest tensor that travels with the header."""
MOST = 256
"""Number of tensors that travel with it: 4 MB, and a description of a few pages."""
LONGEST_PATH = 2 * LONGEST_NAME
"""Letters of a tensor's name with its place in the message."""
PLACES, BYTES = "places", "bytes"
"""Keys in the header's record: what the small tensors are, as JSON, and their bytes, one after the other."""


def packed(content: RecordDict) -> RecordDict:
    """The content as it is sent."""
    arrays, header = content.array_records.get(TENSORS), content.config_records.get(HEADER)
    if arrays is None or header is None:
        return content
    small = dict(islice(((path, array) for path, array in arrays.items() if len(array.data) <= SMALL), MOST))
    if not small:
        return content
    places = [[path, array.dtype, list(array.shape)] for path, array in small.items()]
    text, data = json.dumps(places, separators=(",", ":")), b"".join(one.data for one in small.values())
    large = {path: array for path, array in arrays.items() if path not in small}
    return _content({**header, PLACES: text, BYTES: data}, large)


def unpacked(content: RecordDict) -> RecordDict:
    """The content as it was before `packed`, or Malformed.

    Nothing is made that is larger than what came: a tensor is a piece of the bytes, and all of them are taken once.
    """
    header = content.config_records.get(HEADER)
    if header is None or not {PLACES, BYTES} & header.keys():
        return content
    arrays, data = _large(content), header.get(BYTES)
    if not isinstance(data, bytes):
        raise Malformed("its small tensors have no bytes")
    begin = 0
    for path, dtype, shape in _places(header.get(PLACES)):
        end = begin + math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
        if path in arrays:
            raise Malformed(f"it holds the tensor '{printable(path)}' twice")
        if end > len(data):
            left = len(data) - begin
            raise Malformed(f"its small tensor '{printable(path)}' announces the shape {shape} and holds {left} bytes")
        arrays[path] = Array(dtype, tuple(shape), STYPE, data[begin:end])
        begin = end
    if begin < len(data):
        raise Malformed(f"it holds {len(data) - begin} bytes that belong to no small tensor")
    return _content({name: value for name, value in header.items() if name not in (PLACES, BYTES)}, arrays)


def _content(header: Mapping[str, Any], arrays: dict[str, Array]) -> RecordDict:
    records: dict[str, Any] = {HEADER: ConfigRecord(dict(header))}
    return RecordDict(records | ({TENSORS: ArrayRecord(arrays)} if arrays else {}))


def _large(content: RecordDict) -> dict[str, Array]:
    """The tensors that travel as objects of their own."""
    if not set(content) <= {HEADER, TENSORS}:
        raise Malformed("it holds records that the protocol does not know")
    if TENSORS not in content:
        return {}
    if TENSORS not in content.array_records:
        raise Malformed("its tensors are not an array record")
    return dict(content.array_records[TENSORS].items())


def _places(text: object) -> Iterator[tuple[str, str, list[int]]]:
    """Path, type and shape of each small tensor, checked one by one."""
    if not isinstance(text, str) or len(text) > LONGEST_HEADER:
        raise Malformed("its small tensors are not described, or at too great length")
    try:
        places = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("what describes its small tensors is not JSON") from None
    if not isinstance(places, list) or len(places) > MOST:
        raise Malformed(f"what describes its small tensors is not a list of at most {MOST}")
    return map(_place, places)


def _place(place: object) -> tuple[str, str, list[int]]:
    match place:
        case [str(path), str(dtype), list(shape)] if len(path) <= LONGEST_PATH:
            if dtype not in DTYPES:
                raise Malformed(f"its small tensor '{printable(path)}' is not of a known type")
            if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and 0 <= n <= LARGEST_NUMBER for n in shape):
                raise Malformed(f"its small tensor '{printable(path)}' has an impossible shape")
            return path, dtype, shape
    raise Malformed("a small tensor is not described by its name, type and shape")
