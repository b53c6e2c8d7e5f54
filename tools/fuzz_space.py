"""What `fuzz.py` tries of the protocol for space links: messages, payloads, offers and capabilities."""

from __future__ import annotations

import functools
import pickle
import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from fuzz_mutations import of_bytes, of_yaml
from fuzz_readers import Reader

from fedpareto.codecs import Codec
from fedpareto.spec import yaml_file
from fedpareto_space.wire import cbor, golden, payload
from fedpareto_space.wire.messages import Extension, Offer, decode, encode
from fedpareto_space.wire.negotiation import Capabilities, negotiate, offer_of
from fedpareto_space.wire.terms import ROWS

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 23, 24, 255, 256, 2**32 - 1, 2**32, 2**63, 2**64 - 1, -(2**64)),
    *(0.0, 0.5, -0.5, 1e300, 5e-324, float("inf"), float("-inf")),
    *("", "x", "star", "int8-delta", "top10%", "\u2028", "a" * 200, "\x00", "*", "fedavg"),
    *(b"", b"\x00", bytes(8), bytes(32), bytes(5000)),
    *([], [0], [0, 1], [6, [[0, 1]]], [[[[[[[[[[]]]]]]]]]], {}, {1: 1}, {0: []}, {"a": 1}, [{}], [1.0] * 100),
)
RAW = (
    *(b"\x9f\xff", b"\xbf\xff", b"\x5f\xff", b"\xf9\x7e\x00", b"\xf9\x80\x00", b"\xf7", b"\xc1\x00", b"\x18\x05"),
    *(b"\x9b" + b"\xff" * 8, b"\x5b" + b"\xff" * 8, b"\xbb\x7f" + b"\xff" * 7, b"\xfb" + bytes(8), b"\x61\xff"),
    *(b"\x81" * 3000, b"\xa1\xf4\x00", b"\xa2\x01\x00\x01\x00", b"\xa2\x02\x00\x01\x00", b"\x1c", b"\xff"),
)
"""CBOR that the protocol does not have, in the place of a value."""
MARK = "@raw@"
DEEPER = 0.2
"""How often a change is made to a whole array or map, and not to something in it."""


def of_cbor(draw: random.Random, content: bytes) -> bytes:
    """Other values, lost, repeated and foreign entries at any depth, forms that are not allowed; often other bytes."""
    if draw.random() < 0.4:
        return of_bytes(draw, content)
    whole = pickle.loads(_tree(content))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        holder, key = _place(draw, whole)
        kind = draw.randrange(7)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, place = _place(draw, whole)
            holder[key] = deepcopy(other[place])
        elif kind == 2 and isinstance(holder, list):
            holder.insert(key, deepcopy(draw.choice(ODD)))
        elif kind == 2:
            holder[draw.choice((0, 3, 99, "x", -1))] = deepcopy(draw.choice(ODD))
        elif kind == 3:
            holder[key] = MARK
        else:
            holder[key] = deepcopy(draw.choice(ODD))
        if not whole:
            break
    data = cbor.encode(whole)
    return data.replace(cbor.encode(MARK), draw.choice(RAW))


@functools.cache
def _tree(content: bytes) -> bytes:
    """What a message holds, to be copied quickly."""
    return pickle.dumps(cbor.decode(content))


def _place(draw: random.Random, whole: list[Any]) -> tuple[Any, Any]:
    """An entry of some array or map, deeper ones too."""
    holder: Any = whole
    while True:
        key = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        inside = holder[key]
        if not isinstance(inside, list | dict) or not inside or draw.random() < DEEPER:
            return holder, key
        holder = inside


def read_message(content: bytes) -> object:
    """A message that is read has the one encoding that it came in."""
    message = decode(content)
    if encode(message) != content:
        raise AssertionError("a message was read that has another encoding")
    return message


def messages() -> tuple[bytes, ...]:
    """One of each type, and some with what is rare."""
    every = golden.every()
    rare = (
        replace(every["update"], manifest=every["global"].manifest, extensions=(Extension(5, False, 2, 6, b"x"),)),
        replace(every["offer"], statement=bytes(60)),
        replace(every["reject"], detail="unknown algorithm 'fedpreff'"),
    )
    return tuple(encode(message) for message in (*every.values(), *rare))


def payloads() -> tuple[tuple[bytes, ...], Callable[[bytes], object]]:
    """Payloads of some codecs, the codec's number first, and what reads them."""
    codecs = [Codec.parse(name) for name in ("float32-delta", "int8-delta", "int4-delta+zstd", "top10%", "float16")]
    base = {"model": np.linspace(-1, 1, 200, dtype=np.float32)}
    sent = {"model": base["model"] * np.float32(1.01), "losses": np.ones(2, np.float32), "flag": np.array(True)}
    packed = [payload.pack(sent, codec, base) for codec in codecs]

    def read(content: bytes) -> object:
        number = content[0] % len(codecs) if content else 0
        return payload.unpack(packed[number][0], content[1:], codecs[number], base)

    return tuple(bytes([number]) + data for number, (_, data) in enumerate(packed)), read


def answered(path: Path) -> object:
    """What `fedpareto space agree` does with an offer or with capabilities."""
    plain, _ = yaml_file.read(path, "file", "node: 10")
    if "accepts" in plain:
        offer = golden.every()["offer"]
        assert isinstance(offer, Offer)
        return negotiate(offer, Capabilities.from_plain(plain))
    return offer_of(plain, golden.SESSION)


def agreements() -> tuple[bytes, ...]:
    """An offer and capabilities as YAML."""
    offer = {"node": 10, "role": "server", **golden.alternatives().to_plain()}
    accepts: dict[str, Any] = {"client": {}, "server": {}}
    for row in ROWS:
        accepts[row.side][row.name] = "any"
    accepts["client"]["trigger"] = ["poll", {"steps": {"most": 200}}, "any-of"]
    accepts["client"]["servers"] = {"each": {"node": [10, 11]}}
    accepts["server"]["aggregation"] = {"rule": ["fedavg", "fedpref"], "deadline": [None, {"most": 1e6}]}
    capabilities = {"node": 20, "role": "client", "accepts": accepts, "proposals": {"client": {"waiting": ["pause"]}}}
    return tuple(yaml.safe_dump(plain, sort_keys=False).encode() for plain in (offer, capabilities))


def readers(folder: Path) -> list[Reader]:
    """All of them."""
    file = folder / "agree.yaml"

    def agree(content: bytes) -> object:
        file.write_bytes(content)
        return answered(file)

    whole, unpack = payloads()
    return [
        Reader("space messages", messages(), of_cbor, read_message),
        Reader("space payloads", whole, of_bytes, unpack),
        Reader("offers and capabilities", agreements(), of_yaml, agree),
    ]
