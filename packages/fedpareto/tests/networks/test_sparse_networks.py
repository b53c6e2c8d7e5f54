"""Networks with random connections only: what there is, what is trained, what travels and what is kept."""

from __future__ import annotations

import math

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file

import fedpareto
from fedpareto import Federation
from fedpareto.algorithms.personal.fedmtl import FedMTL
from fedpareto.config.errors import UserError
from fedpareto.config.interrupts import Stopped
from fedpareto.networks.backprop import Backprop
from fedpareto.networks.mlp import MLP
from fedpareto.problems.images_text.images import Digits
from fedpareto.problems.images_text.texts import Shakespeare
from fedpareto.problems.multitask.digits import DigitPairs
from fedpareto.problems.synthetic import Synthetic
from fedpareto.runs.runner import resume, start
from fedpareto.spec.draft import Draft
from fedpareto.tensors.connections import Sparsity
from fedpareto.tensors.widths import cost_of, slice_of
from fedpareto.tensors.workspace import Workspace
from fedpareto_serve import onnx_network

WIDE = MLP(60, (40, 20), 3, sparsity=Sparsity(2.0))
SPARSE = {"name": "synthetic", "rows": 300, "hidden": [12, 8], "sparsity": 1.5, "sparsity_seed": 3}
PAIRS = DigitPairs(samples=60, test_samples=20, hidden=(8,), sparsity=2.0)


def spec_of(algorithm="fedavg", problem=SPARSE, **top):
    values = {"clients": 3, "rounds": 2, "engine": {"threads": 1, "chunk": 3}, "learner": {"epochs": 1}}
    return Draft(values | {"algorithm": algorithm, "problem": problem} | top).finish()


def models(result):
    return torch.stack([result.models[0][client] for client in sorted(result.models[0])])


# -- which connections there are -------------------------------------------------------------------------------------


def test_the_density_of_every_layer_is_that_of_the_formula():
    network = MLP(500, (400, 300, 2), 3, sparsity=Sparsity(4.0, seed=1))
    for one, (a, b) in zip(network.layout.connections, [(500, 400), (400, 300)], strict=True):
        p = 4 * (a + b) / (a * b)
        assert one.count == pytest.approx(a * b * p, abs=5 * math.sqrt(a * b * p * (1 - p)))
        assert one.count == dict(zip(network.layout.names, network.layout.shapes, strict=True))[one.name][0]
    assert [one.name for one in network.layout.connections] == ["0.weight", "1.weight"], "4 · (300 + 2) > 300 · 2"


def test_connections_follow_from_the_seed_and_grow_with_epsilon():
    def places(*sparsity):
        (one, *_) = MLP(60, (40,), 1, sparsity=Sparsity(*sparsity)).layout.connections
        return set(one.places(torch.device("cpu")).tolist())

    assert places(2.0) == places(2.0, 0) != places(2.0, 1)
    assert places(1.0) < places(2.0) < places(3.0)


def test_in_a_convolution_a_connection_is_a_whole_kernel_and_a_table_of_words_is_whole():
    layout = Digits(model="cnn-small", sparsity=3.0).layout
    (kernels,) = (one for one in layout.connections if one.name == "convolution1.weight")
    assert kernels.shape == (20, 10, 5, 5)
    there = (kernels.filled(torch.ones(kernels.count)) == 1).flatten(2)
    assert (there.all(2) == there.any(2)).all()
    assert 0 < there.any(2).sum() < 200
    assert {one.name for one in Shakespeare(units=6, layers=1, sparsity=0.5).layout.connections} == {"output.weight"}


@pytest.mark.parametrize("make", [Synthetic, DigitPairs, Digits])
def test_a_sparsity_that_is_none_is_one_line(make):
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(UserError, match=r"^sparsity is (-1|nan|inf); it is at least 0"):
            make(sparsity=wrong)
    with pytest.raises(UserError, match=r"^sparsity is 0\.001, and layer '\w+' has no connection left; take a larger"):
        _ = make(sparsity=0.001).layout


# -- what networks compute -------------------------------------------------------------------------------------------


def test_both_ways_to_the_gradient_are_the_dense_networks_where_there_are_connections():
    dense, layout = MLP(60, (40, 20), 3), WIDE.layout
    model, rows = torch.stack([WIDE.initial(seed) for seed in (0, 1)]).double(), torch.randn(2, 9, 60).double()
    slopes = torch.randn(2, 9, 3).double()

    whole = layout.to_dense(model).requires_grad_()
    expected = dense(dense.layout.unflatten(whole), rows)
    (of_whole,) = torch.autograd.grad(expected, whole, slopes)
    leaf = model.clone().requires_grad_()
    outputs = WIDE(layout.unflatten(leaf), rows)
    (by_autograd,) = torch.autograd.grad(outputs, leaf, slopes)
    by_hand = torch.empty_like(model)
    passes = Backprop(WIDE, model, by_hand, Workspace())
    for _ in range(2):  # The weights may move between two steps.
        model *= 2
        passes.forward(rows)
        model /= 2
    written = passes.forward(rows)
    passes.backward(slopes)

    assert torch.equal(outputs, expected)
    assert torch.allclose(written, expected)
    for found in (by_autograd, by_hand):
        assert torch.allclose(found, layout.of_dense(of_whole))


def test_models_of_several_heads_are_those_of_the_whole_network():
    body, head = WIDE.layout.cut(1)
    assert head.size < WIDE.layout.dense.cut(1)[1].size
    shared = body.unflatten(WIDE.initial(0)[None, : body.size])
    own = head.unflatten(torch.stack([WIDE.initial(seed)[body.size :] for seed in (1, 2)])[None])
    rows = torch.randn(1, 5, 60)
    each = WIDE.each(shared, own, rows)
    for k in range(2):
        one = {**shared, **{name: tensor[:, k] for name, tensor in own.items()}}
        assert torch.allclose(each[:, k], WIDE(one, rows), atol=1e-6)


def test_a_sparse_layer_begins_with_outputs_that_vary_as_those_of_a_dense_one():
    shape, ones = (400, (300,), 200), torch.randn(1, 500, 400)
    dense, sparse = MLP(*shape), MLP(*shape, sparsity=Sparsity(10.0))
    spread = [float(one(one.layout.unflatten(one.initial(0)[None]), ones).std()) for one in (dense, sparse)]
    assert spread[1] == pytest.approx(spread[0], rel=0.1)


def test_a_narrower_sparse_network_has_the_connections_among_the_units_that_are_left():
    layout, half = WIDE.layout, slice_of(WIDE.layout, 0.5)
    assert torch.equal(half, layout.of_dense(slice_of(layout.dense, 0.5)))
    assert 0 < cost_of(layout, half)[0] < 0.6


# -- federations -----------------------------------------------------------------------------------------------------


def test_so_large_an_epsilon_that_nothing_is_left_out_is_the_dense_run_bit_for_bit():
    dense = {name: value for name, value in SPARSE.items() if not name.startswith("sparsity")}
    plain, large = (start(spec_of(problem=problem)) for problem in (dense, dense | {"sparsity": 1e6}))
    assert torch.equal(models(plain), models(large))
    assert plain.history[0]["bytes_up"] == large.history[0]["bytes_up"]


SENT = {
    "fedavg": lambda layout: layout.size,
    "fedpref": lambda layout: layout.size,
    "scaffold": lambda layout: 2 * layout.size,  # With control variates.
    "heterofl": lambda layout: layout.size + 1,  # With a width.
    "praffl": lambda layout: layout.cut(2)[0].size,  # The body.
}
"""Numbers that each client is sent in a round."""


@pytest.mark.parametrize("algorithm", SENT)
def test_only_what_is_connected_travels_and_all_else_is_zero_in_what_is_kept(algorithm, tmp_path):
    spec = spec_of(algorithm)
    result, layout = start(spec, tmp_path), spec.problem.layout
    assert layout.size < layout.dense.size
    assert result.history[0]["bytes_down"] == 3 * SENT[algorithm](layout) * 4
    absent = layout.to_dense(torch.ones(layout.size)) == 0
    kept = load_file(tmp_path / "models.safetensors")
    for client, model in result.models[0].items():
        whole = kept[f"seed0/client{client}"]
        assert torch.equal(whole, layout.to_dense(model))
        assert (whole[absent] == 0).all()
        assert (model != spec.problem.initial(0)).any()

    # What is served and exported is the dense network, and answers as the sparse one did.
    served = fedpareto.load(tmp_path).conditioned(client=1)
    rows, preference = torch.randn(7, 2), [0.3, 0.7]
    flat = served.at(preference)
    assert flat.shape == (layout.dense.size,)
    assert (flat[absent] == 0).all()
    network = spec.problem.model
    logits = network(layout.unflatten(layout.of_dense(flat)[None]), rows[None])[0, :, 0]
    assert torch.allclose(served.logits(rows, preference), logits, atol=1e-5)
    onnx_network.save(served, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    given = {"x": rows.numpy(), "preference": np.array([preference], dtype=np.float32)}
    assert np.allclose(session.run(["probability"], given)[0], torch.sigmoid(logits), atol=1e-5)


def test_a_network_that_its_problem_rebuilds_is_served_with_all_its_connections(tmp_path):
    result = fedpareto.run(PAIRS, "fedavg", clients=2, rounds=1, out=tmp_path, engine={"threads": 1, "chunk": 2})
    served = fedpareto.load(tmp_path).conditioned(client=0)
    images = torch.randint(0, 17, (4, 10, 10), dtype=torch.uint8)
    own = PAIRS.layout.unflatten(result.models[0][0][None])
    assert torch.allclose(served.logits(images, [0.5, 0.5]), PAIRS.answers(own, images[None])[0], atol=1e-5)


def test_a_stack_and_clients_one_by_one_and_a_resumed_run_have_the_same_models(tmp_path):
    stacked, alone = (spec_of("fedpref", rounds=3, engine={"threads": 1, "chunk": chunk}) for chunk in (3, 1))
    together = models(start(stacked))
    assert torch.allclose(together, models(start(alone)), atol=1e-6)
    stops = iter([False, True])
    with pytest.raises(Stopped):
        start(stacked, tmp_path, stop=lambda: next(stops))
    assert torch.equal(models(resume(tmp_path)), together)


def test_task_layers_with_connections_of_their_own_are_not_matched():
    with pytest.raises(UserError, match="those of this network differ in size or connections"):
        FedMTL().begin(Federation.create(PAIRS, clients=2, seed=0).setting(PAIRS, rounds=1))
