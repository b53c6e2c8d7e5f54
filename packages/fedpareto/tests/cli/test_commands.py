from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedpareto.cli import completion
from fedpareto.clock.policy import Policy
from fedpareto.config.parameters import field_names
from fedpareto.contract import registry
from fedpareto.report.axes import OVER
from fedpareto.spec import backends
from fedpareto.spec.draft import load

QUICK = ("--problem", "convex", "--clients", "4", "--rounds", "3", "--set", "threads=1", "--set", "chunk=4")


def test_run_alone_works(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    answer = fedpareto("run", "--rounds", "1", "--quiet")
    assert answer.code == 0
    assert answer.err == ""
    assert "run: runs/fedpref-synthetic   see it: fedpareto show runs/fedpref-synthetic\n" in answer.out
    assert json.loads((tmp_path / "runs/fedpref-synthetic/status.json").read_text())["status"] == "finished"


def test_unnamed_runs_get_folders_of_their_own(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    for _ in range(3):
        assert fedpareto("run", "fedavg+ft", *QUICK, "--quiet").code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert names == ["fedavg+ft-convex", "fedavg+ft-convex-2", "fedavg+ft-convex-3"]


def test_unnamed_runs_that_begin_at_once_do_not_meet(tmp_path: Path) -> None:
    from fedpareto.config.files import free_folder

    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(free_folder(tmp_path, "run"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 20


def test_a_run_that_cannot_begin_leaves_no_folder(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    assert fedpareto("run", *QUICK, "--set", "device=nonsense").code == 2
    assert not list(tmp_path.iterdir())


def test_flags_and_file_on_the_command_line_give_the_same_run(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    flags = ("--seeds", "2", "--preferences", "0.6,0.4", "--participation", "0.5", "--set", "lr=0.05")
    assert fedpareto("run", "fedprox", *QUICK, *flags, "--out", "one", "--quiet").code == 0
    assert fedpareto("run", "--spec", "one/spec.yaml", "--out", "two", "--quiet").code == 0
    for name in ("spec.yaml", "models.safetensors", "solutions.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert fedpareto("run", "--spec", "one/spec.yaml", "--rounds", "2", "--out", "three", "--quiet").code == 0
    assert (load(tmp_path / "three/spec.yaml").rounds, load(tmp_path / "three/spec.yaml").clients) == (2, 4)


def test_resuming_a_finished_run_says_so(fedpareto: Callable[..., Any]) -> None:
    fedpareto("run", *QUICK, "--out", "my run", "--quiet")
    answer = fedpareto("resume", "my run")
    assert answer.code == 0
    assert answer.out == "my run is finished already; see it with: fedpareto show 'my run'\n"


def test_a_run_that_was_killed_before_its_first_round_was_over_can_be_continued(
    fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    fedpareto("run", *QUICK, "--out", "run", "--quiet")
    before = (tmp_path / "run/models.safetensors").read_bytes()
    for name in ("metrics.jsonl", "checkpoint.safetensors", "models.safetensors", "solutions.json"):
        (tmp_path / "run" / name).unlink()
    (tmp_path / "run/status.json").write_text('{"status": "running", "round": 0}')
    answer = fedpareto("show", "run")
    assert answer.code == 2
    assert answer.err == (
        "Error: run: no rounds yet (status: running); no process is working on this run; "
        "continue it with: fedpareto resume run\n"
    )
    assert fedpareto("resume", "run").code == 0
    assert (tmp_path / "run/models.safetensors").read_bytes() == before


def test_show_and_compare_tell_of_runs(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    for algorithm in ("fedavg", "fedpref"):
        fedpareto("run", algorithm, *QUICK, "--seeds", "2", "--out", algorithm, "--quiet")
    shown = fedpareto("show", "fedpref")
    assert shown.code == 0
    assert "fedpref on convex" in shown.out
    assert "no process is working" not in shown.out
    compared = fedpareto("compare", "fedavg", "fedpref", "--out", "both", "--figures")
    assert compared.code == 0, compared.err
    assert "fedavg" in compared.out
    pages = [line.split()[-1] for line in compared.out.splitlines() if line.startswith(("page:", "picture:"))]
    assert len(pages) == 2
    assert all((tmp_path / page).stat().st_size for page in pages)


def test_algorithms_lists_every_one_with_its_place_in_the_taxonomy(fedpareto: Callable[..., Any]) -> None:
    listed = fedpareto("algorithms").out
    for name, cls in registry.algorithms().items():
        row = next(line for line in listed.splitlines() if line.startswith(f"│ {name} "))
        for label in (cls.taxonomy.level, cls.taxonomy.family, cls.taxonomy.method, cls.taxonomy.objectives):
            assert label in row


@pytest.mark.parametrize("name", [*registry.algorithms(), "fedpref+ft"])
def test_every_hyper_parameter_is_listed_with_default_and_meaning(name: str, fedpareto: Callable[..., Any]) -> None:
    listed = fedpareto("algorithms", name).out
    for parameter in field_names(registry.algorithm_class(name)):
        row = next(line for line in listed.splitlines() if line.startswith(f"│ {parameter} "))
        assert all(cell.strip() for cell in row.strip("│").split("│")), row


@pytest.mark.parametrize("name", list(registry.problems()))
def test_every_parameter_of_a_problem_is_listed_with_default_and_meaning(
    name: str, fedpareto: Callable[..., Any]
) -> None:
    assert f"│ {name} " in fedpareto("problems").out
    listed = fedpareto("problems", name).out
    for parameter in field_names(registry.problem_class(name)):
        row = next(line for line in listed.splitlines() if line.startswith(f"│ {parameter} "))
        assert all(cell.strip() for cell in row.strip("│").split("│")), row


def test_the_networks_of_a_problem_are_listed(fedpareto: Callable[..., Any]) -> None:
    assert (
        "networks (model): cnn, cnn-small, cnn-femnist, resnet-18, mlp, logistic"
        in fedpareto("problems", "mnist-writers").out
    )
    assert "networks" not in fedpareto("problems", "convex").out


def test_a_comparison_that_is_refused_leaves_no_folder_behind(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    fedpareto("run", "fedavg", *QUICK, "--out", "convex", "--quiet")
    fedpareto("run", "fedavg", "--problem", "synthetic", "--clients", "2", "--rounds", "1", "--out", "other", "--quiet")
    refused = fedpareto("compare", "convex", "other")
    assert refused.code == 2
    assert "cannot compare runs with different" in refused.err
    assert not (tmp_path / "runs").exists()


def test_quiet_prints_nothing_but_the_result(fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("run", *QUICK, "--quiet")
    assert answer.err == ""
    first, *_, last = answer.out.splitlines()
    assert first.startswith("hypervolume ")
    assert last.startswith("run: ")


TIMED = ("--devices", "equal", "--policy", "buffered", "--set", "policy.buffer=2", "--selection", "oort")


def test_flags_say_for_whom_a_round_waits_and_who_is_asked(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    """The words of a file stay with their parameters where a flag says the same, and not where it says another."""
    answer = fedpareto("run", "fedavg", *QUICK, *TIMED, "--out", "one")
    assert answer.code == 0, answer.err
    simulated = [line for line in answer.err.splitlines() if ", simulated " in line]
    assert len(simulated) == 3, "every line of progress"
    end = r"^simulated [\d.]+ \w+, [\d.]+ \w+, replies \d\.\d rounds old on average$"
    assert re.search(end, answer.out, re.MULTILINE)
    one = load(tmp_path / "one/spec.yaml")
    assert (one.devices.kind, one.selection.kind) == ("equal", "oort")
    assert (one.policy.kind, one.policy.buffer) == ("buffered", 2)
    same = ("--spec", "one/spec.yaml", "--policy", "buffered", "--devices", "equal", "--selection", "random")
    assert fedpareto("run", *same, "--out", "two", "--quiet").code == 0
    two = load(tmp_path / "two/spec.yaml")
    assert (two.policy, two.devices) == (one.policy, one.devices)
    other = fedpareto("run", "--spec", "one/spec.yaml", "--policy", "sync", "--devices", "none", "--out", "three")
    assert load(tmp_path / "three/spec.yaml").policy == Policy()
    assert "simulated" not in other.out + other.err


def test_words_that_a_shell_completes_are_those_that_there_are() -> None:
    assert completion.engine_names() == backends.names()
    assert completion.OVER == OVER


def test_a_run_is_shown_over_any_axis_that_it_has(fedpareto: Callable[..., Any]) -> None:
    fedpareto("run", "fedavg", *QUICK, *TIMED, "--out", "timed", "--quiet")
    assert " of clock time" in " ".join(fedpareto("show", "timed").out.split())
    assert "energy to 95 % " in fedpareto("show", "timed", "--over", "joules").out
    values = json.loads(fedpareto("show", "timed", "--json").out)["metrics"]
    assert values["clock"]["mean"] >= values["nearly"]["mean"] > 0
    fedpareto("run", "fedavg", *QUICK, "--out", "plain", "--quiet")
    refused = fedpareto("compare", "timed", "plain", "--over", "clock")
    assert refused.code == 2
    assert refused.err == (
        "Error: plain cannot be drawn over clock: it was run without devices; "
        "these can be over round, bytes, updates, seconds\n"
    )
