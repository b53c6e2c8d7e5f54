"""Runs that were recorded before there was a parameter go on as they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from fedpareto.config.interrupts import Stopped
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.record.store import RunFolder
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft, load


def test_a_run_from_before_rounding_by_the_table_keeps_its_rows(tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    table = {"x": stream.normal(size=120), "sex": stream.choice(["f", "m"], 120), "hired": stream.integers(0, 2, 120)}
    pandas.DataFrame(table).to_csv(tmp_path / "people.csv", index=False)
    problem = {"name": "table", "file": str(tmp_path / "people.csv"), "label": "hired", "sensitive": "sex"}
    problem |= {"rounding": "client", "unmeasured": "worst"}
    common = {"algorithm": "fedavg", "clients": 6, "rounds": 3, "engine": {"threads": 1, "chunk": 6}}
    spec, run = Draft({**common, "problem": problem}).finish(), tmp_path / "run"
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec, run, stop=lambda: next(stops))

    text = (run / "spec.yaml").read_text()
    (run / "spec.yaml").write_text("".join(x for x in text.splitlines(True) if "rounding: client" not in x))
    assert (run / "spec.yaml").read_text() != text
    checkpoint = Checkpoint.load(run / "checkpoint.safetensors")
    del checkpoint.values["spec"]["problem"]["rounding"]
    checkpoint.save(run / "checkpoint.safetensors")

    assert load(run / "spec.yaml").to_mapping()["problem"]["rounding"] == "table"  # A new run of the same file.
    assert RunFolder(run).spec() == spec
    resumed, undisturbed = resume(run), start(spec)
    assert resumed is not None
    assert all(torch.equal(resumed.models[0][client], model) for client, model in undisturbed.models[0].items())
