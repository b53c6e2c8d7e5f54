"""RT-FedEvoNAS against FedAvg, HeteroFL's slices, means by hand and a plain search."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from small_problems import Labels

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.fronts.rt_fedevonas import RTFedEvoNAS
from fedpareto.config.errors import UserError
from fedpareto.moo import choices
from fedpareto.tensors.widths import cost_of, slice_of
from fedpareto.testing.conformance import ALGORITHM_CHECKS, largest_difference, trial

WIDE = Labels(inputs=5, hidden=(8, 6), rows=40)
SUBJECT = RTFedEvoNAS(population=2)
CHECKS = {"stack_equals_loop", "missing_replies_are_borne", "state_survives_a_file", "order_does_not_matter"}


@cache
def done():
    """Three rounds of seven clients."""
    return trial(RTFedEvoNAS(widths=(1.0, 0.5), population=3), WIDE, rounds=3)


def test_one_choice_is_fedavg():
    plain = trial(FedAvg(), WIDE)
    assert largest_difference(trial(RTFedEvoNAS(widths=(1.0,)), WIDE).models, plain.models) <= 1e-12
    assert largest_difference(done().models, plain.models) > 1e-3


def test_every_layer_has_a_width_of_its_own():
    for widths, hidden in (((1.0, 0.5), (8, 3)), ((0.25, 1.0), (2, 6))):
        narrow = Labels(inputs=5, hidden=hidden, rows=40)
        assert int(slice_of(WIDE.layout, widths).sum()) == narrow.layout.size
    assert torch.equal(slice_of(WIDE.layout, (0.5, 0.5)), slice_of(WIDE.layout, 0.5))


def test_the_average_of_an_entry_is_over_those_who_had_it():
    run = done()
    for before, after, outcome in zip(run.states, run.states[1:], run.outcomes, strict=False):
        (tasks,) = run.engine.algorithm.ask(before)
        total, weight = torch.zeros_like(before.model), torch.zeros_like(before.model)
        for client, code in zip(tasks.clients, tasks.own["code"].long(), strict=True):
            has = slice_of(WIDE.layout, [(1.0, 0.5)[choice] for choice in code])
            reply, size = outcome.replies["model"][client], outcome.replies["size"][client]
            assert torch.equal(reply[~has], before.model[~has]), "it comes back as it was sent"
            assert float((reply[has] - before.model[has]).abs().max()) > 0
            total, weight = total + has * size * reply, weight + has * size
        expected = torch.where(weight > 0, total / weight.clamp_min(1), before.model)
        assert float((after.model - expected).abs().max()) <= 1e-12
        children = {tuple(code) for code in before.codes[3:].tolist()}
        assert {tuple(code) for code in tasks.own["code"].long().tolist()} == children, "all are trained"


def test_losses_are_those_of_the_slices_and_the_best_survive():
    run = done()
    before, after, replies = run.states[1], run.states[2], run.outcomes[1].replies
    codes, shares = before.codes.numpy(), replies["size"] / replies["size"].sum()
    losses = (replies["losses"] * shares[:, None]).sum(0).numpy()
    masks = [slice_of(WIDE.layout, [(1.0, 0.5)[choice] for choice in code]) for code in codes]
    values = np.stack([losses, [cost_of(WIDE.layout, mask)[0] for mask in masks]], axis=1)
    np.testing.assert_array_equal(after.codes[:3], choices.survivors(codes, values, 2, 3))
    for code, value in zip(after.front.tolist(), after.values.tolist(), strict=True):
        assert any(
            np.array_equal(code, each) and np.allclose(value, some) for each, some in zip(codes, values, strict=True)
        )
        assert not any((some <= value).all() and (some < value).any() for some in values), "nothing is better in both"
    equal = [place for place, code in enumerate(codes) if (code == codes[0]).all()]
    for place in equal:
        assert torch.equal(replies["losses"][:, place], replies["losses"][:, 0]), "one architecture has one loss"
    smallest = after.values[:, 0].argmin()
    assert torch.equal(run.engine.algorithm.picked(after), after.front[smallest])
    told = run.engine.algorithm.describe(after)["front"]
    assert [one["loss"] for one in told] == after.values[:, 0].tolist()


def test_everybody_uses_the_slice_that_was_picked():
    run = done()
    algorithm, state = run.engine.algorithm, run.states[-1]
    has = slice_of(WIDE.layout, [(1.0, 0.5)[choice] for choice in algorithm.picked(state)])
    assert all(torch.equal(model, state.model * has) for model in run.models.values())


@pytest.mark.parametrize(
    "check", [check for check in ALGORITHM_CHECKS if check.__name__ in CHECKS], ids=lambda check: check.__name__
)
def test_the_contract_is_kept_on_a_network_with_blocks(check):
    check(SUBJECT, WIDE)


def test_a_search_over_choices_finds_the_front_of_a_separable_problem():
    """Fewer of everything costs less and errs more, but the last gene's choice 1 is for nothing."""

    def values(codes):
        return np.stack([codes[:, :2].sum(1), (2 - codes[:, :2]).sum(1)], axis=1) + codes[:, 2:].astype(float)

    stream = np.random.default_rng(0)
    codes = stream.integers(3, size=(12, 3))
    for _ in range(15):
        born = choices.children(codes, 3, stream)
        assert born.shape == codes.shape
        assert set(np.unique(born)) <= {0, 1, 2}
        both = np.vstack([codes, born])
        codes = choices.survivors(both, values(both).astype(float), 3, 12)
    best = {tuple(value) for value in values(codes) if value.sum() == 4}
    assert best == {(float(k), 4.0 - k) for k in range(5)}
    alike = np.zeros((4, 2), dtype=np.int64)
    assert choices.survivors(alike, np.ones((4, 2)), 3, 2).tolist() == [[0, 0], [0, 0]], "fewer differ than survive"


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"widths": (0.0,)}, "widths is 0; it is above 0 and at most 1"),
        ({"population": 0}, "population is 0; it is at least 1"),
    ],
)
def test_wrong_parameters_are_refused(wrong, complaint):
    with pytest.raises(UserError, match=complaint):
        RTFedEvoNAS(**wrong)


def test_a_network_that_cannot_be_narrowed_is_refused():
    setting = done().engine.settings[0]
    with pytest.raises(UserError, match=r"cannot be narrowed to 0.25 of its width"):
        RTFedEvoNAS().begin(replace(setting, layout=replace(setting.layout, hidden=None)))
