"""Whatever a file or message holds, its reader uses it or refuses it in a line: a small part of tools/fuzz.py."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource", reason="the tool limits memory and time as Linux and macOS do")
pytest.importorskip("flwr")
pytest.importorskip("pyarrow")
pytest.importorskip("onnx")

sys.path.append(str(Path(__file__).parents[1] / "tools"))
fuzz = importlib.import_module("fuzz")

NAMES = [
    *(
        "spec.yaml",
        "sweep.yaml",
        "sweep.json",
        "run.json (show)",
        "run.json (serve)",
        "status.json (show)",
        "solutions.json (show)",
    ),
    *("solutions.json (serve)", "inputs.json (serve)", "metrics.jsonl (show)", "columns.bin (show)"),
    *("metrics.jsonl (resume)", "checkpoint (resume)", "run.json (page)", "status.json (page)"),
    *("solutions.json (page)", "metrics.jsonl (page)", "columns.bin (page)"),
    *("exported model", "schema.json", "node.json"),
    *("deployment.json", "status.json (server)"),
    *("status.json (node)", "spec.yaml (node)", "signed headers", "CSV, CSV.gz", "Parquet", "rows of predict"),
    *("devices and traces", "wire messages", "private state"),
    *("space messages", "space payloads", "offers and capabilities", "frames", "PDUs", "bundles"),
    *("models as ONNX", "models as NNEF", "packed models", "tensors of NNEF"),
    *("contact plans", "two-line elements", "mission.json", "mission.jsonl"),
]


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    return {reader.name: reader for reader in fuzz.prepare(tmp_path_factory.mktemp("fuzz"))}


def test_every_reader_is_tried_here(readers):
    assert list(readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_no_input_ends_in_a_traceback_or_never(readers, name):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        count = fuzz.fuzz(readers[name], 8 if "resume" in name else 30, seed=100)
    assert not count.tracebacks
    assert not count.hangs
    assert count.refused, "damage is noticed"


def test_a_reader_with_a_fault_is_found_out():
    reader = fuzz.Reader("faulty", (b"{}",), lambda draw, content: b"[]", lambda content: {}[content])
    with pytest.raises(KeyError):
        fuzz.fuzz(reader, 1, seed=0)
    kind = fuzz.Reader("faulty", (b"{}",), lambda draw, content: b"[]", {b"{}": 1}.__getitem__)
    count = fuzz.fuzz(kind, 3, seed=0)
    assert (count.inputs, count.used, count.refused, count.tracebacks.total()) == (3, 0, 0, 3)
