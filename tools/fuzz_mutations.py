"""How `fuzz.py` damages a good input: bytes, JSON, YAML, tensors and compressed texts."""

from __future__ import annotations

import gzip
import json
import math
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

Mutate = Callable[[random.Random, bytes], bytes]
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**64, -(2**70), 10**400),
    *(0.5, -0.5, 1e308, 1e-320, math.nan, math.inf, -math.inf),
    *("", "x", "0", "NaN", "number", "\ud800", "a" * 5000, "../../x", "a\nb", "\x00"),
    *([], [[]], {}, {"a": 1}, [None], [0] * 1000, [[1.0, 2.0]], [["0.weight", [2, 2]]]),
)
DEEP, LONG = "@deep@", "@long@"
RAW = {DEEP: "[" * 3000 + "]" * 3000, LONG: "9" * 5000}
"""JSON that no value is written as."""


def of_bytes(draw: random.Random, content: bytes) -> bytes:
    """Flipped, cut, repeated or foreign bytes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(data) + 1)
        stretch = min(len(data) - place, draw.choice((1, 2, 8, 64, 512)))
        kind = draw.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            del data[place : place + stretch]
        elif kind == 3:
            data[place:place] = data[place : place + stretch] * draw.choice((1, 2, 50))
        elif kind == 4:
            data[place:place] = draw.randbytes(draw.choice((1, 4, 40)))
        else:
            data[place : place + stretch] = bytes(stretch)
    return bytes(data)


def of_json(draw: random.Random, content: bytes) -> bytes:
    """Values of other types, missing and foreign keys; sometimes other bytes."""
    if draw.random() < 0.2:
        return of_bytes(draw, content)
    text = json.dumps(of_plain(draw, json.loads(content), (*ODD, *RAW)))
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text.encode()


def of_lines(draw: random.Random, content: bytes) -> bytes:
    """One line of a JSON-lines file, changed, lost or repeated."""
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    if draw.random() < 0.2:
        lines.insert(place, draw.choice(lines))
    elif draw.random() < 0.1:
        del lines[place]
    else:
        lines[place] = of_json(draw, lines[place]) + b"\n"
    return b"".join(lines)


def of_plain(draw: random.Random, value: Any, odd: tuple[Any, ...] = ODD) -> Any:
    """The same nested value with a few changes."""
    whole = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = list(_places(whole))
        if not places:
            return draw.choice(odd)
        holder, key = draw.choice(places)
        kind = draw.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice(("", "x", "format", "kind", "name"))] = holder.pop(key)
        elif kind == 2:
            other, place = draw.choice(places)
            with suppress(LookupError, TypeError):
                holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(holder, list):
            holder.insert(key, deepcopy(draw.choice(odd)))
        else:
            holder[key] = deepcopy(draw.choice(odd))
    return whole if draw.random() > 0.01 else draw.choice(odd)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every list and object."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(items):
        yield value, key
        yield from _places(entry)


YAML = (
    *("1", "2", "3", "0.5", "false"),
    *("", "~", "x", "-1", "0", "1e300", "1e-3", ".nan", ".inf", "9" * 5000, "0x" + "f" * 5000, "1:60:99", "true"),
    *("2020-13-45", "2020-01-02", "!!int ''", "!!int x", "!!float ''", "!!bool x", "!!timestamp x", "!!binary x"),
    *("!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str 3", "!!python/name:os.system", "!x y", "!!null x"),
    *("&a [1]", "*a", "&a [*a]", "<<: {x: 1}", "[" * 3000, "{" * 3000, "[[[[[[[[[0.5, 0.5]]]]]]]]]", "{a: {b: 1}}"),
    *("'", '"', "|", ">-", "- - -", "? [a]", "%TAG", "---", "...", "[0.5, 0.5]", "[[0.5, 0.5], [1, 0]]", "a" * 5000),
    *("dirichlet:nan", "dirichlet:1e300", "groups:5,5", "groups:@", "0.5,0.5;", "sweep", "equidistant", "\u2028"),
)


def of_yaml(draw: random.Random, content: bytes) -> bytes:
    """Odd scalars in the place of values, lost, repeated and shifted lines, aliases; sometimes other bytes."""
    if draw.random() < 0.2:
        return of_bytes(draw, content)
    lines = content.decode().splitlines()
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(len(lines))
        key, colon, _ = lines[place].partition(": ")
        kind = draw.randrange(6)
        if kind == 0:
            lines.insert(place, draw.choice(lines))
        elif kind == 1:
            lines[place] = " " * draw.choice((1, 2, 3)) + lines[place]
        elif kind == 2:
            names = [f"a{number}: &a{number} {{x: *a{number - 1}, y: *a{number - 1}}}" for number in range(1, 26)]
            lines += ["a0: &a0 [1]", *names[: draw.choice((1, 5, 25))]]
        elif colon:
            lines[place] = f"{key}: {draw.choice(YAML)}"
        else:
            lines[place] = draw.choice(YAML)
    return "\n".join(lines).encode()


def of_tensors(draw: random.Random, content: bytes) -> bytes:
    """A safetensors file of ours with other values or tensors, and a digest that fits them; sometimes other bytes."""
    from fedpareto.record.checkpoint import Checkpoint

    if draw.random() < 0.1:
        return of_bytes(draw, content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        file = Checkpoint.load(path)
        tensors, values = dict(file.tensors), file.values
        if draw.random() < 0.7:
            values = of_plain(draw, values)
        if draw.random() < 0.5:
            name = draw.choice(list(tensors))
            changed = _other_tensor(draw, tensors.pop(name))
            if changed is not None:
                tensors[name if draw.random() < 0.9 else "x"] = changed
        Checkpoint(tensors, values).save(path)
        return path.read_bytes()


def _other_tensor(draw: random.Random, tensor: torch.Tensor) -> torch.Tensor | None:
    kinds: tuple[Callable[[], torch.Tensor | None], ...] = (
        lambda: None,
        lambda: torch.zeros(0),
        lambda: tensor.reshape(-1),
        lambda: tensor[None],
        lambda: tensor[..., :-1] if tensor.ndim else tensor[None],
        lambda: torch.full_like(
            tensor, draw.choice((math.nan, math.inf, 3e38, -1.0)) if tensor.is_floating_point() else 9
        ),
        lambda: tensor.to(draw.choice((torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64))),
    )
    return draw.choice(kinds)()


def of_gzip(draw: random.Random, content: bytes) -> bytes:
    """A text or a compressed text, damaged before or after it was compressed."""
    if content[:2] != b"\x1f\x8b":
        return of_bytes(draw, content)
    if draw.random() < 0.5:
        return of_bytes(draw, content)
    return gzip.compress(of_bytes(draw, gzip.decompress(content)), 1)
