"""A model as ONNX: `x` and `preference` in, answers out, for runtimes without fedpareto or torch."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto_serve import onnx_network
from fedpareto_serve.models import AnyPreference, OneOfMany, Servable
from fedpareto_serve.onnx_nodes import IR_VERSION, OPSET, Nodes

ROWS_TO_COMPARE, ROWS_UNDER_ONE = 64, 16
"""In all, and under one preference where all rows of a call share it."""
LARGEST_DIFFERENCE = 1e-5


def save(model: Servable, path: Path) -> None:
    """Writes a model in single precision; see `to_onnx`."""
    write_atomically(path, to_onnx(model))


def to_onnx(model: Servable) -> bytes:
    """The bytes of an .onnx file.

    Of a model that answers yes or no `x` is `[rows, inputs]`, `preference` `[1, m]` or `[rows, m]`, `probability`
    `[rows]`. Other networks are in `onnx_network`.
    """
    if find_spec("onnx") is None or (model.problem is not None and find_spec("onnxscript") is None):
        raise UserError('writing ONNX needs other packages; try: pip install "fedpareto[onnx]"')
    import onnx
    from onnx import helper

    made = _yes_or_no(model) if model.problem is None else onnx_network.to_proto(model)
    made.producer_name, made.ir_version = "fedpareto", IR_VERSION
    helper.set_model_props(made, {"fedpareto": json.dumps(model.card.to_json())})
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def largest_difference(model: Servable, path: Path, seed: int = 0) -> float | None:
    """Between the file under onnxruntime and the model itself, for random rows and preferences; None without it.

    Of answers beyond 1, such as values of actions, it is relative to the largest.
    """
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    stream = np.random.default_rng(seed)
    x = onnx_network.random_rows(model.card.inputs, ROWS_TO_COMPARE, stream)
    preferences = stream.dirichlet(np.ones(len(model.card.objectives)), ROWS_TO_COMPARE)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    at_once = ROWS_TO_COMPARE if model.problem is None else ROWS_UNDER_ONE
    worst = 0.0
    for first in range(0, ROWS_TO_COMPARE, at_once):
        rows = x[first : first + at_once]
        wanted = preferences if model.problem is None else preferences[first : first + 1]
        (found,) = session.run(None, {"x": rows, "preference": wanted.astype(np.float32)})
        expected = model(rows, wanted if len(wanted) > 1 else wanted[0]).numpy()
        worst = max(worst, float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max())))
    return worst


def _yes_or_no(model: Servable) -> Any:
    from onnx import TensorProto, helper

    graph = Nodes()
    if isinstance(model, AnyPreference):
        _any_preference(graph, model)
    else:
        assert isinstance(model, OneOfMany), "there are two kinds"
        _one_of_many(graph, model)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", model.network.inputs]),
        helper.make_tensor_value_info("preference", TensorProto.FLOAT, ["preferences", len(model.card.objectives)]),
    ]
    outputs = [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["rows"])]
    return helper.make_model(
        helper.make_graph(graph.nodes, "fedpareto", inputs, outputs, graph.initialisers),
        opset_imports=[helper.make_opsetid("", OPSET)],
    )


def _linear(graph: Nodes, inputs: str, weight: Tensor, bias: Tensor, relu: bool) -> str:
    """x·W + b, then ReLU if asked."""
    product = graph.add("MatMul", inputs, graph.initialiser(weight.numpy()))
    sums = graph.add("Add", product, graph.initialiser(bias.numpy()))
    return graph.add("Relu", sums) if relu else sums


def _any_preference(graph: Nodes, model: AnyPreference) -> None:
    """As AnyPreference computes with a preference for each row."""
    code = _code(graph, model)
    features, last = "x", len(model.network.hidden)
    parts = model.anatomy.body.unflatten(model.body)
    for layer in model.anatomy.body.layers:
        features = _linear(graph, features, parts[f"{layer}.weight"], parts[f"{layer}.bias"], relu=int(layer) < last)
    for number, coded in enumerate(model.head, start=1):
        q, out = coded.bias.shape
        side_by_side = _linear(graph, features, coded.weight.t(), coded.bias.reshape(-1), relu=False)
        each = graph.add("Reshape", side_by_side, graph.whole([-1, q, out]))
        weighted = graph.add("Mul", each, graph.add("Unsqueeze", code, graph.whole([-1])))
        features = graph.add("ReduceSum", weighted, graph.whole([1]), keepdims=0)
        features = graph.add("Relu", features) if number < len(model.head) else features
    graph.add("Sigmoid", graph.add("Squeeze", features, graph.whole([-1])), output="probability")


def _code(graph: Nodes, model: AnyPreference) -> str:
    """From the preference to what the hypernetwork's last layer reads, and a 1 for its bias."""
    anatomy, margin = model.anatomy, model.anatomy.margin
    shrunk = graph.add("Mul", "preference", graph.constant([1 - anatomy.objectives * margin]))
    inverse = graph.add("Reciprocal", graph.add("Add", shrunk, graph.constant([margin])))
    total = graph.add("ReduceSum", inverse, graph.whole([-1]), keepdims=1)
    code = graph.add("Div", inverse, total)
    parts = anatomy.hypernetwork.layout.unflatten(model.hypernetwork)
    for layer in range(len(anatomy.hidden)):
        relu = anatomy.hypernetwork.has_relu(layer)
        code = _linear(graph, code, parts[f"{layer}.weight"], parts[f"{layer}.bias"], relu)
    return graph.add("Pad", code, graph.whole([0, 0, 0, 1]), graph.constant(1.0))


def _one_of_many(graph: Nodes, model: OneOfMany) -> None:
    """All models predict, `[n, rows, 1]`; of each row the prediction of its preference's model is kept."""
    from onnx import TensorProto

    parts = model.card.layout.unflatten(model.models)
    features, last = "x", len(model.network.hidden)
    for layer in range(last + 1):
        bias = parts[f"{layer}.bias"].unsqueeze(1)
        features = _linear(graph, features, parts[f"{layer}.weight"], bias, relu=layer < last)
    answers = graph.add("Transpose", graph.add("Squeeze", features, graph.whole([-1])), perm=[1, 0])
    slopes, offsets = model.scores
    precise = graph.add("Cast", "preference", to=TensorProto.DOUBLE)  # As the model itself chooses.
    sums = graph.add("MatMul", precise, graph.constant(slopes, np.float64))
    scores = graph.add("Cast", graph.add("Add", sums, graph.constant(offsets, np.float64)), to=TensorProto.FLOAT)
    best = graph.add("ArgMax", scores, axis=1, keepdims=1)
    # One preference for all rows becomes as many as there are rows.
    rows = graph.add("Slice", graph.add("Shape", answers), graph.whole([0]), graph.whole([1]))
    place = graph.add("Expand", best, graph.add("Concat", rows, graph.whole([1]), axis=0))
    chosen = graph.add("GatherElements", answers, place, axis=1)
    graph.add("Sigmoid", graph.add("Squeeze", chosen, graph.whole([1])), output="probability")
