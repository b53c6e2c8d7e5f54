"""`fedpareto tune` from the outside: a table, a choice, JSON, and one line for every mistake."""

from __future__ import annotations

import json

import pytest

from fedpareto.campaigns.tuning import grids
from fedpareto.campaigns.tuning.plan import Space
from fedpareto.spec.draft import Draft

HEAD = """
problem: convex
algorithm: fedavg
clients: 2
rounds: 1
engine: {threads: 1, chunk: 64}
"""
TEXT = f"""{HEAD}tune:
  search:
    learner.lr: [0.1, 0.3]
    participation: [0.5, 1.0]
  objectives: [utility, bytes]
  sampler: grid
"""


def test_a_table_a_choice_json_and_a_spec_that_runs(tmp_path, fedpareto):
    (tmp_path / "tune.yaml").write_text(TEXT)
    answer = fedpareto("tune", tmp_path / "tune.yaml", "--jobs", "1", "--out", "study")
    assert answer.code == 0
    assert "this one: trial " in answer.out
    assert "4 trials; the search itself sent" in answer.out
    assert "written: study/chosen.yaml, study/front.png, study/tuning.json, study/study.db" in answer.out
    again = fedpareto("tune", tmp_path / "tune.yaml", "--jobs", "1", "--out", "study", "--json", "-q")
    record = json.loads(again.out)
    assert record["cost"]["bytes"] == sum(one["bytes"] for one in record["trials"])
    assert record == json.loads((tmp_path / "study" / "tuning.json").read_text())
    assert Draft.read(tmp_path / "study" / "chosen.yaml").finish().algorithm.name == "fedavg"
    other = fedpareto("tune", tmp_path / "tune.yaml", "--out", "study", "--set", "rounds=2")
    assert "study holds another tuning, with spec.rounds=1, not 2; name another --out" in other.err


@pytest.mark.parametrize(
    ("search", "others", "said"),
    [
        ("{learner.lrr: [0.1]}", "", "unknown parameter of learner 'lrr'; did you mean 'lr'?"),
        ("{lrate: [0.1]}", "", "unknown parameter 'lrate'"),
        ("{lr: {low: 1.0, high: 0.1}}", "", "line 8: the range of lr is empty: from 1.0 to 0.1"),
        ("{lr: []}", "", "lr has no values"),
        ("{lr: {low: -1, high: 1}}", "", "lr is -1; it is above 0"),
        ("{lr: {low: 0, high: 1, log: true}}", "", "low of lr is 0; on a logarithmic scale it is above 0"),
        ("{lr: {lower: 0, high: 1}}", "", "did you mean 'low'?"),
        ("{lr: 0.1}", "", "write a list of values, or a range"),
        ("{lr: [0.1]}", "objectives: [utlity]", "unknown objective 'utlity'; did you mean 'utility'?"),
        ("{lr: [0.1]}", "objectives: [seconds]", "there are no simulated seconds without devices"),
        ("{lr: [0.1]}", "objectives: [epsilon]", "there is no epsilon without privacy"),
        ("{lr: [0.1]}", "constraints: {bytes: {}}", "write least or most"),
        ("{lr: [0.1]}", "prune_every: 1", "under a single objective only"),
        ("{lr: [0.1]}", "sampler: nsga", "did you mean 'nsga2'?"),
        ("{lr: [0.1]}", "trails: 3", "did you mean 'trials'?"),
        ("{lr: {low: 0.1, high: 1.0}}", "sampler: grid", "lr is a range; a grid needs a list of values"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, fedpareto, search, others, said):
    (tmp_path / "bad.yaml").write_text(f"{HEAD}tune:\n  search: {search}\n  {others}\n")
    answer = fedpareto("tune", tmp_path / "bad.yaml", "--jobs", "1", "--out", "bad")
    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert said in answer.err
    assert not (tmp_path / "bad").exists()


def test_published_grids_have_as_many_points_as_their_tables():
    fair, played = {"problem": "synthetic"}, {"problem": "deep-sea-treasure"}
    for values, table, algorithm, points in (
        (fair, "A.10", "fedpref", 3 * 3 * 4 * 2 * 2),
        (fair, "A.10", "fedpref+ft", 3 * 3 * 4 * 2 * 2),
        (fair, "A.10", "fedpref+safe", 3 * 3 * 4 * 2),
        (fair, "A.10", "local+safe", 3),
        (fair, "A.10", "fedprox", 3 * 3 * 3 * 2),
        (fair, "A.10", "local", 3),
        (fair, "V", "fedmgda-plus", 4 * 7),
        (fair, "V", "q-fedavg", 8 * 3),
        (played, "A.3", "fedpref", 3 * 3 * 2 * 2),
        ({"problem": "mo-halfcheetah"}, "A.4", "mat-fl", 3 * 3),
    ):
        base = Draft(values | {"algorithm": algorithm})
        assert len(list(Space.read(base, grids.of(table, base), table).grid())) == points
    with pytest.raises(ValueError, match=r"--grid A.3 is for mo-lunar-lander, .*; the problem here is synthetic"):
        grids.of("A.3", Draft(fair))
    with pytest.raises(ValueError, match=r"--grid V has the algorithms afl, .*; the algorithm here is fedpref"):
        grids.of("V", Draft(fair))
    with pytest.raises(ValueError, match=r"unknown grid 'B.1'"):
        grids.of("B.1", Draft(fair))
