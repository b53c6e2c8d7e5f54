"""A node that answers every message with something else than it should, in a real process of its own."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from factory import spec_of
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body
from memory_federation import node_of

from fedpareto.engines.single import Reply
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.node import Node
from fedpareto_flower.engine.packing import BYTES, PLACES, packed, unpacked

TEN_GIGABYTES = 10 * 2**30


class Misdescribed(Array):
    """An array whose description is what the attacker says, whatever it holds."""

    def deflate(self):
        return add_header_to_object_body(object_body=self.description, obj=self)


# Flower writes a class's name into what it sends, and reads only its own.
Misdescribed.__qualname__ = Array.__qualname__


def with_model(change):
    def attack(node, answer):
        (result,) = answer.results
        replies = tuple(
            Reply(one.client, one.round, one.message | {"model": change(one.message["model"])}, one.step, one.lane)
            for one in result.replies
        )
        return wire.encode_answer(replace(answer, results=(replace(result, replies=replies),)))

    return attack


def with_array(change):
    """The honest answer, but for the array of its model, which `change` makes from the bytes of the honest one."""

    def attack(node, answer):
        content = wire.encode_answer(answer)
        arrays = content.array_records[wire.TENSORS]
        arrays["0/0/model"] = change(arrays["0/0/model"].data)
        return content

    return attack


def announced(data):
    return Array("float32", (TEN_GIGABYTES // 4,), wire.STYPE, data)


def repeated_chunk(data):
    """100 KB that Flower itself would unpack to ten gigabytes."""
    chunk = b"\1" * 100_000
    described = {"dtype": "float32", "shape": [TEN_GIGABYTES // 4], "stype": wire.STYPE}
    described["arraychunk_ids"] = [0] * (TEN_GIGABYTES // len(chunk))
    return misdescribed(chunk, json.dumps(described).encode())


def misdescribed(data, description):
    array = Misdescribed("float32", (len(data) // 4,), wire.STYPE, data)
    array.__dict__["description"] = description
    return array


def with_record(**changes):
    """The honest answer with its small tensors in the header's record, some entries of which are changed."""

    def attack(node, answer):
        record = packed(wire.encode_answer(answer)).config_records[wire.HEADER]
        changed = {name: change(record[name]) for name, change in changes.items()}
        return RecordDict({wire.HEADER: ConfigRecord({**record, **changed})})

    return attack


def with_place(change):
    """The same, with another description of the first tensor: its path, type and shape."""

    def changed(text):
        first, *others = json.loads(text)
        return json.dumps([change(*first), *others])

    return with_record(**{PLACES: changed})


def travels(attack):
    """What is false in itself but comes as the protocol says; other attacks send each tensor as an object."""
    return lambda node, answer: packed(attack(node, answer))


def large(node, answer):
    """More than anybody asked for, and all of it sent."""
    content = wire.encode_answer(answer)
    content[wire.TENSORS] = ArrayRecord({"x": Array("uint8", (2**23,), "", bytes(2**23))})
    return content


def noise(node, answer):
    data = os.urandom(200)
    header = ConfigRecord({wire.HEADER: os.urandom(50).decode("latin1")})
    return RecordDict({wire.HEADER: header, wire.TENSORS: ArrayRecord({"x": Array("uint8", (200,), "?", data)})})


def replay(node, answer):
    node.first = node.first or wire.encode_answer(replace(answer, nonce="0" * 32))
    return node.first


ATTACKS = (
    ("values that are not finite", with_model(lambda model: model * float("nan"))),
    ("values that are not finite", travels(with_model(lambda model: model * float("nan")))),
    ("has the shape", travels(with_model(lambda model: model[1:]))),
    ("'model' announces the shape", with_array(announced)),
    ("small tensor '0/0/model' announces the shape", with_place(lambda path, *_: [path, "float32", [TEN_GIGABYTES]])),
    ("its arrays would take more than", with_array(repeated_chunk)),
    ("small tensor '0/0/model' has an impossible shape", with_place(lambda path, *_: [path, "float32", [-8, -1]])),
    ("it holds an array that cannot be read", with_array(lambda data: misdescribed(data, os.urandom(100)))),
    ("small tensor '0/0/model' is not of a known type", with_place(lambda path, _, shape: [path, "object", shape])),
    ("it is larger than", large),
    ("it holds the tensor '0/0/size' twice", with_place(lambda _, *kind: ["0/0/size", *kind])),
    ("it claims to come from client 0", travels(lambda _, answer: wire.encode_answer(replace(answer, client=0)))),
    ("belong to no small tensor", with_record(**{BYTES: lambda data: data + bytes(100)})),
    ("a replay", travels(replay)),
    ("what describes its small tensors is not JSON", with_record(**{PLACES: lambda text: text[:-1]})),
    ("its header is not JSON", noise),
)
"""What the server is to say of it, and the attack: tensors as objects of Flower's, or with the header."""


def shares(client):
    """The attacks of a hostile client, 1 or 2: half of them each."""
    return ATTACKS[client - 1 :: 2]


@dataclass
class Hostile(Node):
    """Goes through its attacks, again and again."""

    first: RecordDict | None = None

    def __post_init__(self):
        self._attacks = cycle(attack for _, attack in shares(self.client))

    def exchange(self, content):
        answer = wire.decode_answer(super().answer(unpacked(content)))
        return next(self._attacks)(self, answer)


def make(config):
    node = node_of(spec_of(config), config["client"], Path(config["folder"]))
    return Hostile(**{name: value for name, value in vars(node).items() if not name.startswith("_")})
