"""A sweep: every run is the run that it says it is, none vanishes, and what is done is never done again."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedpareto
from fedpareto.campaigns import grid, sweep
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.runs.progress import tallied
from fedpareto_page.comparison import write_summary
from folders import assert_same_results, status
from processes import Commands
from waiting import until

SPEC = {
    "problem": "convex",
    "clients": 4,
    "rounds": 3,
    "sweep": {"algorithm": ["fedavg", "fedpref"], "learner.lr": [0.1, 0.2], "seeds": 2},
}
NAMES = ["algorithm=fedavg,lr=0.1", "algorithm=fedavg,lr=0.2", "algorithm=fedpref,lr=0.1", "algorithm=fedpref,lr=0.2"]


def changed(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**SPEC, **changes}.items() if value is not None}


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def never() -> bool:
    return False


def campaign_of(plan: list[grid.Planned], out: Path, stop: Callable[[], bool] = never) -> sweep.Campaign:
    return sweep.run(plan, out, 1, tallied("runs", len(plan), quiet=True), stop, write_summary)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> sweep.Campaign:
    return fedpareto.sweep(SPEC, tmp_path_factory.mktemp("sweep") / "out", quiet=True)


# -- which runs ----------------------------------------------------------------------------------------------------


def test_a_grid_has_a_run_for_each_combination_and_seeds_are_no_axis() -> None:
    plan = grid.plan([SPEC])
    assert [run.name for run in plan] == NAMES
    assert [(run.spec.algorithm.name, run.spec.learner.lr, run.spec.seeds) for run in plan] == [
        (algorithm, lr, (0, 1)) for algorithm in ("fedavg", "fedpref") for lr in (0.1, 0.2)
    ]


def test_keys_are_those_of_set_and_values_may_be_groups() -> None:
    axes = {"lr": [0.1, 0.2], "algorithm": ["local", {"name": "fedpref", "patience": 2}], "rounds": 7}
    plan = grid.plan([changed(sweep=axes)])
    assert [run.name for run in plan] == [
        f"lr={lr},algorithm={words}" for lr in (0.1, 0.2) for words in ("local", "fedpref-patience=2")
    ]
    assert {run.spec.rounds for run in plan} == {7}
    assert plan[3].spec.algorithm.patience == 2


def test_a_file_without_a_grid_is_one_run_as_it_would_be_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "one.yaml", "problem: convex\nrounds: 2\n")
    (run,) = grid.plan([path], ["lr=0.3"])
    assert (run.name, run.spec.learner.lr, run.spec.engine.chunk) == ("one", 0.3, 0)


def test_several_files_are_told_apart_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    paths = [
        written(tmp_path / "a.yaml", "problem: convex\nsweep: {lr: [0.1, 0.2]}\n"),
        written(tmp_path / "b.yaml", "problem: convex\nalgorithm: local\n"),
        written(tmp_path / "other" / "b.yaml", "problem: convex\nalgorithm: fedavg\n"),
    ]
    assert [run.name for run in grid.plan(paths)] == ["a,lr=0.1", "a,lr=0.2", "b-1", "b-2"]


def test_specs_that_differ_only_in_their_seeds_are_one_stack() -> None:
    alone = [changed(sweep=None, seeds=[seed]) for seed in (3, 1, 2, 1)]
    (run,) = grid.plan(alone)
    assert run.spec.seeds == (3, 1, 2)
    assert len(grid.plan([*alone[:2], changed(sweep=None, rounds=4)])) == 2


@pytest.mark.parametrize("change", [{"preferences": "sweep"}, {"privacy": "local"}], ids=["preferences", "privacy"])
def test_seeds_whose_results_depend_on_how_many_there_are_stay_apart(change: dict[str, Any]) -> None:
    assert len(grid.plan([changed(sweep=None, seeds=[seed], **change) for seed in (3, 4)])) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweep: {lr: [0.1, 0.1]}", "line 1: lr has a value twice"),
        ("rounds: 2\nsweep: {lr: []}", "line 2: lr has no values"),
        ("sweep:\n  algorithm.lr: [0.1]", "line 2: unknown parameter of algorithm fedpref 'lr'"),
        ("sweep:\n  lrr: [0.1]", "line 2: unknown parameter 'lrr'; did you mean 'lr'?"),
        ("sweep:\n  lr: [fast, slow]", "line 2: learner: lr is 'fast'"),
        ("sweep:\n  algorithm: [fedavgg]", "line 2: unknown algorithm 'fedavgg'; did you mean 'fedavg'?"),
        ("sweep:\n  seeds: 0", "line 2: seeds is 0; at least 1 is needed"),
        ("sweep: [0.1]", "line 1: sweep lists values by parameter, such as lr: [0.1, 0.01], not [0.1]"),
        ("sweep:\n  3: [4]", "line 1: 3 is no parameter"),
    ],
)
def test_a_mistake_names_file_and_line_before_anything_runs(text: str, words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "grid.yaml", text)
    with pytest.raises(UserError) as caught:
        grid.plan([path])
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)


def test_what_no_grid_can_be_is_said_in_one_line(tmp_path: Path) -> None:
    for sources, settings, words in (
        ([], (), "a sweep needs at least one spec"),
        ([SPEC], ["learner.lr=0.3"], "--set learner.lr=0.3: learner.lr is in the section 'sweep' of the file"),
        ([changed(sweep={"lr": list(range(1, 20_000))})], (), "at most 10,000 runs; here are 19,999"),
        ([tmp_path / "none.yaml"], (), "none.yaml cannot be read: No such file or directory"),
    ):
        with pytest.raises(UserError, match=words):
            grid.plan(sources, settings)


# -- what comes of them --------------------------------------------------------------------------------------------


def test_a_run_of_a_sweep_is_an_ordinary_run(done: sweep.Campaign, tmp_path: Path) -> None:
    learner, engine = {"lr": 0.2}, {"threads": 1, "chunk": 1024}
    fedpareto.run(
        "convex", "fedpref", clients=4, rounds=3, seeds=2, learner=learner, engine=engine, out=tmp_path / "alone"
    )
    assert_same_results(tmp_path / "alone", done.folder / NAMES[3])
    assert fedpareto.resume(done.folder / NAMES[0]) is None


def test_a_sweep_ends_with_one_table_and_one_page(done: sweep.Campaign) -> None:
    assert [run.status for run in done.runs] == ["finished"] * 4
    (summary,), (page,) = done.summaries, done.pages
    assert summary.axes == ["algorithm", "learner.lr"]
    assert [dict(one) for one in summary.settings][1] == {"algorithm": "fedavg", "learner.lr": "0.2"}
    assert summary.columns[0].key == "hypervolume"
    assert all(len(cells[0].values) == 2 for cells in summary.cells), "one value for each seed"
    assert page == done.folder / "comparison" / "index.html"
    assert "fedpref (algorithm=fedpref,lr=0.2)" in page.read_text(encoding="utf-8")
    record = json.loads((done.folder / "sweep.json").read_text(encoding="utf-8"))
    assert [run["name"] for run in record["runs"]] == NAMES


def test_what_is_finished_is_not_run_again_and_a_longer_list_runs_what_is_new(
    done: sweep.Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Path] = []
    ensure = sweep.ensure
    monkeypatch.setattr(sweep, "ensure", lambda folder, *rest: begun.append(folder) or ensure(folder, *rest))
    more = changed(sweep=SPEC["sweep"] | {"learner.lr": [0.1, 0.2, 0.3]})
    again = campaign_of(grid.plan([more])[:3], done.folder)
    assert begun == [done.folder / "algorithm=fedavg,lr=0.3"]
    assert [run.status for run in again.runs] == ["finished"] * 3


def test_a_failed_run_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    spec = changed(rounds=1, sweep={"faults.dropout": [1.0, 0.0]})
    campaign = fedpareto.sweep(spec, tmp_path / "out", quiet=True)
    assert [run.status for run in campaign.runs] == ["failed", "finished"]
    assert [run.name for run in campaign.failed] == ["dropout=1"]
    assert "without any reply no quorum can be met" in campaign.failed[0].reason
    assert campaign.to_plain()["runs"][0]["reason"] == campaign.failed[0].reason
    assert len(campaign.summaries[0].cells) == 1


def test_whatever_a_run_raises_is_its_own_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any) -> bool:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(sweep, "ensure", raises)
    campaign = campaign_of(grid.plan([SPEC]), tmp_path)
    assert {run.reason for run in campaign.failed} == {"ZeroDivisionError: by nothing"}
    assert len(campaign.failed) == 4


def test_problems_that_cannot_be_compared_have_a_table_and_a_page_each(tmp_path: Path) -> None:
    problems = ["convex", {"name": "convex", "goals": 3}]
    campaign = fedpareto.sweep(changed(rounds=1, sweep={"problem": problems}), tmp_path, quiet=True)
    assert [len(summary.cells) for summary in campaign.summaries] == [1, 1]
    assert [page.parent.name for page in campaign.pages] == ["comparison-1-convex", "comparison-2-convex"]


def test_a_stopped_sweep_goes_on_in_the_middle_of_a_run(done: sweep.Campaign, tmp_path: Path) -> None:
    asked = iter([False] * 6 + [True] * 100)
    with pytest.raises(Stopped, match="stopped after 1 of 4 runs"):
        campaign_of(grid.plan([SPEC]), tmp_path, lambda: next(asked))
    assert status(tmp_path / NAMES[1])["status"] == "stopped"
    campaign_of(grid.plan([SPEC]), tmp_path)
    for name in NAMES:
        assert_same_results(done.folder / name, tmp_path / name)


def test_a_killed_sweep_and_its_workers_leave_what_the_same_command_continues(
    server: Commands, done: sweep.Campaign, tmp_path: Path
) -> None:
    path = written(tmp_path / "grid.yaml", json.dumps(SPEC))
    words, log = ["sweep", path, "--jobs", "2", "--out", tmp_path / "out"], tmp_path / "log"
    killed = server.start(words, log)
    until(lambda: any((tmp_path / "out" / name / "metrics.jsonl").exists() for name in NAMES))
    killed.signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert server.run([*words, "--jobs", "1"], log) == 0, log.read_text()  # No second set of workers.
    for name in NAMES:
        assert_same_results(done.folder / name, tmp_path / "out" / name)


def test_another_sweep_in_the_folder_is_refused(done: sweep.Campaign, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds a run with rounds=3, not 4; choose another --out"):
        campaign_of(grid.plan([changed(rounds=4)]), done.folder)
    with pytest.raises(UserError, match="holds another sweep"):
        campaign_of(grid.plan([changed(sweep={"rounds": [1, 2]})]), done.folder)
    (tmp_path / "sweep.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DamagedFile, match="it is no record of a sweep"):
        campaign_of(grid.plan([SPEC]), tmp_path)
