"""Which participants' losses did not rise in a round, and how clients fare: whole runs against plain arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.algorithm import participants
from fedpareto.contract.federation import Federation, setting_of
from fedpareto.moo.fairness import shares_improved
from fedpareto.problems.convex import Convex
from fedpareto.record import reading
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft, load

ENGINE = {"threads": 1, "chunk": 20, "precision": "float64"}
PROBLEM = Convex(heterogeneity=0.3)
FULL_BATCH = {"lr": 0.1, "batch_size": 1000}


def run_of(algorithm: str = "fedavg", clients: int = 12, rounds: int = 15, **more: Any) -> Result:
    chosen: dict[str, Any] = {"measure_losses": True, "learner": FULL_BATCH, "engine": ENGINE}
    return fedpareto.run(PROBLEM, algorithm, clients=clients, rounds=rounds, **(chosen | more))


def losses_by_hand(clients: int, model: np.ndarray) -> np.ndarray:
    """Σ_j w_ij ½‖θ − c_j − δ_i‖² of every client under seed 0."""
    federation = Federation.create(PROBLEM, clients, 0, "dirichlet")
    centres = (PROBLEM.centres() + PROBLEM.shifts(clients, 0)[:, None]).numpy()
    return np.asarray((federation.preferences * 0.5 * ((model - centres) ** 2).sum(-1)).sum(-1))


def losses_of(result: Result) -> list[Any]:
    return [result.columns.losses(row) for row in result.history]


def participants_of(result: Result) -> list[list[int]]:
    return [result.columns.participants(row).tolist() for row in result.history]


def test_shares_by_hand() -> None:
    losses = {0: [3.0, 2.0, 1.0], 1: [2.0, 2.5, 1.0], 2: [2.0, 2.0, np.nan], 4: [0.0, 0.0, 0.0]}

    def shares(participants: dict[int, list[int]]) -> dict[int, float]:
        return shares_improved((done, one, participants.get(done + 1, [])) for done, one in losses.items())

    everybody = {1: [0, 1, 2], 2: [0, 1, 2], 3: [0], 4: [0], 5: [0]}
    assert shares(everybody) == {1: pytest.approx(2 / 3), 2: pytest.approx(2 / 3)}
    assert shares({1: [1], 2: [2]}) == {1: 0.0, 2: 0.0}
    assert shares({1: [], 2: [0, 1]}) == {2: 1.0}


def test_losses_are_the_clients_own_objective_and_shares_count_those_that_did_not_rise() -> None:
    result = run_of(rounds=3)
    untrained, trained = losses_of(result)[0], losses_of(result)[-1]
    assert untrained == pytest.approx(losses_by_hand(12, np.zeros(8)))
    after = losses_by_hand(12, result.models[0][0].numpy())
    assert trained == pytest.approx(after)
    before = losses_of(result)[2]
    assert result.share_improved()[0][3] == np.mean(after <= before)


def test_nobody_loses_by_fedmgda_plus_with_full_batches_and_a_falling_step_but_by_fedavg_many_do() -> None:
    step = {"name": "fedmgda-plus", "epsilon": 1.0, "server_lr": 0.1, "decay": 1 / 40, "decay_every": 1}
    careful = Draft({"algorithm": step}).finish().algorithm
    ours = run_of(careful, rounds=30).share_improved()[0]  # type: ignore[arg-type]
    assert list(ours) == list(range(1, 31))
    assert set(ours.values()) == {1.0}
    assert np.mean(list(run_of("fedavg", rounds=30).share_improved()[0].values())) < 0.9


def test_only_participants_count() -> None:
    result = run_of(participation=0.25, rounds=4)
    state = result.spec.algorithm.begin(setting_of(PROBLEM, range(12), 0, 4, 0.25))
    assert participants_of(result)[0] == participants(state).tolist()
    for before, after in zip(result.history, result.history[1:], strict=False):
        places = result.columns.participants(before)
        assert len(places) == 3
        old, new = (result.columns.losses(row)[places] for row in (before, after))
        assert result.share_improved()[0][after["round"]] == np.mean(new <= old)


def test_who_did_not_reply_did_not_take_part() -> None:
    result = run_of(rounds=5, faults={"dropout": 0.5})
    assert [len(some) for some in participants_of(result)] == [row["replies"] for row in result.history]
    assert min(len(some) for some in participants_of(result)[:-1]) < 12


def test_losses_are_measured_on_both_sides_of_an_evaluated_round_only() -> None:
    result = run_of(rounds=7, evaluate_every=3)
    assert [row["round"] for row in result.history if "losses" in row["columns"]] == [0, 1, 3, 4, 6, 7]
    assert list(result.share_improved()[0]) == [1, 4, 7]


def test_measuring_changes_no_model_and_several_seeds_equal_their_own_runs() -> None:
    both = run_of("fedpref", clients=5, rounds=3, seeds=[0, 4])
    plain = run_of("fedpref", clients=5, rounds=3, seeds=[0, 4], measure_losses=False)
    assert all(both.models[1][c].equal(plain.models[1][c]) for c in both.models[1])
    assert losses_of(plain)[0] is None
    alone = run_of("fedpref", clients=5, rounds=3, seeds=[4])
    of_both = [losses for row, losses in zip(both.history, losses_of(both), strict=True) if row["seed"] == 4]
    np.testing.assert_array_equal(losses_of(alone), of_both)


def test_of_attackers_the_true_loss_is_measured() -> None:
    result = run_of(rounds=3, attack={"kind": "scaling", "strength": 5.0, "clients": [1, 7]})
    assert losses_of(result)[-1] == pytest.approx(losses_by_hand(12, result.models[0][0].numpy()))
    assert losses_of(result)[-1] != pytest.approx(losses_of(run_of(rounds=3))[-1])


def test_without_measuring_there_is_no_share() -> None:
    with pytest.raises(UserError, match="measure_losses=True"):
        run_of(rounds=1, measure_losses=False).share_improved()


def test_across_clients_of_a_result() -> None:
    result = run_of(clients=6, rounds=4, participation=0.5, seeds=2)
    last, before = [row for row in result.history if row["seed"] == 1][:-3:-1]
    sent = result.columns.evaluated(last, "sent")["test"][:, 1]
    found = result.across_clients()[1]["distance 2"]
    assert found.mean == pytest.approx(sent.mean())
    assert (found.worst, found.best) == (sent.max(), sent.min())
    trained = result.columns.evaluated(before, "trained")["test"][:, 0]
    trained = trained[np.isfinite(trained)]
    assert len(trained) == 3
    found = result.across_clients("trained")[1]["distance 1"]
    assert (found.worst, found.deviation) == (trained.max(), pytest.approx(trained.std()))
    assert result.across_clients("trained", round=3) == result.across_clients("trained")
    with pytest.raises(UserError, match="no evaluation 'trained' after round 4"):
        result.across_clients("trained", round=4)


# -- in a run's folder -----------------------------------------------------------------------------------------------


def test_it_is_part_of_the_spec_and_of_the_folder(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text("problem: convex\nalgorithm: fedavg\nclients: 3\nrounds: 2\nmeasure_losses: true\n")
    assert load(spec).to_mapping()["measure_losses"] is True
    assert Draft().with_settings(["measure_losses=true"]).finish().measure_losses
    result = run_of(clients=3, rounds=2, out=tmp_path / "run")
    kept = reading.load(tmp_path / "run").of_seed(0)
    np.testing.assert_array_equal([line.losses for line in kept], losses_of(result))
    assert kept[0].columns.participants(kept[0].row).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"engine": "flower-local"}, "clients' losses stay with them.*works with the engine local"),
        ({"problem": "deep-sea-treasure"}, "has no loss of a model as it stands"),
        ({"measure_losses": "often"}, "measure_losses is 'often'"),
    ],
)
def test_where_losses_cannot_be_measured_it_says_so(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Draft({"measure_losses": True} | values).finish()
