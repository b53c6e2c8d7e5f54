"""What TensorBoard and MLflow are told of a run, read back with their own readers."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.runs import logged
from fedpareto.runs.callbacks import Ending
from fedpareto.runs.log_mlflow import MLflow
from fedpareto.runs.log_tensorboard import TensorBoard
from fedpareto.runs.loop import Experiment
from fedpareto.runs.progress import Progress
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from folders import assert_same_results, rows

pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")  # MLflow's, of SQLAlchemy 2.1.
SEEDS = (4, 7)
WANTED = "0.123456,0.876544;0.25,0.75;0.5,0.5"
Histories = dict[str, dict[int, float]]
"""By name and step."""


def spec_of(**top: Any) -> Spec:
    values = {
        "algorithm": "fedpref",
        "problem": "convex",
        "clients": 3,
        "rounds": 4,
        "seeds": list(SEEDS),
        "engine": {"threads": 1, "chunk": 4},
    }
    return Draft(values | top).finish()


def in_tensorboard(folder: Path) -> dict[int, Histories]:
    """What TensorBoard shows, by seed; no step may be there twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for seed in SEEDS:
        events = EventAccumulator(str(folder / f"seed-{seed}"), size_guidance={"scalars": 0}).Reload()
        found[seed] = {
            tag: once([(one.step, one.value) for one in events.Scalars(tag)]) for tag in events.Tags()["scalars"]
        }
    return found


def in_mlflow(uri: str, folder: Path) -> dict[int, Histories]:
    """What MLflow has of a run's seeds; no step may be there twice."""
    from mlflow import MlflowClient

    client, found = MlflowClient(uri), {}
    for seed, run_id in json.loads((folder / "mlflow.json").read_text()).items():
        names = client.get_run(run_id).data.metrics
        histories = {name: client.get_metric_history(run_id, name) for name in names}
        found[int(seed)] = {name: once([(one.step, one.value) for one in of]) for name, of in histories.items()}
    return found


def once(steps: list[tuple[int, float]]) -> dict[int, float]:
    assert len({step for step, _ in steps}) == len(steps), "a step is there twice"
    return dict(steps)


def in_folder(folder: Path) -> dict[int, Histories]:
    """The same by hand, from the lines of metrics.jsonl and the indicators of solutions.json."""
    found: dict[int, Histories] = {seed: {} for seed in SEEDS}

    def note(seed: int, name: str, step: int, value: Any) -> None:
        if type(value) in (int, float):
            found[seed].setdefault(name, {})[step] = value

    for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        seed, step = row["seed"], row["round"]
        for name in row.keys() - {"seed", "round", "at"}:
            note(seed, name, step, row[name])
        for kind in ("sent", "trained"):
            for split, means in (row[kind] or {}).items():
                for place, mean in enumerate(means, start=1):
                    note(seed, f"{kind}/{split}/distance {place}", step, mean)
    for solutions in json.loads((folder / "solutions.json").read_text()):
        for name, value in solutions["indicators"].items():
            note(solutions["seed"], f"final/{name}", solutions["round"], value)
    return found


def assert_same(found: Mapping[int, Histories], expected: Mapping[int, Histories], digits: float) -> None:
    assert found.keys() == expected.keys()
    for seed in expected:
        assert found[seed].keys() == expected[seed].keys()
        for name in expected[seed]:
            assert found[seed][name] == pytest.approx(expected[seed][name], rel=digits), name


def database(folder: Path) -> str:
    return f"sqlite:///{folder / 'mlflow.db'}"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that both were told of, and beside it the same one without."""
    folder = tmp_path_factory.mktemp("logged")
    start(spec_of(preferences=WANTED), folder / "run", log_to=["tensorboard", f"mlflow:{database(folder)}"])
    start(spec_of(preferences=WANTED), folder / "alone")
    return folder


def test_tensorboard_has_every_figure_of_every_round(both: Path) -> None:
    found = in_tensorboard(both / "run" / "tensorboard")
    assert_same(found, in_folder(both / "run"), digits=1e-6)
    assert {"hypervolume", "trained_hypervolume", "replies", "failures", "bytes_up", "seconds"} <= found[4].keys()
    assert list(found[4]["sent/test/distance 1"]) == [0, 1, 2, 3, 4]


def test_mlflow_has_every_figure_of_every_round_exactly(both: Path) -> None:
    expected = in_folder(both / "run")
    for histories in expected.values():
        histories["round"] = {step: step for step in range(5)}
    assert_same(in_mlflow(database(both), both / "run"), expected, digits=0)


def test_mlflow_has_the_spec_and_how_it_ended(both: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(database(both))
    experiment = client.get_experiment_by_name("convex")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in runs} == {"run, seed 4", "run, seed 7"}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert {run.data.params["seed"] for run in runs} == {"4", "7"}
    assert runs[0].data.params["algorithm.name"] == "fedpref"
    assert runs[0].data.params["clients"] == "3"


def test_tensorboard_has_the_spec_as_hyper_parameters(both: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    events = EventAccumulator(str(both / "run" / "tensorboard" / "seed-7")).Reload()
    content = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    found = metadata.parse_session_start_info_plugin_data(content).hparams
    assert found["algorithm.name"].string_value == "fedpref"
    assert found["rounds"].number_value == 4
    assert found["seed"].number_value == 7


def test_nobody_is_told_what_a_client_wants_or_has(both: Path) -> None:
    kept = b"".join(path.read_bytes() for path in (both / "run" / "tensorboard").rglob("*tfevents*"))
    kept += (both / "mlflow.db").read_bytes()
    assert b"fedpref" in kept
    wanted = [0.123456, 0.876544]
    own = [value for one in solutions_of(both / "run") for value in np.ravel(one["objectives"]["test"])]
    for value in [*wanted, *own]:
        assert repr(value).encode() not in kept
        assert struct.pack("<f", value) not in kept
        assert struct.pack(">d", value) not in kept


def solutions_of(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "solutions.json").read_text())
    return found


def test_of_a_spec_nothing_is_told_that_is_private_or_says_where_data_are() -> None:
    told = {name: logged.parameters_of(spec_of(preferences=name))["preferences"] for name in ("gaussian", WANTED)}
    assert told == {"gaussian": "gaussian", WANTED: "given"}
    assert logged.parameters_of(spec_of(preferences="groups:1,2"))["preferences"] == "groups"
    in_a_file = OwnTable(file="people.csv", label="hired", sensitive=("gender",))
    in_a_database = replace(in_a_file, file="", sql="sqlite:///secret.db", query="SELECT * FROM people")
    for problem in (in_a_file, in_a_database):
        told = logged.parameters_of(replace(spec_of(), problem=problem))
        assert told["problem.label"] == "hired"
        assert not [text for text in map(str, told.values()) if "secret" in text or "people" in text]


def test_a_run_that_is_logged_is_bit_identical_to_one_that_is_not(both: Path) -> None:
    assert_same_results(both / "run", both / "alone")


def with_an_older_checkpoint(log_to: list[str], folder: Path) -> None:
    """A run that was logged for three rounds, with the checkpoint of the first: as if it had been killed."""

    def keep(now: Progress) -> None:
        if now.round == 1:
            shutil.copy(folder / "checkpoint.safetensors", folder.parent / "older")

    stops = iter([False, False, True])
    with pytest.raises(Stopped):
        start(spec_of(), folder, keep, stop=lambda: next(stops), log_to=log_to)
    shutil.move(folder.parent / "older", folder / "checkpoint.safetensors")


def test_a_resumed_run_goes_on_in_tensorboard_without_doubled_steps(tmp_path: Path) -> None:
    with_an_older_checkpoint(["tensorboard:" + str(tmp_path / "logs")], tmp_path / "run")
    assert list(in_tensorboard(tmp_path / "logs" / "run")[4]["hypervolume"]) == [0, 1, 2]
    resume(tmp_path / "run", log_to=f"tensorboard:{tmp_path / 'logs'}")
    assert_same(in_tensorboard(tmp_path / "logs" / "run"), in_folder(tmp_path / "run"), digits=1e-6)


@pytest.mark.takes_long
def test_a_resumed_run_goes_on_in_the_same_runs_of_mlflow(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    with_an_older_checkpoint([f"mlflow:{database(tmp_path)}"], tmp_path / "run")
    before = in_mlflow(database(tmp_path), tmp_path / "run")
    assert list(before[7]["hypervolume"]) == [0, 1, 2]
    resume(tmp_path / "run", log_to=f"mlflow:{database(tmp_path)}")
    found, expected = in_mlflow(database(tmp_path), tmp_path / "run"), in_folder(tmp_path / "run")
    for seed in SEEDS:
        assert found[seed].keys() == expected[seed].keys() | {"round"}
        for name in expected[seed].keys() - {"seconds"}:  # Which are those of the first time.
            assert found[seed][name] == expected[seed][name], name
    runs = MlflowClient(database(tmp_path)).search_runs(["1"])
    assert [run.info.status for run in runs] == ["FINISHED", "FINISHED"]


def test_a_run_that_begins_to_be_logged_when_it_is_resumed_is_logged_whole(tmp_path: Path) -> None:
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(spec_of(), tmp_path / "run", stop=lambda: next(stops))
    fedpareto.resume(tmp_path / "run", log_to="tensorboard")
    assert_same(in_tensorboard(tmp_path / "run" / "tensorboard"), in_folder(tmp_path / "run"), digits=1e-6)


class Fragile(logged.Log):
    """Keeps rounds until it fails."""

    def __init__(self, about: logged.About, last: int) -> None:
        super().__init__(about)
        self.last, self.seen = last, list[int]()

    def begin(self) -> None: ...

    def figures(self, seed: int, round: int, at: float, values: Mapping[str, float]) -> None:
        if round > self.last:
            raise OSError("no space left on device")
        self.seen.append(round)

    def final(self, seed: int, round: int, values: Mapping[str, float]) -> None:
        raise AssertionError("it was to be left alone")

    def flush(self) -> None: ...

    def end(self, how: Ending) -> None:
        raise AssertionError("it was to be left alone")


def test_a_log_that_fails_warns_once_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    from fedpareto.spec import backends

    spec = spec_of()
    fragile = Fragile(logged.About("run", "convex", SEEDS, {}), last=1)
    with backends.opened(spec) as engine:
        result = Experiment(spec, engine).run(callbacks=[logged.Teller([fragile])])
    assert len(result.history) == len(SEEDS) * 5
    assert fragile.seen == [0, 0, 1, 1]
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == "no longer logged to Fragile: no space left on device; the run goes on"


def in_a_file(folder: Path) -> str:
    (folder / "file").write_text("not a folder")
    return f"tensorboard:{folder / 'file'}"


@pytest.mark.parametrize("where", [in_a_file, lambda folder: "mlflow:http://127.0.0.1:9"], ids=["disk", "server"])
def test_a_tool_that_cannot_be_reached_does_not_end_the_run(
    where: Callable[[Path], str], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    result = start(spec_of(rounds=2), tmp_path / "run", log_to=where(tmp_path))
    assert len(rows(tmp_path / "run")) == len(result.history) == len(SEEDS) * 3
    (message,) = [record.getMessage() for record in caplog.records if record.name == "fedpareto.run"]
    assert message.startswith("no longer logged to")


@pytest.mark.parametrize(("tool", "package"), [(TensorBoard, "tensorboard"), (MLflow, "mlflow")])
def test_without_its_package_a_tool_says_how_to_get_it(
    tool: type[Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"pip install 'fedpareto\[{package}\]'"):
        tool(logged.About("run", "convex", SEEDS, {}, Path("run")))


def test_words_that_are_no_tool_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be logged to 'wandb'; it is mlflow or tensorboard"):
        start(spec_of(), tmp_path / "run", log_to="wandb")
    with pytest.raises(UserError, match="tensorboard:DIR"):
        fedpareto.run("convex", rounds=1, log_to="tensorboard")
    assert not list(tmp_path.iterdir())
