"""Attackers on the local engine: each kind does what it says, honest clients and measurements stay true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.clustered.fedfew import FedFew
from fedpareto.algorithms.clustered.ifca import IFCA
from fedpareto.algorithms.common_descent.fedcmoo import FedCMOO
from fedpareto.algorithms.common_descent.fedmgda_plus import FedMGDAPlus
from fedpareto.algorithms.common_descent.fsmgda import FSMGDA
from fedpareto.algorithms.fairness.afl import AFL
from fedpareto.algorithms.personal.fedamp import FedAMP
from fedpareto.algorithms.personal.mocha import MOCHA
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.federation import Federation
from fedpareto.contract.messages import Outcome, Replies
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.supervised import Supervised
from fedpareto.problems.convex import Convex
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.problems.synthetic import Synthetic
from fedpareto.trust.attacks import Attack

CONVEX = Convex()
ATTACKERS = (1, 4)
HONEST = (0, 2, 3, 5)
SHORT = Supervised(lr=0.1, batch_size=64, steps=4)
EXACT = LocalOptions(precision="float64")


def engine_of(
    algorithm: Algorithm[Any],
    attack: Attack,
    problem: Any = CONVEX,
    seeds: Sequence[int] = (0,),
    chunk: int = 64,
    learner: Supervised | None = None,
) -> LocalEngine:
    federations = [Federation.create(problem, 6, seed) for seed in seeds]
    return LocalEngine(
        algorithm,
        problem,
        learner or (CONVEX.learner() if problem is CONVEX else SHORT),
        federations,
        [federation.setting(problem, 5) for federation in federations],
        options=EXACT,
        choices=Choices(threads=1, chunk=chunk),
        attack=attack,
    )


def exchange(engine: LocalEngine, rounds: int = 0) -> list[Outcome]:
    """The last of the exchanges after so many rounds, in which every model is measured."""
    algorithm = engine.algorithm
    states = [algorithm.begin(setting) for setting in engine.settings]
    for _ in range(rounds):
        outcomes = engine.run_all([algorithm.ask(state) for state in states], [None] * len(states))
        states = [algorithm.tell(state, outcome.replies) for state, outcome in zip(states, outcomes, strict=True)]
    solutions = [algorithm.solutions(state) for state in states]
    return engine.run_all([algorithm.ask(state) for state in states], solutions)


def compared(
    algorithm: Algorithm[Any], kind: str, strength: float | None = None, problem: Any = CONVEX, **more: Any
) -> tuple[Replies, Replies, Outcome, Outcome]:
    """Replies (row i is of client i) without and with an attack, and both outcomes."""
    attack = Attack(kind=kind, clients=ATTACKERS, strength=strength)  # type: ignore[arg-type]
    (calm,) = exchange(engine_of(algorithm, Attack(), problem, **more))
    (attacked,) = exchange(engine_of(algorithm, attack, problem, **more))
    for outcome in (calm, attacked):
        assert outcome.replies.clients.tolist() == list(range(6))
    for name, tensor in calm.replies.tensors.items():
        assert torch.equal(tensor[list(HONEST)], attacked.replies[name][list(HONEST)]), (
            "honest clients do what they did"
        )
    return calm.replies, attacked.replies, calm, attacked


def assert_same_measurements(calm: Outcome, attacked: Outcome, clients: Sequence[int]) -> None:
    for kind in ("sent", "trained"):
        one, other = (getattr(outcome.evaluations, kind) for outcome in (calm, attacked))
        assert all(torch.equal(one[client], other[client]) for client in clients)


# -- the loss ------------------------------------------------------------------------------------------------------


def test_a_bias_changes_the_loss_that_is_told_and_no_gradient() -> None:
    before, after, calm, attacked = compared(AFL(), "bias", 7.0)
    for client in ATTACKERS:
        assert torch.equal(before["model"][client], after["model"][client])
        assert float(after["loss_before"][client] - before["loss_before"][client]) == pytest.approx(7.0)
    assert_same_measurements(calm, attacked, range(6))


def test_scaling_multiplies_the_loss_that_is_told_and_the_step_of_one_minibatch() -> None:
    one_step = replace(CONVEX.learner(), batch_size=1000)
    before, after, calm, attacked = compared(AFL(), "scaling", 3.0, learner=one_step)
    start = CONVEX.initial(0).double()
    for client in ATTACKERS:
        torch.testing.assert_close(after["loss_before"][client], 3 * before["loss_before"][client])
        torch.testing.assert_close(after["model"][client] - start, 3 * (before["model"][client] - start))
    assert_same_measurements(calm, attacked, HONEST)


def test_fedmgda_plus_shrugs_off_bias_and_scaling_where_fedavg_does_not() -> None:
    """Directions are what they were: after one full-batch step FedMGDA+ gives the very model of no attack."""
    one_step = replace(CONVEX.learner(), batch_size=1000)

    def model_after(algorithm: Any, kind: str) -> torch.Tensor:
        before, after, _, _ = compared(algorithm, kind, 50.0, learner=one_step)
        state = algorithm.begin(engine_of(algorithm, Attack(), learner=one_step).settings[0])
        calm, told = (algorithm.tell(state, replies).model for replies in (before, after))
        return torch.dist(calm, told) / torch.dist(calm, state.model)

    assert model_after(FedMGDAPlus(), "bias") < 1e-9
    assert model_after(FedMGDAPlus(), "scaling") < 1e-6
    assert model_after(FedAvg(), "bias") == 0
    assert model_after(FedAvg(), "scaling") > 1


def test_scaling_reaches_gradients_of_single_objectives() -> None:
    def gradients(attack: Attack) -> torch.Tensor:
        engine = engine_of(FedCMOO(), attack)
        tasks = engine.algorithm.ask(engine.algorithm.begin(engine.settings[0]))
        assert {task.step for task in tasks} == {"gradients"}
        replies = engine.run(tasks).replies
        return replies["left"] @ replies["right"]

    calm, attacked = (
        gradients(attack) for attack in (Attack(), Attack(kind="scaling", clients=ATTACKERS, strength=4.0))
    )
    for client in range(6):
        factor = 4.0 if client in ATTACKERS else 1.0
        torch.testing.assert_close(attacked[client], factor * calm[client], rtol=1e-5, atol=1e-8)


# -- rows ----------------------------------------------------------------------------------------------------------


def test_an_inflated_count_multiplies_the_size_only() -> None:
    before, after, calm, attacked = compared(FedAvg(), "inflated-count", 25.0)
    for client in ATTACKERS:
        assert after["size"][client] == 25 * before["size"][client]
        assert torch.equal(after["model"][client], before["model"][client])
    assert_same_measurements(calm, attacked, range(6))


def test_only_what_attackers_train_on_is_flipped() -> None:
    splits = engine_of(FedAvg(), Attack(kind="label-flip", clients=ATTACKERS), Synthetic())._splits
    for twin, client in enumerate(ATTACKERS, start=6):
        for split, rows in splits.items():
            true, false = rows.of_client(client), rows.of_client(twin)
            expected = 1 - true["label"] if split == "train" else true["label"]
            assert torch.equal(false["label"], expected)
            assert torch.equal(false["features"], true["features"])


def test_flipped_labels_are_those_of_a_federation_whose_attackers_have_them() -> None:
    problem = Synthetic(hidden=(4,))
    _, after, calm, attacked = compared(FedAvg(), "label-flip", problem=problem)
    engine = engine_of(FedAvg(), Attack(), problem)
    rows = engine._splits["train"]
    for client in ATTACKERS:
        place = slice(rows.starts[client], rows.starts[client] + rows.counts[client])
        rows.columns["label"][place] = 1 - rows.columns["label"][place]
    (expected,) = exchange(engine)
    for name in ("model", "size"):
        assert torch.equal(expected.replies[name], after[name])
    assert_same_measurements(calm, attacked, HONEST)
    assert all(torch.equal(calm.evaluations.sent[client], attacked.evaluations.sent[client]) for client in ATTACKERS), (
        "what is measured is measured on the true rows"
    )
    assert attacked.evaluations.trained[1][0, 0] < calm.evaluations.trained[1][0, 0], "and the harm is seen there"


# -- updates -------------------------------------------------------------------------------------------------------


def test_a_flipped_sign_is_a_step_back_of_the_same_length() -> None:
    before, after, calm, attacked = compared(FedAvg(), "sign-flip", 2.0)
    start = CONVEX.initial(0).double()
    for client in ATTACKERS:
        expected = start - 2 * (before["model"][client] - start)
        torch.testing.assert_close(after["model"][client], expected)
    assert_same_measurements(calm, attacked, range(6))


def test_a_sign_is_flipped_around_the_model_that_a_client_chose_or_around_each_of_several() -> None:
    before, after, _, _ = compared(IFCA(), "sign-flip")
    models = IFCA().begin(engine_of(IFCA(), Attack()).settings[0]).models
    for client in ATTACKERS:
        origin = models[int(before["choice"][client])]
        torch.testing.assert_close(after["model"][client], 2 * origin - before["model"][client])
    before, after, _, _ = compared(FedFew(), "sign-flip")
    for client in ATTACKERS:
        torch.testing.assert_close(after["models"][client], 2 * models - before["models"][client])
    before, after, _, _ = compared(FSMGDA(), "sign-flip")
    for client in ATTACKERS:
        torch.testing.assert_close(after["updates"][client], -before["updates"][client])


@pytest.mark.parametrize("algorithm", [FedAMP(strength=1.0, sigma=50.0, cloud_step=5.0), MOCHA(strength=1.0)])
def test_an_update_is_measured_from_where_the_client_began_not_from_what_draws_it(algorithm: Any) -> None:
    """After two honest rounds models and pull targets lie apart; the third update is turned around its own start."""
    late = Attack(kind="sign-flip", clients=ATTACKERS, from_round=3)
    (calm,), (attacked,) = (exchange(engine_of(algorithm, attack), rounds=2) for attack in (Attack(), late))
    engine = engine_of(algorithm, Attack())
    state = algorithm.begin(engine.settings[0])
    for _ in range(2):
        state = algorithm.tell(state, engine.run(algorithm.ask(state)).replies)
    for client in ATTACKERS:
        start = state.models[client]
        assert (start - state.towards[client]).norm() > 1e-3
        torch.testing.assert_close(attacked.replies["model"][client], 2 * start - calm.replies["model"][client])


def test_gaussian_noise_is_as_long_as_asked_for_and_each_attackers_own() -> None:
    problem = Synthetic()
    before, after, _, _ = compared(FedAvg(), "gaussian", 5.0, problem=problem)
    start = problem.initial(0).double()
    false = {client: after["model"][client] - start for client in ATTACKERS}
    for client in ATTACKERS:
        true = before["model"][client] - start
        assert float(false[client].norm() / true.norm()) == pytest.approx(5, rel=0.05)
        assert abs(torch.cosine_similarity(false[client], true, dim=0)) < 0.08
    assert abs(torch.cosine_similarity(*false.values(), dim=0)) < 0.08


def test_colluders_send_the_opposite_of_their_mean_and_all_the_same() -> None:
    before, after, _, _ = compared(FedAvg(), "collusion", 3.0)
    mean = before["model"][list(ATTACKERS)].mean(0)
    for client in ATTACKERS:
        torch.testing.assert_close(after["model"][client], -3 * mean)


# -- who and when --------------------------------------------------------------------------------------------------


def test_nobody_lies_before_the_first_round_of_the_attack() -> None:
    attack = Attack(kind="label-flip", clients=ATTACKERS, from_round=3)
    problem = Synthetic(hidden=(4,))
    calm, attacked = (engine_of(FedAvg(), one, problem) for one in (Attack(), attack))
    for rounds in (0, 1, 2):
        (one,), (other,) = exchange(calm, rounds), exchange(attacked, rounds)
        same = (one.replies["model"] == other.replies["model"]).all(1).tolist()
        assert same == [rounds < 2 or client not in ATTACKERS for client in range(6)]


def test_a_share_is_drawn_from_the_seed_and_never_everyone() -> None:
    attack = Attack(kind="bias", share=0.3)
    drawn = [attack.attackers(range(20), seed) for seed in range(30)]
    assert {len(attackers) for attackers in drawn} == {6}
    assert drawn == [attack.attackers(range(20), seed) for seed in range(30)]
    counts = np.bincount([client for attackers in drawn for client in attackers], minlength=20)
    assert counts.min() > 0, "anybody may be an attacker"
    assert len(set(drawn)) > 25
    assert len(Attack(kind="bias", share=0.01).attackers(range(20), 0)) == 1
    assert len(Attack(kind="bias", share=0.99).attackers(range(3), 0)) == 2
    assert Attack().attackers(range(20), 0) == frozenset()


@pytest.mark.parametrize("kind", ["scaling", "gaussian", "collusion", "label-flip"])
def test_several_seeds_side_by_side_and_any_chunks_give_what_each_alone_gives(kind: str) -> None:
    problem = Synthetic(hidden=(4,))
    attack = Attack(kind=kind, share=0.4)  # type: ignore[arg-type]
    together = exchange(engine_of(FedAvg(), attack, problem, seeds=(3, 5), chunk=12), rounds=1)
    cut = exchange(engine_of(FedAvg(), attack, problem, seeds=(3, 5), chunk=5), rounds=1)
    alone = [exchange(engine_of(FedAvg(), attack, problem, seeds=(seed,), chunk=1), rounds=1)[0] for seed in (3, 5)]
    for one, two, three in zip(together, cut, alone, strict=True):
        torch.testing.assert_close(one.replies.tensors, two.replies.tensors, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(one.replies.tensors, three.replies.tensors, rtol=1e-9, atol=1e-11)


# -- mistakes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "bias", "share": 1.0}, "share is 1; it is above 0 and below 1"),
        ({"kind": "bias", "from_round": 0}, "from_round is 0; it is at least 1"),
        ({"kind": "bias", "clients": (1, 1)}, "each client may be listed once"),
        ({"kind": "label-flip", "strength": 2.0}, "label-flip has no strength"),
        ({"kind": "inflated-count", "strength": -2.0}, "strength is -2"),
        ({"kind": "sign-flip", "strength": -1.0}, "of sign-flip it is a length, not negative"),
        ({"kind": "gaussian", "strength": -1.0}, "of gaussian it is a length, not negative"),
        ({"kind": "collusion", "strength": -1.0}, "of collusion it is a length, not negative"),
        ({"kind": "scaling", "strength": float("inf")}, "strength is inf"),
    ],
)
def test_an_attack_that_makes_no_sense_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Attack(**values)


@pytest.mark.parametrize(
    ("attack", "problem", "clients", "words"),
    [
        (Attack(kind="bias", clients=(6,)), CONVEX, 6, "clients names 6, but the clients are 0 to 5"),
        (Attack(kind="bias", clients=(0, 1)), CONVEX, 2, "all 2 clients attack"),
        (Attack(kind="bias"), CONVEX, 1, "all 1 clients attack; at least one has to be honest"),
        (Attack(kind="label-flip"), CONVEX, 6, "label-flip needs rows with a label"),
        (Attack(kind="scaling"), DeepSeaTreasure(), 6, "scaling needs losses on rows"),
    ],
)
def test_an_attack_that_does_not_fit_is_refused(attack: Attack, problem: Any, clients: int, words: str) -> None:
    with pytest.raises(UserError, match=words):
        attack.must_fit(problem, clients)


def test_an_attack_fits_as_soon_as_one_client_may_be_honest() -> None:
    for attack, clients in ((Attack(kind="bias"), 2), (Attack(kind="bias", clients=(1,)), 2), (Attack(), 1)):
        attack.must_fit(CONVEX, clients)
