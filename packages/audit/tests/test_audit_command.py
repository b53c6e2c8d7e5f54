"""`fedpareto audit` from the outside: a table, a picture, a record and advice; what does not fit is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HIDDEN = "noise=30+privacy.objectives=withheld"
PROTECTIONS = f"{HIDDEN},secure-sum"
LITTLE = ("--shadows", "16", "--references", "2", "--rows", "20", "--batches", "1", "--jobs", "1")


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Path]:
    def written(**values: Any) -> Path:
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps({"clients": 4, "rounds": 2, **values}), encoding="utf-8")
        return path

    return written


@pytest.mark.takes_long
def test_noise_and_sums_take_away_what_a_single_update_tells(
    spec: Callable[..., Path], fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    fedavg, synthetic = {"name": "fedavg", "weighting": "equal"}, {"name": "synthetic", "rows": 8000}
    path = spec(algorithm=fedavg, problem=synthetic, preferences="equidistant", rounds=1)
    answer = fedpareto("audit", path, *LITTLE, "--protect", PROTECTIONS, "--out", "found")
    assert answer.code == 0, answer.err
    assert answer.err.endswith("2 of 2 worlds\n")
    record = json.loads((tmp_path / "found" / "audit.json").read_text(encoding="utf-8"))
    measures = {measure["name"]: measure for measure in record["measures"]}

    def mean(measure: str, protection: str) -> float:
        return float(measures[measure]["values"][protection]["mean"])

    update = measures["preference from updates, error"]
    assert mean("preference from updates, error", "as set") < 0.7 * update["guess"]
    for protection in (HIDDEN, "secure-sum"):
        assert mean("preference from updates, error", protection) > 0.7 * update["guess"]
    said = measures["preference from objectives, error"]
    assert mean("preference from objectives, error", "secure-sum") == mean(
        "preference from objectives, error", "as set"
    )
    assert abs(mean("preference from objectives, error", HIDDEN) - said["guess"]) < 0.01
    assert mean("whole rows from 1 row", "as set") == 1
    assert mean("whole rows from 1 row", HIDDEN) == 0
    assert mean("whole rows from 1 row", "secure-sum") < 1
    # The sum of all is what the final model is made of, so it tells no more of a row than that.
    of_sum = mean("membership from update, AUC", "secure-sum")
    assert of_sum == mean("membership from final model, AUC", "secure-sum")
    # A sum changes nothing about the model.
    assert mean("membership from final model, AUC", "as set") == of_sum
    useful = record["usefulness"]["values"]
    assert useful["secure-sum"] == useful["as set"] != useful[HIDDEN]
    assert "At these settings a curious server learns a client's preference from its update to within" in answer.out
    assert answer.out.endswith("written: found/audit.json, found/audit.png, found/audit.svg\n")
    assert (tmp_path / "found" / "audit.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_attacked_is_said_in_a_line(spec: Callable[..., Path], fedpareto: Callable[..., Any]) -> None:
    for values, words in (
        ({"algorithm": "fedavg", "problem": "deep-sea-treasure"}, "'deep-sea-treasure' has none"),
        ({"algorithm": "local", "problem": "synthetic"}, "the clients of local send nothing"),
        ({"algorithm": "fedavg", "problem": "convex"}, "an audit needs at least 40 rows that no client trains on"),
    ):
        answer = fedpareto("audit", spec(**values), *LITTLE, "--protect", "none")
        assert answer.code == 2
        assert words in answer.err
        assert answer.err.count("\n") == 1
    unknown = fedpareto("audit", spec(algorithm="fedavg"), "--attacks", "preferences")
    assert unknown.err.startswith("Error: unknown attack 'preferences'; did you mean 'preference'")
    assert "--protect noise: write noise=0.1" in fedpareto("audit", spec(algorithm="fedavg"), "--protect", "noise").err


def test_a_server_that_compares_updates_cannot_have_a_sum_and_one_public_preference_is_no_secret(
    spec: Callable[..., Path], fedpareto: Callable[..., Any]
) -> None:
    path = spec(algorithm="fedpref", problem={"name": "synthetic", "rows": 1200}, preferences="0.5,0.5", rounds=1)
    answer = fedpareto("audit", path, *LITTLE, "--attacks", "preference,inversion", "--protect", "secure-sum")
    assert answer.code == 0, answer.err
    assert re.search("^secure-sum: .*fedpref", answer.out, re.MULTILINE)
    assert "preference: all clients share one preference, which is public" in answer.out
