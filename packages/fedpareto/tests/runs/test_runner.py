from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg, FedAvgState
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract.messages import Replies
from fedpareto.engines.machine import Choices
from fedpareto.record import reading
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.runs.progress import Progress
from fedpareto.runs.result import Result
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft, load
from fedpareto.spec.spec import Spec
from fedpareto_page.comparison import write_comparison
from folders import assert_same_results, rows, status, without_times

ALGORITHMS = [
    "local",
    "fedavg",
    "fedprox",
    "fedpref",
    "fedpref-clustering",
    "fedpref-weighting",
    "fedavg+ft",
    "fedpref+ft",
]


def spec_of(algorithm: str = "fedpref", **top: Any) -> Spec:
    values = {
        "algorithm": algorithm,
        "problem": "convex",
        "clients": 5,
        "rounds": 4,
        "engine": {"threads": 1, "chunk": 4},
    }
    return Draft(values | top).finish()


def models(result: Result, run: int = 0) -> torch.Tensor:
    return torch.stack([result.models[run][client] for client in sorted(result.models[run])])


def stopped_after(rounds: int, spec: Spec, folder: Path) -> None:
    stops = iter([False] * (rounds - 1) + [True])
    with pytest.raises(Stopped):
        start(spec, folder, stop=lambda: next(stops))


# -- the same again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_same_seed_twice_is_bit_identical(algorithm: str, tmp_path: Path) -> None:
    for name in ("one", "two"):
        start(spec_of(algorithm, seeds=[3], participation=0.6), tmp_path / name)
    assert_same_results(tmp_path / "one", tmp_path / "two")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_seeds_run_together_equal_their_separate_runs(algorithm: str) -> None:
    together = start(spec_of(algorithm, seeds=3, participation=0.6))
    for seed in range(3):
        alone = start(spec_of(algorithm, seeds=[seed], participation=0.6))
        torch.testing.assert_close(models(alone), models(together, seed), rtol=0, atol=1e-6)
        for split, points in alone.solutions[0].values.items():
            assert points == pytest.approx(together.solutions[seed].values[split], abs=1e-6)
    assert not torch.equal(models(together, 0), models(together, 1))


def test_one_more_seed_changes_none_of_the_others() -> None:
    few, more = start(spec_of(seeds=[5, 2])), start(spec_of(seeds=[9, 5, 2]))
    assert torch.equal(models(few, 0), models(more, 1))
    assert torch.equal(models(few, 1), models(more, 2))


def test_the_spec_that_a_run_wrote_makes_the_same_run_again(tmp_path: Path) -> None:
    first = spec_of("fedprox+ft", seeds=2, participation=0.6, preferences="groups:2,3", faults={"dropout": 0.2})
    start(first, tmp_path / "one")
    start(load(tmp_path / "one" / "spec.yaml"), tmp_path / "two")
    assert_same_results(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "one" / "spec.yaml").read_bytes() == (tmp_path / "two" / "spec.yaml").read_bytes()


def test_the_history_of_a_resumed_run_is_that_of_an_undisturbed_one(tmp_path: Path) -> None:
    spec = spec_of(seeds=2, faults={"dropout": 0.3})
    undisturbed = start(spec)
    stopped_after(2, spec, tmp_path / "run")
    resumed = resume(tmp_path / "run")
    assert resumed is not None

    histories = ([without_times(row) for row in result.history] for result in (resumed, undisturbed))
    assert next(histories) == next(histories) == rows(tmp_path / "run")
    assert torch.equal(models(resumed), models(undisturbed))


def test_a_run_keeps_its_measured_choices_when_resumed(tmp_path: Path) -> None:
    spec = spec_of(engine={})
    stopped_after(1, spec, tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    Choices(**record["choices"])
    record["choices"] = {"threads": 1, "chunk": 3}  # As if measured so; nothing would measure 3.
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    resume(tmp_path / "run")
    start(spec_of(engine={"threads": 1, "chunk": 3}), tmp_path / "other")
    for name in ("models.safetensors", "solutions.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["choices"] == {"threads": 1, "chunk": 3}


# -- the record ------------------------------------------------------------------------------------------------------


def test_every_round_is_on_record_with_both_evaluations_on_both_splits(tmp_path: Path) -> None:
    result = start(spec_of(seeds=2), tmp_path / "run")
    record, read = rows(tmp_path / "run"), result.columns
    assert [(row["round"], row["seed"]) for row in record] == [(r, s) for r in range(5) for s in range(2)]
    for row in record:
        assert {split: len(means) for split, means in row["sent"].items()} == {"train": 2, "test": 2}
        sent, trained = read.evaluated(row, "sent"), read.evaluated(row, "trained")
        assert {split: points.shape for split, points in sent.items()} == {"train": (5, 2), "test": (5, 2)}
        assert row["sent"]["test"] == sent["test"].mean(axis=0).tolist()
        is_last = row["round"] == 4
        assert (row["trained"] is None) == (trained is None) == is_last, "nothing is trained after the last round"
        assert sorted(client for cluster in row["clusters"] for client in cluster) == list(range(5))
    before, after = record[0], record[2]
    assert before["trained"] != before["sent"]
    assert before["bytes_up"] == before["bytes_down"] == 5 * 8 * 4
    assert read.traffic(before).tolist() == [[8 * 4, 8 * 4]] * 5
    assert after["sent"] != before["sent"]


@pytest.mark.takes_long
def test_rounds_without_an_evaluation_train_the_same_models(tmp_path: Path) -> None:
    start(spec_of(seeds=2), tmp_path / "all")
    told: list[Progress] = []
    start(spec_of(seeds=2, evaluate_every=3), tmp_path / "some", told.append)
    record = rows(tmp_path / "some")
    assert [row["round"] for row in record if row.get("sent")] == [0, 0, 3, 3, 4, 4]
    assert [row["round"] for row in record if row["trained"]] == [0, 0, 3, 3]
    assert [np.isfinite(now.hypervolume) for now in told] == [True, False, False, True]
    assert all(row["bytes_up"] > 0 for row in record if row["round"] < 4)
    for name in ("models.safetensors", "solutions.json"):
        assert (tmp_path / "all" / name).read_bytes() == (tmp_path / "some" / name).read_bytes()
    found = reading.load(tmp_path / "some")
    assert found.common_rounds.tolist() == [0, 3, 4]
    assert np.isfinite(found.hypervolume).all()
    assert write_comparison([tmp_path / "some", tmp_path / "all"], tmp_path / "page").exists()


def test_a_stopped_run_shows_the_last_round_that_was_evaluated(tmp_path: Path) -> None:
    stopped_after(2, spec_of(evaluate_every=3), tmp_path / "run")
    assert reading.load(tmp_path / "run").solution(0).round == 0


def test_final_models_lie_in_one_file_by_seed_and_client(tmp_path: Path) -> None:
    result = start(spec_of(seeds=[4, 7]), tmp_path / "run")
    saved = Checkpoint.load(tmp_path / "run" / "models.safetensors")
    assert set(saved.tensors) == {f"seed{seed}/client{client}" for seed in (4, 7) for client in range(5)}
    assert torch.equal(saved.tensors["seed7/client3"], result.models[1][3])
    assert saved.values["layout"] == {"first.weight": [4], "second.weight": [4]}


def test_progress_is_told_after_every_round() -> None:
    told: list[Progress] = []
    start(spec_of(faults={"dropout": 0.3}), on_round=told.append)
    assert [(now.round, now.rounds) for now in told] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert 0 < told[0].hypervolume < told[-1].hypervolume
    assert 0 <= told[0].failures <= told[-1].failures


def test_stopping_in_the_last_round_is_finishing(tmp_path: Path) -> None:
    stops = iter([False, False, False, True])
    start(spec_of(), tmp_path / "run", stop=lambda: next(stops))
    assert status(tmp_path / "run")["status"] == "finished"


def test_resuming_a_finished_run_does_nothing(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert resume(tmp_path / "run") is None
    with pytest.raises(UserError, match="holds a finished run; see it with 'fedpareto show"):
        start(spec_of(), tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


# -- runs that go wrong ----------------------------------------------------------------------------------------------


TROUBLES = {
    "bug": RuntimeError("no such thing"),
    "mistake": UserError("a clear word"),
    "memory": MemoryError(),
    "second Ctrl-C": KeyboardInterrupt(),
}


@dataclass(frozen=True)
class Fragile(FedAvg):
    """Fails in its second round."""

    trouble: str = ""

    def tell(self, state: FedAvgState, replies: Replies) -> FedAvgState:
        if state.round == 1:
            raise TROUBLES[self.trouble]
        return super().tell(state, replies)


@pytest.mark.parametrize(
    ("trouble", "ended", "message"),
    [
        ("bug", "failed", "RuntimeError: no such thing"),
        ("mistake", "failed", "a clear word"),
        ("memory", "failed", "MemoryError"),
        ("second Ctrl-C", "stopped", "interrupted in round 2 of 4 rounds"),
    ],
)
def test_the_status_says_how_a_run_ended(trouble: str, ended: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(type(TROUBLES[trouble])):
        start(replace(spec_of(), algorithm=Fragile(trouble=trouble)), tmp_path / "run")
    now = status(tmp_path / "run")
    assert (now["status"], now["round"], now["message"]) == (ended, 1, message)


def test_a_client_whose_training_diverges_has_no_solution_and_an_event_says_so(tmp_path: Path) -> None:
    # Each step multiplies the error by −4, and the larger clients do more steps: theirs overflows.
    spec = spec_of("local", learner={"lr": 5.0, "batch_size": 1}, rounds=1)
    result = start(spec, tmp_path / "run")
    kept = set(result.solutions[0].clients)
    assert 0 < len(kept) < 5
    lost = {event["client"] for event in rows(tmp_path / "run", "events.jsonl")}
    assert kept | lost == set(range(5))
    assert not kept & lost
    assert len(result.solutions[0].preferences) == len(kept)
    assert status(tmp_path / "run")["status"] == "finished"


def test_a_run_in_which_all_clients_diverge_fails_with_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"seed 0: training diverged.*a smaller lr may help"):
        start(spec_of("local", learner={"lr": 1000.0}, rounds=20), tmp_path / "run")
    assert status(tmp_path / "run")["status"] == "failed"


@pytest.mark.parametrize("preferences", ["groups:2,2", [[1.0, 0.0]] * 4])
def test_a_run_that_cannot_begin_leaves_nothing_behind(preferences: Any, tmp_path: Path) -> None:
    spec = replace(spec_of(), preferences=preferences)
    with pytest.raises(UserError):
        start(spec, tmp_path / "deep" / "run")
    assert not (tmp_path / "deep" / "run").exists()


# -- folders that were tampered with ---------------------------------------------------------------------------------


def test_a_spec_edited_under_way_is_refused_with_what_differs(tmp_path: Path) -> None:
    stopped_after(2, spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "spec.yaml"
    path.write_text(path.read_text().replace("lr: 0.1", "lr: 0.2"))
    with pytest.raises(UserError, match=r"spec\.yaml was changed .*: learner\.lr is 0\.2, it was 0\.1"):
        resume(tmp_path / "run")


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    stopped_after(2, spec_of(), tmp_path / "run")
    stopped_after(2, spec_of(clients=6), tmp_path / "other")
    (tmp_path / "other" / "checkpoint.safetensors").rename(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(UserError, match="clients is 5, it was 6"):
        resume(tmp_path / "run")


def test_a_file_of_models_is_no_checkpoint(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "done")
    stopped_after(2, spec_of(), tmp_path / "run")
    (tmp_path / "done" / "models.safetensors").rename(tmp_path / "run" / "checkpoint.safetensors")
    with pytest.raises(DamagedFile, match="not a run's checkpoint; delete it to begin the run again"):
        resume(tmp_path / "run")


def test_a_checkpoint_whose_clusters_are_none_is_damaged(tmp_path: Path) -> None:
    """Nobody asks for a model of theirs, so it would show in the next round only."""
    stopped_after(2, spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint = Checkpoint.load(path)
    state = checkpoint.values["state/0"]["fields"]
    assert "tuple" in state["clusters"]
    state["clusters"] = {"tuple": ["fields"]}
    checkpoint.save(path)
    with pytest.raises(DamagedFile, match=r"checkpoint\.safetensors"):
        resume(tmp_path / "run")


def test_a_deleted_checkpoint_means_beginning_again(tmp_path: Path) -> None:
    start(spec_of(), tmp_path / "undisturbed")
    stopped_after(3, spec_of(), tmp_path / "run")
    (tmp_path / "run" / "checkpoint.safetensors").unlink()
    resume(tmp_path / "run")
    assert_same_results(tmp_path / "undisturbed", tmp_path / "run")


def test_lost_lines_of_the_record_are_noticed(tmp_path: Path) -> None:
    stopped_after(3, spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DamagedFile, match=r"metrics\.jsonl is damaged: \d+ bytes are left of at least \d+"):
        resume(tmp_path / "run")


def test_a_change_of_versions_is_put_on_record(tmp_path: Path) -> None:
    stopped_after(1, spec_of(), tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    record = json.loads(path.read_text())
    now = dict(record["versions"])
    record["versions"]["torch"] = "1.0"
    path.write_text(json.dumps(record))
    resume(tmp_path / "run")
    after = json.loads(path.read_text())
    assert after["versions"] == now
    assert after["changes"] == [{"round": 1, "versions": [now | {"torch": "1.0"}, now]}]
