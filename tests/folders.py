"""What tests ask of run folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.recording import TIMES

FIXED_CHOICES = ("--set", "threads=1", "--set", "chunk=8")
"""Nothing measured: quicker, and the same for every run that is compared."""


def rows(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The lines of a file, without the times."""
    path = folder / name
    lines = path.read_text().splitlines() if path.exists() else []
    return [without_times(json.loads(line)) for line in lines]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    """A line as every run of the same spec has it."""
    return {key: value for key, value in row.items() if key not in TIMES}


def status(folder: Path) -> dict[str, Any]:
    """What status.json says."""
    found: dict[str, Any] = json.loads((folder / "status.json").read_text())
    return found


def assert_same_results(one: Path, other: Path) -> None:
    """Two finished runs agree bit for bit in everything but times."""
    for folder in (one, other):
        assert status(folder)["status"] == "finished"
        assert not list(folder.glob(".*.part")), "a half-written file is left"
    for name in ("models.safetensors", "solutions.json", "columns.bin"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), f"{name} differs"
    assert rows(one) == rows(other)
    assert rows(one, "events.jsonl") == rows(other, "events.jsonl")


def assert_whole(folder: Path) -> None:
    """Every file of a run that was killed can be read; only the last line of an appended one may be cut."""
    readers = {
        "spec.yaml": lambda path: yaml.safe_load(path.read_text()),
        "run.json": lambda path: json.loads(path.read_text()),
        "status.json": lambda path: json.loads(path.read_text()),
        "solutions.json": lambda path: json.loads(path.read_text()),
        "checkpoint.safetensors": Checkpoint.load,
        "models.safetensors": Checkpoint.load,
    }
    for name, read in readers.items():
        if (folder / name).exists():
            assert read(folder / name), f"{name} is empty"
    for name in ("metrics.jsonl", "events.jsonl"):
        if (folder / name).exists():
            *whole, _ = (folder / name).read_bytes().split(b"\n")
            assert all(json.loads(line) for line in whole)
