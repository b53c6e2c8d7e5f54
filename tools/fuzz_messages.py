"""What nodes and servers of a federation send each other, and the private state of a node."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from fuzz_mutations import of_bytes, of_plain
from fuzz_readers import Reader, file_reader

from fedpareto.config.errors import UserError
from fedpareto.contract.messages import Failure
from fedpareto.engines.single import Reply, Task
from fedpareto_flower.engine import packing, wire
from fedpareto_flower.engine.private import Moment, PrivateStore
from fedpareto_flower.engine.wire import Answer, Envelope, Hello, Job, Result

DECODE = {"envelope": wire.decode_envelope, "answer": wire.decode_answer, "hello": wire.decode_hello}


def readers(folder: Path) -> list[Reader]:
    """See `fuzz_readers.prepare`."""
    model = torch.linspace(0, 1, 10)
    contents = _contents(model)
    alone = tuple(_described(kind, content) for kind, content in contents.items())
    together = tuple(_described(kind, packing.packed(contents[kind])) for kind in ("envelope", "answer"))
    store = PrivateStore(folder / "private")
    store.keep(0, 0, Moment(1, 0), {"model": model, "momentum": model})
    (path,) = (folder / "private").glob("*.safetensors")
    refusals = UserError, wire.Malformed
    return [
        Reader("wire messages", alone, _mutated, _decoded, refusals),
        Reader("wire messages with small tensors in their header", together, _mutated, _decoded, refusals),
        file_reader(path, "private state", of_bytes, lambda: store.before(0, 0, Moment(2, 0))),
    ]


def _contents(model: torch.Tensor) -> dict[str, RecordDict]:
    task = Task(1, 2, {"model": model}, "train", lane=0)
    reply, failure = Reply(1, 2, {"model": model}, "train", 0), Failure(1, 2, "no", "train", 0)
    return {
        "envelope": wire.encode_envelope(Envelope("f", 1, "n", (Job(0, 2, 0, (task,), {"model": model}, True),))),
        "answer": wire.encode_answer(Answer("f", 1, "n", (Result(0, (reply,), (failure,), torch.ones(2, 2), None),))),
        "hello": wire.encode_hello(Hello("f", 1, "n", ("train",), {"schema": "x"})),
    }


def _described(kind: str, content: RecordDict) -> bytes:
    """A message as JSON, whose parts can be changed."""
    arrays, record = content.array_records.get(wire.TENSORS, {}), content.config_records[wire.HEADER]
    plain: dict[str, Any] = {
        "kind": kind,
        "header": json.loads(str(record[wire.HEADER])),
        "arrays": {name: [one.dtype, list(one.shape), one.stype, one.data.hex()] for name, one in arrays.items()},
    }
    if packing.PLACES in record:
        data = record[packing.BYTES]
        assert isinstance(data, bytes)
        plain |= {"places": json.loads(str(record[packing.PLACES])), "bytes": data.hex()}
    return json.dumps(plain).encode()


def _mutated(draw: random.Random, content: bytes) -> bytes:
    """A message, a part of which is not what it was."""
    plain = json.loads(content)
    part = draw.choice(("header", "places", "places", "bytes") if "places" in plain else ("header", "header", "arrays"))
    if part == "bytes":
        changed: Any = of_bytes(draw, bytes.fromhex(plain[part])).hex()
    elif part != "arrays" and draw.random() < 0.3:
        changed = of_bytes(draw, json.dumps(plain[part]).encode()).decode("latin-1")
    else:
        changed = of_plain(draw, plain[part])
    return json.dumps(plain | {part: changed}).encode()


def _decoded(content: bytes) -> object:
    try:
        message, kind = _message(content)
    except (TypeError, ValueError):
        return None  # Flower has no such message.
    return DECODE[kind](packing.unpacked(message))


def _message(content: bytes) -> tuple[RecordDict, str]:
    """The Flower message that a mutated description means, as Flower's own decoder would make it."""
    plain = json.loads(content)
    entries: dict[str, Any] = {wire.HEADER: _text(plain["header"])}
    if "places" in plain:
        entries |= {packing.PLACES: _text(plain["places"]), packing.BYTES: bytes.fromhex(plain["bytes"])}
    records: dict[str, Any] = {wire.HEADER: ConfigRecord(entries)}
    arrays = plain["arrays"] if isinstance(plain["arrays"], dict) else {}
    if arrays:
        records[wire.TENSORS] = ArrayRecord({name: _array(one) for name, one in arrays.items()})
    return RecordDict(records), str(plain["kind"])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _array(one: object) -> Array:
    array = Array(dtype="float32", shape=(0,), stype=wire.STYPE, data=b"")
    entries: list[Any] = one if isinstance(one, list) else [one]
    for key, value in zip(("dtype", "shape", "stype"), entries, strict=False):
        setattr(array, key, tuple(value) if isinstance(value, list) else value)
    with suppress(ValueError, TypeError):
        array.data = bytes.fromhex(entries[3] if len(entries) > 3 else "")
    return array
