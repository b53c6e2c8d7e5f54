from __future__ import annotations

import runpy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import fedpareto
from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.averaging.fedprox import FedProx
from fedpareto.api import resume
from fedpareto.contract.learner import Learner
from fedpareto.contract.problem import Objective, SupervisedProblem
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex
from fedpareto.tensors.layout import Layout
from fedpareto.tensors.rows import Batch, Rows, Splits

EXAMPLES = Path(__file__).parents[4] / "examples"
QUICK = {"clients": 4, "rounds": 3, "engine": {"threads": 1, "chunk": 4}}


def same(one: fedpareto.Result, other: fedpareto.Result) -> bool:
    return all(torch.equal(one.models[0][client], other.models[0][client]) for client in one.models[0])


@dataclass(frozen=True)
class Tugging(SupervisedProblem):
    """One number that half of the objectives pull up and the other half down."""

    name: ClassVar[str] = "tugging"

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return Objective("low", reference=4.0), Objective("high", reference=4.0)

    @property
    def layout(self) -> Layout:
        return Layout.of({"x": (1,)})

    def data(self, clients: int, seed: int) -> Splits:
        return {"train": Rows.of([{"goals": torch.tensor([[-1.0, 1.0]])} for _ in range(clients)])}

    def initial(self, seed: int) -> Tensor:
        return torch.zeros(1)

    def losses(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return (parameters["x"] - batch.columns["goals"][:, 0]).square()

    def evaluate(self, parameters: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.losses(parameters, batch)

    def learner(self) -> Learner:
        return Supervised(lr=0.25, steps=20, batch_size=1)


def test_names_and_objects_give_the_same_run() -> None:
    by_name = fedpareto.run("convex", "fedprox", **QUICK)
    by_object = fedpareto.run(Convex(), FedProx(), **QUICK | {"engine": LocalOptions(threads=1, chunk=4)})
    assert same(by_name, by_object)
    assert by_name.hypervolume == by_object.hypervolume > 0


def test_a_problem_of_ones_own_runs_without_being_registered() -> None:
    result = fedpareto.run(Tugging(), "local", clients=3, rounds=2, preferences="equidistant")
    optima = [1.0, 0.0, -1.0]  # Of w₁(x + 1)² + w₂(x − 1)² for w₁ = 0, ½, 1.
    assert [float(result.models[0][client]) for client in range(3)] == pytest.approx(optima, abs=1e-4)
    assert result.solutions[0].front() == pytest.approx(np.array([[0, 4], [1, 1], [4, 0]]), abs=1e-3)


def test_a_problem_of_ones_own_is_kept_but_resumed_only_once_it_is_registered(tmp_path: Path) -> None:
    fedpareto.run(Tugging(), "local", clients=3, rounds=2, out=tmp_path / "run")
    (tmp_path / "run" / "status.json").unlink()
    with pytest.raises(fedpareto.UserError, match="unknown problem 'tugging'"):
        resume(tmp_path / "run")


def test_parts_may_be_mappings_or_objects() -> None:
    mappings = fedpareto.run("convex", "fedavg", learner={"lr": 0.3}, faults={"dropout": 0.2}, **QUICK)
    learner = Supervised(lr=0.3, batch_size=16)
    objects = fedpareto.run("convex", "fedavg", learner=learner, faults=Faults(dropout=0.2), **QUICK)
    assert mappings.spec == objects.spec
    assert same(mappings, objects)


def test_a_word_alone_is_short_for_a_part() -> None:
    words = fedpareto.run("convex", "fedavg", clients=4, rounds=1, attack="sign-flip", defence="median", engine="local")
    parts = {"attack": {"kind": "sign-flip"}, "defence": {"rule": "median"}, "engine": {"name": "local"}}
    assert words.spec == fedpareto.run("convex", "fedavg", clients=4, rounds=1, **parts).spec
    assert (words.spec.attack.kind, words.spec.defence.rule) == ("sign-flip", "median")


def test_devices_policy_and_selection_are_parts_like_others() -> None:
    words = {"devices": "equal", "policy": "buffered", "selection": "oort"}
    few = {"clients": 4, "rounds": 1}
    found = fedpareto.run("convex", "fedavg", **few, **words)
    assert found.spec == fedpareto.run("convex", "fedavg", **few, **{k: {"kind": v} for k, v in words.items()}).spec
    assert (found.spec.devices.kind, found.spec.policy.kind, found.spec.selection.kind) == tuple(words.values())
    assert found.summary()[3].startswith("simulated ")
    assert fedpareto.run("convex", "fedbuff", **few).spec.policy.kind == "buffered", "the algorithm's own"
    with pytest.raises(fedpareto.UserError, match="candidates is 9; it is from 4"):
        fedpareto.run("convex", "fedavg", **few, selection={"kind": "power-of-choice", "candidates": 9})


def test_a_word_alone_is_the_kind_of_privacy() -> None:
    private = fedpareto.run("convex", FedAvg(weighting="equal"), privacy="local", **QUICK)
    assert private.spec.privacy.kind == "local"
    assert private.epsilon is not None


def test_preferences_may_be_an_array(tmp_path: Path) -> None:
    wishes = np.array([[0.0, 1.0], [0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])
    result = fedpareto.run("convex", "fedpref", preferences=wishes, out=tmp_path / "run", **QUICK)
    assert np.array_equal(result.solutions[0].preferences, wishes)


def test_a_kept_run_can_be_resumed_from_python(tmp_path: Path) -> None:
    def stop(now: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedpareto.run("convex", "fedpref", out=tmp_path / "run", on_round=stop, **QUICK)
    resumed = resume(str(tmp_path / "run"))
    assert resumed is not None
    assert same(resumed, fedpareto.run("convex", "fedpref", **QUICK))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"problem": "convx"}, "unknown problem 'convx'; did you mean 'convex'?"),
        ({"algorithm": "fedprf"}, "unknown algorithm 'fedprf'; did you mean 'fedpref'?"),
        ({"clients": 0}, "clients is 0; it is at least 1 and at most 10,000,000"),
        ({"clients": "ten"}, "clients is 'ten'; it should be a whole number"),
        ({"rounds": 0}, "rounds is 0; it is at least 1 and at most 1,000,000,000"),
        ({"seeds": 0}, "seeds is 0; at least 1 is needed"),
        ({"seeds": [1, 1]}, "each seed may be listed once"),
        ({"participation": 2}, "participation is 2; it is a share above 0 and at most 1"),
        ({"quorum": -1}, "quorum is -1; it is a share below 1 or a whole number of clients"),
        ({"preferences": [0.5, 0.6]}, "weights sum to 1.1, not 1"),
        ({"learner": {"lrr": 1}}, "unknown parameter of learner 'lrr'; did you mean 'lr'?"),
        ({"engine": {"thread": 1}}, "did you mean 'threads'?"),
        ({"engine": "flower"}, "unknown engine 'flower'; did you mean 'flower-local'?"),
        (
            {"engine": 3},
            "it should be its name, parameters by name, or an object of the class EngineOptions",
        ),
        ({"attack": 3}, "attack is 3; it should be its kind, parameters by name, or an object of the class Attack"),
        ({"attack": "bais"}, "unknown value of attack: kind 'bais'; did you mean 'bias'?"),
        ({"faults": "x"}, "faults is 'x'; it should be parameters by name, or an object of the class Faults"),
        ({"learner": "sgd"}, "learner is 'sgd'; it should be parameters by name, or an object of the class Learner"),
        ({"privacy": Faults()}, "or an object of the class Privacy"),
        ({"problem": 3}, "problem is 3; it should be its name, parameters by name, or an object of the class Problem"),
        ({"algorithm": FedProx}, "it should be its name, parameters by name, or an object of the class Algorithm"),
    ],
)
def test_mistakes_are_told_in_the_users_words(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(fedpareto.UserError) as caught:
        fedpareto.run(**{"problem": "convex", "rounds": 1, **arguments})
    assert words in str(caught.value)


def test_the_loop_by_hand_gives_the_same_models_as_run(capsys: pytest.CaptureFixture[str]) -> None:
    by_hand = runpy.run_path(str(EXAMPLES / "loop_by_hand.py"))
    choices = by_hand["engine"].choices
    result = fedpareto.run(
        "convex",
        by_hand["algorithm"],
        clients=6,
        rounds=15,
        preferences="equidistant",
        engine={"threads": choices.threads, "chunk": choices.chunk},
    )
    assert result.models[0].keys() == by_hand["models"].keys()
    for client, model in result.models[0].items():
        assert torch.equal(model, by_hand["models"][client])
    assert capsys.readouterr().out.count("wants") == 6
