"""Clients that drop out, answer late or send rubbish: the run goes on, and every refusal has a name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from fedpareto.config.errors import QuorumLost
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from folders import assert_same_results, assert_whole, rows, status

CLIENTS, ROUNDS, SEEDS = 10, 12, 2


def draft(algorithm: str = "fedpref", **top: object) -> Draft:
    faults = {"dropout": 0.3, "corrupt": 0.1}
    values = {"algorithm": algorithm, "problem": "convex", "clients": CLIENTS, "rounds": ROUNDS, "seeds": SEEDS}
    return Draft(values | {"engine": {"threads": 1, "chunk": 20}, "faults": faults} | top)


@pytest.mark.parametrize("algorithm", ["fedpref", "fedavg", "local", "fedprox+ft"])
def test_a_run_with_dropouts_and_corrupt_updates_completes_and_names_every_refusal(
    algorithm: str, tmp_path: Path
) -> None:
    start(draft(algorithm).finish(), tmp_path / "run")
    assert status(tmp_path / "run")["status"] == "finished"
    events = rows(tmp_path / "run", "events.jsonl")
    assert {event["client"] for event in events} <= set(range(CLIENTS))
    assert {event["round"] for event in events} <= set(range(1, ROUNDS + 1))
    assert len({(event["seed"], event["round"], event["client"]) for event in events}) == len(events)
    asked = CLIENTS * ROUNDS * SEEDS
    reasons = Counter("dropped out" if "dropped out" in event["reason"] else "refused" for event in events)
    # Three standard deviations of a binomial count.
    assert abs(reasons["dropped out"] - 0.3 * asked) < 3 * (asked * 0.3 * 0.7) ** 0.5
    if algorithm == "local":  # Nothing is sent that could be spoilt.
        assert not reasons["refused"]
    else:
        assert 0 < reasons["refused"] < 0.2 * asked
        whys = {event["reason"] for event in events}
        assert any("not finite" in why for why in whys)
        assert any("shape" in why for why in whys)


def test_a_round_in_which_nobody_of_a_cluster_replies_is_a_round_like_any_other(tmp_path: Path) -> None:
    small = draft(clients=6, rounds=40, faults={"dropout": 0.3}, engine={"threads": 1, "chunk": 12})
    start(small.finish(), tmp_path / "run")
    absent = {(event["seed"], event["round"]): set[int]() for event in rows(tmp_path / "run", "events.jsonl")}
    for event in rows(tmp_path / "run", "events.jsonl"):
        absent[event["seed"], event["round"]].add(event["client"])
    empty = [
        cluster
        for row in rows(tmp_path / "run")
        for cluster in row["clusters"]
        if absent.get((row["seed"], row["round"] + 1), set()) >= set(cluster)
    ]
    assert empty, "the case did not occur"


def test_each_rounds_replies_and_refusals_add_up(tmp_path: Path) -> None:
    start(draft().finish(), tmp_path / "run")
    events = Counter((event["seed"], event["round"]) for event in rows(tmp_path / "run", "events.jsonl"))
    for row in rows(tmp_path / "run"):
        if row["round"] < ROUNDS:
            assert row["replies"] + row["failures"] == CLIENTS
            assert row["failures"] == events[row["seed"], row["round"] + 1]


def test_below_the_quorum_a_run_fails_clearly_and_resumes_under_a_lower_one(tmp_path: Path) -> None:
    start(draft(quorum=0).finish(), tmp_path / "easy")
    fewest = min((row["replies"], row["round"]) for row in rows(tmp_path / "easy") if row["round"] < ROUNDS)
    need, failing = fewest[0] + 1, fewest[1] + 1
    strict = draft(quorum=need)
    with pytest.raises(QuorumLost, match=rf"only {fewest[0]} of {CLIENTS} clients .* quorum is {need} .*client \d"):
        start(strict.finish(), tmp_path / "run")
    ended = status(tmp_path / "run")
    assert (ended["status"], ended["round"]) == ("failed", failing - 1)
    assert f"round {failing}: only" in ended["message"]
    assert_whole(tmp_path / "run")
    with pytest.raises(QuorumLost):
        resume(tmp_path / "run")
    resume(tmp_path / "run", spec=strict.with_settings(["quorum=0"]).finish())
    assert_same_results(tmp_path / "easy", tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [change["quorum"] for change in record["changes"]] == [[need, 0.0]], "the change is on record"
    assert "quorum: 0.0" in (tmp_path / "run" / "spec.yaml").read_text()


def test_a_quorum_lost_in_the_first_round_leaves_a_checkpoint_too(tmp_path: Path) -> None:
    hopeless = draft(faults={"dropout": 0.9}, quorum=CLIENTS)
    with pytest.raises(QuorumLost, match="round 1:"):
        start(hopeless.finish(), tmp_path / "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    assert resume(tmp_path / "run", spec=hopeless.with_settings(["quorum=0", "dropout=0"]).finish()) is not None
