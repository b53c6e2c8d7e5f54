"""docs/space-protocol.md says what the code does: tables, limits and the bytes of its examples."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fedpareto_space.wire import cbor, golden, manifest, payload, rows, terms
from fedpareto_space.wire.messages import decode, encode

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("protocol_tables", ROOT / "tools" / "protocol_tables.py")
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)
TEXT = tables.DOCUMENT.read_text(encoding="utf-8")
EXAMPLE = re.compile(r"^### Example: (\w+)\n\n(\d+) bytes\.\n\n```text\n(.*?)```", re.MULTILINE | re.DOTALL)


def test_the_tables_are_those_of_the_code():
    assert [name for name, _, _ in tables.PART.findall(TEXT)] == list(tables.PARTS)
    assert tables.written(TEXT) == TEXT, "run python tools/protocol_tables.py"


@pytest.mark.parametrize("name", golden.every())
def test_the_bytes_of_every_example_are_those_of_its_message(name):
    printed = {found: (int(size), bytes.fromhex(digits)) for found, size, digits in EXAMPLE.findall(TEXT)}
    assert printed.keys() == golden.every().keys()
    size, data = printed[name]
    assert len(data) == size
    assert decode(data) == golden.every()[name]
    assert encode(golden.every()[name]) == data


def test_the_limits_are_those_of_the_code():
    for value, name in (
        (cbor.DEEPEST, "cbor.DEEPEST"),
        (cbor.MOST_ITEMS, "cbor.MOST_ITEMS"),
        (terms.MOST_ALTERNATIVES, "terms.MOST_ALTERNATIVES"),
        (rows.DEEPEST_TRIGGER, "rows.DEEPEST_TRIGGER"),
        (manifest.MOST_TENSORS, "manifest.MOST_TENSORS"),
        (payload.SMALLEST_CODED, "payload.SMALLEST_CODED"),
    ):
        assert f"| {value:,} | `{name}` |" in TEXT
