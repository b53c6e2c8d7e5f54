"""What clients report of objectives under privacy, what it costs, and ε wherever runs are read."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.contract.privacy import Privacy
from fedpareto.record.reading import load
from fedpareto.report.axes import axis_of, positions
from fedpareto.report.campaign import summary
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft

PRIVATE = {"kind": "local", "clip": 0.5, "noise": 20.0}
ROUNDS = 4


def run(out=None, **privacy):
    more = {"evaluate_every": 2, "seeds": 2, "out": out}
    return fedpareto.run("convex", "fedpref", clients=4, rounds=ROUNDS, privacy=PRIVATE | privacy, **more)


def sent(result, seed=0):
    """What was reported of the last models, `[n, m]`."""
    return result.solutions[seed].points


@pytest.fixture(scope="module")
def exact():
    return run()


def test_exact_and_rounded_objectives_are_covered_by_no_epsilon(exact):
    rounded = run(objectives="rounded", objectives_digits=1)
    np.testing.assert_allclose(sent(rounded), np.round(sent(exact), 1), rtol=1e-6)
    for result in (exact, rounded):
        rows = [row for row in result.history if row["round"] == ROUNDS]
        assert [row["epsilon_of_all"] for row in rows] == [math.inf] * 2
        assert result.epsilon == Privacy(**PRIVATE).epsilon_of(2 * ROUNDS * (2 / 20) ** 2)


def test_epsilon_is_that_of_the_rounds_done_where_a_run_ends_by_the_clock():
    timed = {"problem": "convex", "clients": 4, "rounds": 6, "devices": "equal", "privacy": PRIVATE}
    whole = runner.start(Draft(timed).finish())
    half = runner.start(Draft(timed | {"hours": whole.history[-1]["clock"] / 7200}).finish())
    assert 0 < half.history[-1]["round"] < 6
    assert half.epsilon == half.history[-1]["epsilon"] < whole.epsilon


def test_noised_objectives_stay_within_their_bounds_and_cost_what_their_noise_says(exact):
    """Sent after 0, 2 and 4 rounds, and trained in rounds 1 and 3: five reports for each of two seeds."""
    noised = run(objectives="noised", objectives_noise=7.0)
    assert (sent(noised) >= 0).all()
    assert (sent(noised) <= np.float32(1.1)).all(), "where there is no worst value, the reference takes its place"
    assert not np.isclose(sent(noised), sent(exact)).any()
    cost = 2 * ROUNDS * (2 / 20) ** 2 + 2 * 5 / 7**2
    assert noised.epsilon == pytest.approx(Privacy(**PRIVATE).epsilon_of(cost))
    assert noised.history[-1]["epsilon_of_all"] == noised.history[-1]["epsilon"]
    again = run(objectives="noised", objectives_noise=7.0)
    assert np.array_equal(sent(again), sent(noised)), "noise of the seed"


def test_withheld_objectives_are_nowhere_and_cost_nothing(exact, tmp_path):
    withheld = run(tmp_path / "run", objectives="withheld")
    assert withheld.solutions[0].clients == ()
    assert withheld.history[-1]["epsilon_of_all"] == withheld.epsilon == exact.epsilon
    assert withheld.models[0].keys() == exact.models[0].keys()
    with pytest.raises(UserError, match="holds no objectives to show"):
        load(tmp_path / "run")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"measure_losses": True, "privacy": PRIVATE | {"objectives": "noised"}}, "losses would be told as they are"),
        ({"privacy": PRIVATE | {"budget": 2.0}}, "no budget covers objectives without noise"),
        ({"privacy": {"budget": 2.0}}, "needs noise to count"),
    ],
)
def test_what_would_tell_more_than_epsilon_says_is_refused(values, words):
    with pytest.raises(UserError, match=words):
        Draft({"algorithm": "fedpref", "problem": "convex"} | values).finish()


def test_objectives_without_a_best_value_cannot_have_noise():
    with pytest.raises(UserError, match="'treasure' has no best value"):
        fedpareto.run("deep-sea-treasure", "fedpref", clients=2, rounds=1, privacy=PRIVATE | {"objectives": "noised"})


def test_runs_are_read_over_epsilon_and_compared_by_it(tmp_path):
    folders = [tmp_path / "little", tmp_path / "much"]
    results = [run(folder, noise=noise) for folder, noise in zip(folders, (20.0, 40.0), strict=True)]
    records = [load(folder) for folder in folders]
    assert axis_of(records, "epsilon").label == "ε so far"
    ends = [positions(record, "epsilon", np.array([0, ROUNDS])) for record in records]
    assert [end[0].tolist() for end in ends] == [[0.0, result.epsilon] for result in results]
    table = summary(records, [{"noise": "20"}, {"noise": "40"}])
    column = [one.key for one in table.columns].index("epsilon")
    assert table.columns[column].direction == -1
    assert [cells[column].mean for cells in table.cells] == [result.epsilon for result in results]
    plain = tmp_path / "plain"
    fedpareto.run("convex", "fedpref", clients=4, rounds=1, out=plain)
    with pytest.raises(UserError, match="without privacy, or without noise"):
        axis_of([load(plain)], "epsilon")


def test_where_rounds_do_not_wait_those_who_were_asked_are_counted():
    """Each time a client is asked it is sent a model: bytes that were sent are the tasks that it had."""
    policy = {"kind": "buffered", "buffer": 2, "concurrency": 4}
    waiting = {"privacy": PRIVATE, "policy": policy, "devices": "equal"}
    result = fedpareto.run("convex", "fedpref", clients=6, rounds=5, **waiting)
    down = sum(result.columns.traffic(row)[:, 0] for row in result.history)
    asked = down / (result.spec.problem.layout.size * 4)
    assert asked.max() > 1
    assert result.epsilon == pytest.approx(Privacy(**PRIVATE).epsilon_of(asked.max() * (2 / 20) ** 2))
