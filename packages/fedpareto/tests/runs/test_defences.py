"""Defences between replies and algorithms: what is told, whom they fit, and that they help in whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Setting
from fedpareto.contract.messages import Replies, Tasks
from fedpareto.contract.privacy import Privacy
from fedpareto.problems.convex import Convex
from fedpareto.runs import runner
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft, load
from fedpareto.spec.spec import Spec
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence
from folders import assert_same_results, rows

RULES = ("clip", "median", "trimmed-mean", "krum", "multi-krum", "fedmgda-plus", "confidence")
FAST = {"threads": 1, "chunk": 16}


Exchange = tuple[list[Tasks], Replies]


@pytest.fixture
def exchange() -> Exchange:
    """Seven honest updates near one another and two far away, whose clients also claim many rows."""
    stream = torch.Generator().manual_seed(3)
    models = 1 + 0.1 * torch.randn(9, 5, generator=stream)
    models[[2, 6]] = 100.0
    sizes = torch.arange(1.0, 10.0)
    sizes[[2, 6]] = 1e6
    tasks = Tasks(np.arange(9), {"model": torch.full((5,), 0.5)}, round=1)
    return [tasks], Replies(np.arange(9), {"model": models, "size": sizes})


def told_model(tasks: list[Tasks], replies: Replies, rule: str, name: str = "fedavg", **more: Any) -> Tensor:
    """The model of an algorithm that averages, after a defence."""
    problem = Convex(dimension=5)
    algorithm = registry.make_algorithm(name, {})
    initial = tasks[0].shared["model"]
    setting = Setting(0, tasks[0].clients, 3, problem.layout, problem.objectives, initial)
    defended = Defence(rule=rule, **more).applied(tasks, replies)  # type: ignore[arg-type]
    model: Tensor = algorithm.tell(algorithm.begin(setting), defended.replies).model
    return model


# -- what is told --------------------------------------------------------------------------------------------------


def test_without_a_rule_an_algorithm_is_told_the_very_replies(exchange: Exchange) -> None:
    tasks, replies = exchange
    told = Defence().applied(tasks, replies)
    assert told.replies is replies
    assert told.notes() == {}


def test_fedavg_is_led_astray_and_rules_about_distances_ignore_both_the_updates_and_the_counts(
    exchange: Exchange,
) -> None:
    tasks, replies = exchange
    honest = replies["model"][[client not in (2, 6) for client in range(9)]]
    assert (told_model(tasks, replies, "none") > 99).all()
    for rule in set(RULES) - {"clip", "confidence"}:
        model = told_model(tasks, replies, rule, attackers=2)
        near = 0.75 if rule == "fedmgda-plus" else 1e-6  # Its direction is a mixture of all, its length is not.
        assert (model >= honest.amin(0) - near).all(), rule
        assert (model <= honest.amax(0) + near).all(), rule


def test_the_rules_aggregates_are_what_fedavg_ends_with(exchange: Exchange) -> None:
    tasks, replies = exchange
    models = replies["model"].numpy()
    ordered = np.sort(models, axis=0)
    np.testing.assert_allclose(told_model(tasks, replies, "median"), ordered[4], rtol=1e-6)
    np.testing.assert_allclose(told_model(tasks, replies, "trimmed-mean", attackers=2), ordered[2:7].mean(0), rtol=1e-6)
    honest = np.delete(models, [2, 6], axis=0)
    np.testing.assert_allclose(told_model(tasks, replies, "multi-krum", attackers=2), honest.mean(0), rtol=1e-6)


def test_one_update_for_all_is_still_a_row_for_each_client(exchange: Exchange) -> None:
    """An algorithm may take a median over replies, which torch gets wrong where rows are the same memory."""
    told = Defence(rule="median").applied(*exchange).replies["model"]
    assert told.shape == (9, 5)
    assert torch.equal(told.median(dim=0).values, told[0])


def test_krum_tells_one_reply_and_names_the_others(exchange: Exchange) -> None:
    tasks, replies = exchange
    told = Defence(rule="krum", attackers=2).applied(tasks, replies)
    (kept,) = told.replies.clients.tolist()
    assert kept not in (2, 6)
    assert torch.equal(told.replies["model"], replies["model"][[kept]])
    assert set(told.left_out) == set(range(9)) - {kept}
    assert Defence(rule="multi-krum", attackers=2).applied(tasks, replies).notes() == {"left_out": [2, 6]}


def test_clip_shortens_to_the_given_norm_or_to_the_median_length(exchange: Exchange) -> None:
    tasks, replies = exchange
    told = Defence(rule="clip", norm=3.0).applied(tasks, replies)
    assert told.notes() == {"shortened": [2, 6]}
    assert torch.equal(told.replies["size"], replies["size"]), "clip believes counts"
    for client, (before, after) in enumerate(zip(replies["model"], told.replies["model"], strict=True)):
        if client in (2, 6):
            assert float((after - 0.5).norm()) == pytest.approx(3.0, rel=1e-5)
        else:
            assert torch.equal(after, before)
    told = Defence(rule="clip").applied(tasks, replies)
    lengths = (replies["model"] - 0.5).norm(dim=1).sort().values
    assert float((told.replies["model"] - 0.5).norm(dim=1).max()) == pytest.approx(float(lengths[4]))
    assert len(told.shortened) == 4


def test_replies_without_a_model_pass_and_a_training_without_one_is_an_error() -> None:
    one = np.zeros(1)
    tasks = [Tasks(one, {"model": torch.zeros(3)}, round=1, step="measure")]
    replies = Replies(one, {"values": torch.ones(1, 2)}, "measure")
    assert torch.equal(Defence(rule="median").applied(tasks, replies).replies["values"], replies["values"])
    with pytest.raises(UserError, match="replies hold no model"):
        Defence(rule="clip").applied([Tasks(one, round=1)], Replies(one, {"head": torch.ones(1, 2)}))


# -- whom they fit -------------------------------------------------------------------------------------------------

NO_MODEL = {"local", "lft-ensemble"}
CLUSTERS = {"fedpref", "fedpref-clustering", "fedpref-public", "fedpref-weighting", "cfl"}
NO_SERVER = {"dsfl", "gossip-fedavg", "gossip-fedpref", "dmoead"}


@pytest.mark.parametrize("name", registry.algorithms())
def test_every_rule_fits_every_algorithm_whose_clients_send_models_but_for_reasons_that_are_said(name: str) -> None:
    algorithm = registry.make_algorithm(name, {})
    for rule in RULES:
        why = "its clients send no model" if name in NO_MODEL else ""
        why = why or ("its clients also send change" if name == "scaffold" and rule != "clip" else "")
        why = why or ("it has no server" if name in NO_SERVER and rule != "clip" else "")
        why = why or ("who is blocked does not reply" if name in CLUSTERS and rule == "confidence" else "")
        defence = Defence(rule=rule)  # type: ignore[arg-type]
        if not why:
            defence.must_fit(algorithm, Privacy(), 10)
            continue
        with pytest.raises(UserError, match=rf"^defence.rule={rule} does not fit {name}: {why}"):
            defence.must_fit(algorithm, Privacy(), 10)


def test_noise_on_a_mean_is_refused() -> None:
    algorithm = registry.make_algorithm("fedavg", {"weighting": "equal"})
    for defence in (Defence(rule="median"), Defence(rule="clip")):
        with pytest.raises(UserError, match=r"privacy\.kind=central"):
            defence.must_fit(algorithm, Privacy("central"), 10)
        defence.must_fit(algorithm, Privacy("local"), 10)
    Defence(rule="clip", norm=1.0).must_fit(algorithm, Privacy("central"), 10)


@pytest.mark.parametrize(("rule", "needed"), [("trimmed-mean", 5), ("krum", 7), ("multi-krum", 7)])
def test_too_few_clients_for_so_many_attackers_are_refused(rule: str, needed: int) -> None:
    defence = Defence(rule=rule, attackers=2)  # type: ignore[arg-type]
    algorithm = registry.make_algorithm("fedavg", {})
    defence.must_fit(algorithm, Privacy(), needed)
    with pytest.raises(UserError, match=f"against 2 attackers it needs at least {needed} clients"):
        defence.must_fit(algorithm, Privacy(), needed - 1)
    with pytest.raises(UserError, match="against 1 attacker it needs"):
        Defence(rule=rule, attackers=1).must_fit(algorithm, Privacy(), 2)  # type: ignore[arg-type]


def test_a_rule_that_needs_no_majority_fits_a_single_client() -> None:
    algorithm = registry.make_algorithm("fedavg", {})
    for rule in ("median", "clip"):
        Defence(rule=rule).must_fit(algorithm, Privacy(), 1)  # type: ignore[arg-type]
    Defence(rule="confidence").must_fit(algorithm, Privacy(), 3)
    with pytest.raises(UserError, match="at least 3 clients in a round, not 2"):
        Defence(rule="confidence").must_fit(algorithm, Privacy(), 2)


# -- whole runs ----------------------------------------------------------------------------------------------------


def spec_of(attack: Any, defence: Any, name: str = "fedavg", **more: Any) -> Spec:
    values = {
        "algorithm": name,
        "problem": "convex",
        "clients": 10,
        "rounds": 12,
        "preferences": "0.5,0.5",
        "engine": FAST,
        "attack": attack,
        "defence": defence,
    }
    return Draft(values | more).finish()


def honest_mean(result: Result) -> float:
    """Of the first distance to the optimum, over honest clients."""
    (solutions,), (attackers,) = result.solutions, result.spec.attackers()
    return float(solutions.points[[client not in attackers for client in solutions.clients], 0].mean())


def test_an_attack_ruins_fedavg_and_each_defence_saves_it() -> None:
    attack = {"kind": "gaussian", "strength": 100}
    calm = honest_mean(runner.start(spec_of("none", "none")))
    ruined = honest_mean(runner.start(spec_of(attack, "none")))
    assert ruined > calm + 1
    for rule in RULES:
        assert honest_mean(runner.start(spec_of(attack, rule))) < calm + 0.25, rule


def test_the_record_names_attackers_and_whom_a_rule_left_out_but_not_as_failures(tmp_path: Path) -> None:
    attack = {"kind": "gaussian", "strength": 100, "clients": [3, 8], "from_round": 2}
    runner.start(spec_of(attack, {"rule": "multi-krum", "attackers": 2}, rounds=4), tmp_path / "run")
    found = rows(tmp_path / "run")
    assert [row["left_out"] for row in found[1:4]] == [[3, 8]] * 3
    assert all(row["replies"] == 10 and row["failures"] == 0 for row in found[:4])
    assert rows(tmp_path / "run", "events.jsonl") == []
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["attackers"] == [[3, 8]]
    assert run["attack"] == {"kind": "gaussian", "strength": 100.0, "from_round": 2}
    assert run["defence"] == "multi-krum"


@pytest.mark.parametrize("kind", ["gaussian", "collusion", "scaling"])
def test_a_stopped_run_under_attack_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    spec = spec_of({"kind": kind, "from_round": 2, "share": 0.3}, "trimmed-mean", rounds=5, seeds=2, participation=0.7)
    runner.start(spec, tmp_path / "whole")
    done = iter([False, False, True])
    with pytest.raises(Stopped):
        runner.start(spec, tmp_path / "stopped", stop=lambda: next(done))
    runner.resume(tmp_path / "stopped")
    assert_same_results(tmp_path / "whole", tmp_path / "stopped")


# -- the spec ------------------------------------------------------------------------------------------------------


def test_sections_read_back_and_may_be_one_word(tmp_path: Path) -> None:
    spec = spec_of({"kind": "collusion", "clients": [1, 2], "strength": 2}, "krum")
    assert spec.attack == Attack(kind="collusion", clients=(1, 2), strength=2.0)
    assert spec.defence == Defence(rule="krum")
    path = tmp_path / "spec.yaml"
    path.write_text(spec.to_yaml(), encoding="utf-8")
    assert load(path) == spec
    one_word = spec_of("sign-flip", "median")
    assert (one_word.attack.kind, one_word.defence.rule) == ("sign-flip", "median")
    flags = Draft({"problem": "convex", "algorithm": "fedavg"}).with_settings(
        ["attack=bias", "attack.clients=0,3", "defence.rule=clip", "defence.norm=2"]
    )
    assert flags.finish().attack == Attack(kind="bias", clients=(0, 3))
    assert flags.finish().defence == Defence(rule="clip", norm=2.0)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("attack: bais\n", 1, "unknown value of attack: kind 'bais'; did you mean 'bias'?"),
        ("attack: [bias]\n", 1, "attack is ['bias']; it should be its kind, or a group of 'key: value' lines"),
        ("attack:\n  kind: bias\n  clients: [12]\n", 3, "clients names 12, but the clients are 0 to 9"),
        ("attack:\n  kind: bias\n  share: 2\n", 3, "share is 2; it is above 0 and below 1"),
        ("problem: convex\nattack:\n  kind: label-flip\n", 3, "which convex does not have"),
        ("engine: flower-sim\nattack:\n  kind: bias\n", 3, "bias is simulated by the engine local only"),
        ("attack:\n  share: 0.3\n", 2, "attack.share is set, but no attack.kind that it belongs to"),
        ("attack:\n  strength: 2\n", 2, "attack.strength is set, but no attack.kind"),
        ("attack:\n  clients: [1]\n", 2, "attack.clients is set, but no attack.kind"),
        ("attack:\n  from_round: 2\n", 2, "attack.from_round is set, but no attack.kind"),
        ("rounds: 3\nattack:\n  kind: bias\n  from_round: 4\n", 4, "from_round is 4, but there are only 3 rounds"),
        ("defence:\n  attackers: 2\n", 2, "defence.attackers is set, but no defence.rule that it belongs to"),
        ("defence:\n  norm: 1\n", 2, "defence.norm is set, but no defence.rule"),
        ("defence:\n  epsilon: 1\n", 2, "defence.epsilon is set, but no defence.rule"),
        ("defence: mode\n", 1, "unknown value of defence: rule 'mode'"),
        ("defence:\n  attackers: 0.5\n", 2, "attackers is 0.5; it is a share below 0.5 or a whole number"),
        ("defence:\n  norm: -1\n", 2, "norm is -1"),
        ("algorithm: fedpref\ndefence:\n  rule: confidence\n", 3, "a cluster is split only once all of it has"),
        ("algorithm: fedavg\nclients: 4\ndefence: krum\n", 3, "it needs at least 5 clients in a round, not 4"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, line: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)
