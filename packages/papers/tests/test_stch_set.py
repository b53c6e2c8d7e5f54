"""The three problems of STCH-Set: what they are, that descent works, and that sets serve the worst loss better."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.moo.set_scalarise import smooth_tchebycheff_set
from fedpareto_papers import catalogue
from fedpareto_papers.studies import stch_set
from fedpareto_papers.studies.stch_set import DIMENSIONS, FAMILIES, HIDDEN, METHODS, Served


def test_the_problems_have_their_published_sizes():
    for name, m, K in (("quadratic", 128, 5), ("linear", 1000, 5), ("nonlinear", 1000, 10)):
        instance = stch_set.draw(name, (0, 1))
        assert instance.losses(instance.begin).shape == (2, m, K)
        assert instance.preferences.shape == (2, K, m)
        assert torch.allclose(instance.preferences.sum(dim=2), torch.ones(2, K), atol=1e-5)
    assert FAMILIES["linear"].mu(9_999) == 0.1
    assert FAMILIES["nonlinear"].mu(10_000) == pytest.approx(np.exp(-3))


def test_a_network_is_p_relu_w_a_plus_q_plus_o():
    stream = np.random.default_rng(0)
    x = stream.standard_normal((1, 2, HIDDEN * (DIMENSIONS + 2) + 1))
    inputs = stream.standard_normal((1, 3, DIMENSIONS))
    found = stch_set._network(torch.as_tensor(x), torch.as_tensor(inputs))
    for k in range(2):
        cut = HIDDEN * DIMENSIONS
        W, p, q, o = np.split(x[0, k], [cut, cut + HIDDEN, cut + 2 * HIDDEN])
        for i in range(3):
            expected = p @ np.maximum(W.reshape(HIDDEN, DIMENSIONS) @ inputs[0, i] + q, 0) + o[0]
            assert found[0, i, k].item() == pytest.approx(expected)


def test_a_loss_is_the_square_of_something_linear():
    instance = stch_set.draw("quadratic", (3,), losses=40, solutions=1)
    places = [torch.full((1, 1, DIMENSIONS), float(t)) for t in range(4)]
    at = [instance.losses(place)[0, :, 0] for place in places]
    assert (at[0] <= 4).all()  # b² with b in [−2, 2]
    first, second = at[1] - at[0], at[2] - 2 * at[1] + at[0]
    # (st − b)² in t: the second difference is 2 s², the first s² − 2 s b; b² follows from both.
    assert torch.allclose(at[3] - 3 * at[2] + 3 * at[1] - at[0], torch.zeros(40), atol=1e-3)
    assert torch.allclose((second / 2 - first) ** 2, 2 * second * at[0], rtol=1e-3, atol=1e-3)


def test_a_seed_descends_alone_as_in_a_stack():
    together = stch_set.draw("linear", (0, 1), losses=20, solutions=2)
    alone = stch_set.draw("linear", (1,), losses=20, solutions=2)
    for method in METHODS:
        two, one = (stch_set.descend("linear", method, each, 50) for each in (together, alone))
        assert two.worst[1] == pytest.approx(one.worst[0], rel=1e-4)


def test_the_value_of_stch_set_is_eq_9_of_every_seed():
    instance = stch_set.draw("quadratic", (0, 1), losses=6, solutions=3)
    losses = instance.losses(instance.begin)
    expected = sum(smooth_tchebycheff_set(of_seed, torch.ones(6), 0.1) for of_seed in losses)
    assert stch_set.value("stch-set", losses, instance.preferences, 0.1).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("adaptive", [False, True])
def test_schedule_free_descent_finds_the_minimum(adaptive):
    path = stch_set.ScheduleFree(torch.tensor([[3.0, -2.0]]), adaptive)
    for _ in range(3_000):
        path.step(2 * (path.y - torch.tensor([[1.0, 0.5]])))
    assert torch.allclose(path.x, torch.tensor([[1.0, 0.5]]), atol=0.01)


def test_one_loss_for_each_solution_can_be_met_exactly():
    """With as many solutions as losses everything can be 0; one linear scalarisation for each cannot promise that."""
    instance = stch_set.draw("quadratic", (0,), losses=3, solutions=3)
    assert stch_set.descend("quadratic", "tch-set", instance, 1_500).worst[0] < 0.01


@pytest.mark.takes_long
@pytest.mark.parametrize("problem", ["quadratic", "linear"])
def test_sets_serve_the_worst_loss_better_than_linear_scalarisation(problem):
    instance = stch_set.draw(problem, range(3), losses=60, solutions=4)
    found = {method: stch_set.descend(problem, method, instance, 600) for method in ("stch-set", "som", "ls")}
    for seed in range(3):
        assert found["stch-set"].worst[seed] < 0.6 * found["ls"].worst[seed]
        assert found["stch-set"].worst[seed] < found["som"].worst[seed]
        assert found["stch-set"].mean[seed] < found["ls"].mean[seed]


def test_a_quick_version_runs_and_goes_on_where_it_stopped(tmp_path):
    options = catalogue.Options(quick=True, seeds=1, problems=("quadratic",), algorithms=("stch-set", "ls"))
    study = catalogue.prepare("stch-set", options)
    answers = iter([False, False, True])
    with pytest.raises(Stopped):
        study.run(tmp_path, lambda line: None, lambda: next(answers, True))
    outcome = study.run(tmp_path, lambda line: None, lambda: False)
    rows = {row["method"]: row for row in outcome.record["rows"]}
    assert rows["stch-set"]["worst"][0] < rows["ls"]["worst"][0]
    assert not outcome.record["claims"]
    assert all(file.exists() for file in outcome.files)
    file = tmp_path / "stch-set" / "quadratic" / "ls.json"
    held = json.loads(file.read_text())
    held["served"]["worst"] = [42.0]
    file.write_text(json.dumps(held))
    again = study.run(tmp_path, lambda line: None, lambda: False)
    assert [row["worst"] for row in again.record["rows"] if row["method"] == "ls"] == [[42.0]]
    other = catalogue.prepare("stch-set", catalogue.Options(quick=True, seeds=2, problems=("quadratic",)))
    with pytest.raises(UserError, match="another --out"):
        other.run(tmp_path, lambda line: None, lambda: False)


def test_claims_can_fail_and_are_not_judged_without_their_numbers():
    worst = dict(zip(METHODS, (1.0, 1.2, 3.0, 6.0, 6.0, 4.0), strict=True))
    mean = dict(zip(METHODS, (0.2, 0.3, 0.1, 0.9, 0.9, 0.8), strict=True))
    good = {(problem, method): Served([worst[method]], [mean[method]]) for problem in FAMILIES for method in METHODS}
    assert {claim.name: claim.verdict for claim in stch_set.verdicts(good)} == {
        "stch-set-worst": "holds",
        "sets-beat-single-worst": "holds",
        "stch-set-mean": "holds",
        "som-mean": "holds",
    }
    bad = good | {("linear", "tch-set"): Served([0.5], [0.05]), ("quadratic", "ls"): Served([0.1], [0.01])}
    verdicts = {claim.name: claim for claim in stch_set.verdicts(bad)}
    assert verdicts["stch-set-worst"].verdict == "holds in part"
    assert "TCH-Set 0.5" in verdicts["stch-set-worst"].detail
    assert verdicts["stch-set-mean"].verdict == "holds in part"
    only_one = {key: one for key, one in good.items() if key[0] == "linear"}
    assert {claim.verdict for claim in stch_set.verdicts(only_one)} == {"holds"}
    assert all(claim.verdict == "cannot be judged" for claim in stch_set.verdicts({}))


def test_wrong_choices_are_told_before_anything_runs():
    with pytest.raises(UnknownName, match="quadratic"):
        catalogue.prepare("stch-set", catalogue.Options(problems=("quadratics",)))
    with pytest.raises(UserError, match=r"engine\.device=cuda"):
        catalogue.prepare("stch-set", catalogue.Options(settings=("lr=3",)))
    with pytest.raises(UserError, match="no choice of rounds"):
        catalogue.prepare("stch-set", catalogue.Options(rounds=3))
