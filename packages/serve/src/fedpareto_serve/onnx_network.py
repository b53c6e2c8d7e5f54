"""A model as ONNX, for runtimes without fedpareto or torch: written by torch's own exporter, with the dial in it.

`x`, rows as the network reads them, and `preference`, `[1, m]`, in; `answers`, `[rows, outputs, classes]`, out. For
models that answer yes or no, `preference` may also be `[rows, m]`, and `probability`, `[rows]`, comes out.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.inputs.images_texts import ImageInputs, Inputs
from fedpareto.inputs.table import InputSchema
from fedpareto_serve.models import AnyPreference, OneOfMany, Servable
from fedpareto_serve.onnx_nodes import IR_VERSION

OPSET = 18
"""The oldest that the exporter writes."""
LARGEST = 2**31 - 2**20
"""Bytes of models that fit in a file of ONNX, which ends at 2 GiB."""
TRACED_ROWS = 3
"""Neither 0 nor 1, which the exporter would take for fixed."""
ROWS_TO_COMPARE, ROWS_UNDER_ONE = 64, 16
"""Rows in all, and under one preference where all rows of a call share it."""
LARGEST_DIFFERENCE = 1e-5


def save(model: Servable, path: Path) -> None:
    """Write a model in single precision to an .onnx file."""
    if find_spec("onnx") is None or find_spec("onnxscript") is None:
        raise UserError('writing ONNX needs other packages; try: pip install "fedpareto[onnx]"')
    import onnx
    from onnx import helper

    made = _to_proto(model)
    made.producer_name, made.ir_version = "fedpareto", IR_VERSION
    helper.set_model_props(made, {"fedpareto": json.dumps(model.card.to_json())})
    onnx.checker.check_model(made, full_check=True)
    write_atomically(path, bytes(made.SerializeToString()))


def _to_proto(model: Servable) -> Any:
    network = _Network(model).eval()
    size = sum(tensor.nbytes for tensor in network.buffers())
    if size > LARGEST:
        raise UserError(
            f"the models take {size / 2**30:.1f} GiB, and a file of ONNX has room for 2; export a run of fewer "
            "clients, or as .safetensors"
        )
    x = torch.from_numpy(random_rows(model.card.inputs, TRACED_ROWS, np.random.default_rng(0)))
    preference = torch.full((1, len(model.card.objectives)), 1 / len(model.card.objectives))
    with torch.no_grad(), _quiet():
        network(x, preference)  # Whatever the model keeps for later is made here, and not while it is traced.
        program = torch.onnx.export(
            network,
            (x, preference),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=["x", "preference"],
            output_names=["answers" if model.problem is not None else "probability"],
            dynamic_shapes={"x": {0: torch.export.Dim("rows")}, "preference": None},
        )
    assert program is not None, "the exporter gives back what it made"
    proto = program.model_proto
    for node in proto.graph.node:  # Lines of source code, with the paths of this machine.
        del node.metadata_props[:]
    if model.problem is None:  # The same operations take a preference for each row; only noted shapes would not.
        del proto.graph.value_info[:]
        proto.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "preferences"
    return proto


def largest_difference(model: Servable, path: Path, seed: int = 0) -> float | None:
    """Difference between the file under onnxruntime and the model itself, for random rows and preferences; None
    without onnxruntime.

    For answers beyond 1, such as values of actions, it is relative to the largest.
    """
    if find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    stream = np.random.default_rng(seed)
    x = random_rows(model.card.inputs, ROWS_TO_COMPARE, stream)
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


def random_rows(inputs: Inputs, rows: int, stream: np.random.Generator) -> np.ndarray:
    """Rows such as the network reads: numbers, pixels, or the numbers of words or characters."""
    if isinstance(inputs, InputSchema):
        return stream.standard_normal((rows, *inputs.shape)).astype(np.float32)
    if isinstance(inputs, ImageInputs):
        return stream.integers(0, 256, (rows, *inputs.shape), dtype=np.uint8)
    return stream.integers(0, inputs.numbers, (rows, *inputs.shape), dtype=np.int64)


class _Network(nn.Module):
    """`Servable.__call__` under one preference, of tensors alone."""

    def __init__(self, model: Servable) -> None:
        super().__init__()
        self._problem, self._card = model.problem, model.card
        self._dial: _Made | _Chosen
        if isinstance(model, AnyPreference):
            self._dial = _Made(model)
        else:
            assert isinstance(model, OneOfMany), "there are two kinds"
            self._dial = _Chosen(model)

    def forward(self, x: Tensor, preference: Tensor) -> Tensor:
        """The probability of a yes, `[b]`; or of each output that (or the value) of each class, `[b, h, k]`."""
        if self._problem is None:
            return self._dial.logits(x, preference).sigmoid()
        parameters = self._card.layout.unflatten(self._dial(preference))
        scores = self._problem.answers(parameters, x[None])[0].unbind(1)
        outputs = zip(scores, self._card.outputs, strict=True)
        return torch.stack([one.softmax(-1) if output.is_probable else one for one, output in outputs], dim=1)


class _Made(nn.Module):
    """The model that a hypernetwork makes for a preference."""

    body: Tensor
    hypernetwork: Tensor

    def __init__(self, model: AnyPreference) -> None:
        super().__init__()
        self._anatomy = model.anatomy
        self.register_buffer("body", model.body.float())
        self.register_buffer("hypernetwork", model.hypernetwork.float())
        single = self.body, self.hypernetwork, model.lattice, model.front
        self.logits = AnyPreference(model.card, model.anatomy, *single).coded

    def forward(self, preference: Tensor) -> Tensor:
        """`[1, m]` to `[1, d]`."""
        return self._anatomy.models(self.body[None], self.hypernetwork[None], preference[None])[0]


class _Chosen(nn.Module):
    """The one of the clients' models that serves a preference; equal ones are kept once."""

    models: Tensor
    place: Tensor
    slopes: Tensor
    offsets: Tensor

    def __init__(self, model: OneOfMany) -> None:
        super().__init__()
        self._card, self._network = model.card, model.network if model.problem is None else None
        distinct, place = torch.unique(model.models.float(), dim=0, return_inverse=True)
        slopes, offsets = map(torch.as_tensor, model.scores)
        for name, tensor in {"models": distinct, "place": place, "slopes": slopes, "offsets": offsets}.items():
            self.register_buffer(name, tensor)

    def _chosen(self, preference: Tensor) -> Tensor:
        scores = preference.double() @ self.slopes + self.offsets  # As the model itself chooses.
        chosen: Tensor = self.place[scores.argmax(1)]
        return chosen

    def forward(self, preference: Tensor) -> Tensor:
        """`[1, m]` to `[1, d]`."""
        model: Tensor = self.models[self._chosen(preference)]
        return model

    def logits(self, x: Tensor, preference: Tensor) -> Tensor:
        """The prediction of the model that is chosen for each row, among those of all models, `[b]`."""
        assert self._network is not None, "a model that answers yes or no is an MLP"
        parameters = self._card.layout.unflatten(self.models)
        every = self._network(parameters, x.expand(len(self.models), -1, -1))[..., 0].mT
        is_chosen = self._chosen(preference)[:, None] == torch.arange(len(self.models))
        return torch.where(is_chosen, every, 0.0).sum(1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence for the exporter, which warns of its own old ways and of packages that nothing here needs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
