"""Whatever a file or message holds, its reader uses it or refuses it in a line: a small part of `make fuzz`."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource", reason="the tool limits memory and time as Linux and macOS do")
sys.path.append(str(Path(__file__).parents[1] / "tools"))
fuzz = importlib.import_module("fuzz")
if missing := sorted(set(fuzz.absent().values())):
    pytest.importorskip(missing[0])

FOUND = Path(__file__).with_name("found")
"""What was not used or refused once: a folder for each reader, with inputs that are named after what they did."""
INPUTS = 1500


@pytest.fixture(scope="module", autouse=True)
def no_other_loop():
    """Tests with a browser leave their event loop running in this worker, and HTTP is read in a loop of its own."""
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(running)


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What libraries warn of on import is not ours to mend.
        return {reader.name: reader for reader in fuzz.prepare(tmp_path_factory.mktemp("fuzz"))}


@pytest.fixture(autouse=True)
def quiet():
    logging.disable()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def test_no_input_ends_in_a_traceback_or_never(readers, monkeypatch):
    # A worker that has run a thousand tests may collect garbage for a second; `make fuzz` has processes of its own.
    monkeypatch.setattr(fuzz, "SECONDS", 20.0)
    counts = {
        name: fuzz.fuzz(readers[name], many, seed=100) for name, many in fuzz.shares(list(readers), INPUTS).items()
    }
    assert {name: dict(count.tracebacks) for name, count in counts.items() if count.tracebacks} == {}
    assert [name for name, count in counts.items() if count.hangs] == []
    assert [name for name, count in counts.items() if count.inputs >= 10 and not count.refused] == [], "noticed"


def test_what_was_found_once_is_read_or_refused_now(readers):
    folders = {fuzz.slug(name): reader for name, reader in readers.items()}
    kept = sorted(path for path in FOUND.rglob("*") if path.is_file())
    assert kept
    for path in kept:
        count = fuzz.tried(folders[path.parent.name], path.read_bytes())
        assert (dict(count.tracebacks), count.hangs, count.used + count.refused) == ({}, 0, 1), path.name


def test_a_reader_with_a_fault_is_found_out():
    reader = fuzz.Reader("faulty", (b"{}",), lambda draw, content: b"[]", lambda content: {}[content])
    with pytest.raises(KeyError):
        fuzz.fuzz(reader, 1, seed=0)
    kind = fuzz.Reader("faulty", (b"{}",), lambda draw, content: b"[]", {b"{}": 1}.__getitem__)
    count = fuzz.fuzz(kind, 3, seed=0)
    assert (count.inputs, count.used, count.refused, count.tracebacks.total()) == (3, 0, 0, 3)


def test_the_same_numbers_are_the_same_inputs_in_however_many_pieces():
    seen = []
    reader = fuzz.Reader("seen", (b"abc",), lambda draw, content: bytes([draw.randrange(256)]), seen.append)
    fuzz.fuzz(reader, 7, seed=1)
    whole, seen[:] = list(seen[1:]), []
    for _, many, first in sorted(fuzz._pieces({"seen": 7}, 0), key=lambda piece: piece[2]):
        fuzz.fuzz(reader, many - 3, seed=1, first=first)
        fuzz.fuzz(reader, 3, seed=1, first=first + many - 3)
    assert [one for one in seen if one != b"abc"] == whole
