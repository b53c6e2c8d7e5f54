"""Any network that the library trains as ONNX, written down by torch's own exporter, with the dial in it.

`x`, rows as the network reads them, and one `preference`, `[1, m]`, in; `answers`, `[rows, outputs, classes]`, out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.config.errors import UserError
from fedpareto.inputs.images_texts import ImageInputs, Inputs
from fedpareto.inputs.table import InputSchema
from fedpareto_serve.models import AnyPreference, OneOfMany, Servable

OPSET = 18
"""The oldest that the exporter writes."""
LARGEST = 2**31 - 2**20
"""Bytes of models that fit in a file of ONNX, which ends at 2 GiB."""
TRACED_ROWS = 3
"""Neither 0 nor 1, which the exporter would take for fixed."""


def to_proto(model: Servable) -> Any:
    """The graph of a model whose problem is known."""
    network = _Answers(model).eval()
    if network.size > LARGEST:
        raise UserError(
            f"the models take {network.size / 2**30:.1f} GiB, and a file of ONNX has room for 2; export a run of fewer "
            "clients, or as .safetensors"
        )
    x = torch.from_numpy(random_rows(model.card.inputs, TRACED_ROWS, np.random.default_rng(0)))
    preference = torch.full((1, len(model.card.objectives)), 1 / len(model.card.objectives))
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            network,
            (x, preference),
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=["x", "preference"],
            output_names=["answers"],
            dynamic_shapes={"x": {0: torch.export.Dim("rows")}, "preference": None},
        )
    assert program is not None, "the exporter gives back what it made"
    return program.model_proto


def random_rows(inputs: Inputs, rows: int, stream: np.random.Generator) -> np.ndarray:
    """Rows such as the network reads: numbers, pixels, or the numbers of words or characters."""
    if isinstance(inputs, InputSchema):
        return stream.standard_normal((rows, *inputs.shape)).astype(np.float32)
    if isinstance(inputs, ImageInputs):
        return stream.integers(0, 256, (rows, *inputs.shape), dtype=np.uint8)
    return stream.integers(0, inputs.numbers, (rows, *inputs.shape), dtype=np.int64)


class _Answers(nn.Module):
    """`Servable.__call__` under one preference, of tensors alone."""

    def __init__(self, model: Servable) -> None:
        super().__init__()
        assert model.problem is not None, "the others have a graph of their own"
        self._problem, self._card = model.problem, model.card
        self._dial: nn.Module
        if isinstance(model, AnyPreference):
            self._dial = _Made(model)
        else:
            assert isinstance(model, OneOfMany), "there are two kinds"
            self._dial = _Chosen(model)

    @property
    def size(self) -> int:
        """Bytes of the models."""
        return sum(tensor.nbytes for tensor in self.buffers())

    def forward(self, x: Tensor, preference: Tensor) -> Tensor:
        """For each output the probability (or value) of each class, `[b, h, k]`."""
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
        self.register_buffer("body", model.body)
        self.register_buffer("hypernetwork", model.hypernetwork)

    def forward(self, preference: Tensor) -> Tensor:
        """`[1, m]` to `[1, d]`."""
        preferences = preference.to(self.body.dtype)[None]
        return self._anatomy.models(self.body[None], self.hypernetwork[None], preferences)[0]


class _Chosen(nn.Module):
    """That of the clients' models which serves a preference; equal ones are kept once."""

    models: Tensor
    place: Tensor
    slopes: Tensor
    offsets: Tensor

    def __init__(self, model: OneOfMany) -> None:
        super().__init__()
        distinct, place = torch.unique(model.models, dim=0, return_inverse=True)
        slopes, offsets = map(torch.as_tensor, model.scores)
        for name, tensor in {"models": distinct, "place": place, "slopes": slopes, "offsets": offsets}.items():
            self.register_buffer(name, tensor)

    def forward(self, preference: Tensor) -> Tensor:
        """`[1, m]` to `[1, d]`."""
        scores = preference.double() @ self.slopes + self.offsets  # As the model itself chooses.
        chosen: Tensor = self.models[self.place[scores.argmax(1)]]
        return chosen


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own old ways and of packages that nothing here needs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
