"""What a server reads of replies without reading all rows is what it would compute from all rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto.contract.algorithm import model_sized, small_setting
from fedpareto.contract.messages import Replies, Traffic, added_up, traffic
from fedpareto.contract.registry import make_algorithm

N, K, D = 5, 3, 7


@pytest.fixture(scope="module")
def replies():
    stream = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(N, *shape, generator=stream, dtype=torch.float64)

    tensors = {"model": drawn(D), "models": drawn(K, D), "left": drawn(4, 2), "right": drawn(2, 6)}
    return Replies(np.arange(N), tensors)


def test_reductions_are_those_of_all_rows(replies):
    x, models, origin = replies["model"], replies["models"], torch.ones(D, dtype=torch.float64)
    weights = torch.rand(K, N, dtype=torch.float64)
    assert torch.allclose(replies.sum("model", weights[0]), weights[0] @ x)
    assert torch.allclose(replies.sum("model", weights), weights @ x)
    assert torch.allclose(replies.sum("model", weights[0], origin), weights[0] @ (x - origin))
    assert torch.allclose(replies.sum("models", weights[0]), torch.einsum("n,nkd->kd", weights[0], models))
    origins = origin.expand(K, D)
    each = torch.einsum("kn,nkd->kd", weights, models - origins)
    assert torch.allclose(replies.sum_each("models", weights.T, origins), each)
    assert torch.allclose(replies.mean("models"), models.mean(dim=0))
    assert torch.allclose(replies.sum_of_products("left", "right"), (replies["left"] @ replies["right"]).sum(dim=0))
    assert torch.allclose(replies.gram("model", origin), (x - origin) @ (x - origin).T)
    assert torch.allclose(replies.squared_norms("model", origin), (x - origin).square().sum(1))


def test_what_moves_all_replies_moves_their_mean(replies):
    by = torch.arange(D, dtype=torch.float64)
    assert torch.allclose(replies.moved("model", by).mean("model"), replies.mean("model") + by)


def test_some_of_the_replies_are_replies(replies):
    some = replies.only(np.array([3, 1]))
    assert some.clients.tolist() == [3, 1]
    assert torch.equal(some.mean("model"), replies["model"][[3, 1]].mean(dim=0))
    assert some.size == replies.size == 8 * (D + K * D + 4 * 2 + 2 * 6)


@pytest.mark.parametrize(
    ("name", "step", "large"),
    [
        ("fedavg", "train", {"model"}),
        ("q-fedavg", "train", {"model"}),
        ("fedfew", "train", {"models"}),
        ("fsmgda", "train", {"updates"}),
        ("fedcmoo-pref", "gradients", {"left", "right"}),
        ("mofld", "measure", set()),
        ("mofld", "solve", {"model"}),
    ],
)
def test_what_grows_with_the_model_is_known_from_the_shapes(name, step, large):
    assert model_sized(make_algorithm(name, {}), small_setting(), step) == large


def test_replies_one_by_one_are_those_of_their_rows(replies):
    numbered = Replies(np.arange(N) + 3, replies.tensors, rounds=np.arange(N) + 9, coded=np.arange(N) * 10)
    for row, one in enumerate(numbered.singly()):
        wanted = numbered.only(np.array([row]))
        for name in ("clients", "lanes", "rounds", "coded", "sizes"):
            assert getattr(one, name).tolist() == getattr(wanted, name).tolist()
        assert all(torch.equal(one[name], wanted[name]) for name in numbered.tensors)


@pytest.mark.parametrize("count", [1, 2, N])
def test_a_weighted_mean_is_the_sum_by_shares(replies, count):
    some = replies.only(np.arange(count))
    weights = torch.arange(1, count + 1, dtype=torch.float64)
    expected = (weights @ some["model"]) / weights.sum()
    assert torch.allclose(some.weighted_mean("model", weights), expected, atol=1e-6)
    assert some.weighted_mean("model", weights).data_ptr() != some["model"].data_ptr(), "no row of a stack is kept"


def test_traffic_is_added_up_by_client_in_each_group():
    some = Traffic(np.array([4, 1, 4]), np.array([[5, 6, 7], [0, 1, 2]]))
    found = added_up([[], [some, traffic([], Replies([1, 2]))], [traffic([], Replies([]))], [some]])
    assert [(one.clients.tolist(), one.down.tolist(), one.up.tolist()) for one in found] == [
        ([], [], []),
        ([1, 2, 4], [6, 0, 12], [1, 0, 2]),
        ([], [], []),
        ([1, 4], [6, 12], [1, 2]),
    ]
    assert [len(one.clients) for one in added_up([[], []])] == [0, 0]
