"""An MLP on a CPU that goes down plain gradients, as in `descending`, by compiled loops over clients: see `kernels`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from torch import Tensor

from fedpareto.networks.mlp import MLP
from fedpareto.tensors.workspace import Workspace


class CompiledDescending:
    """`Descending` by compiled loops; models are changed where they are."""

    def __init__(self, network: MLP, model: Tensor, workspace: Workspace, kept: float, lr: float) -> None:
        from fedpareto.networks import kernels

        self.kernels, self.workspace = kernels, workspace
        self.models = model.contiguous()
        """As they are now, `[n, d]`."""
        self.widths = network.widths
        relus = np.array([network.has_relu(layer) for layer in range(len(self.widths) - 1)])
        self.network = self.models.numpy(), np.array(self.widths), relus
        self.dtype = self.network[0].dtype
        self.kept, self.lr = self.dtype.type(kept), self.dtype.type(lr)
        self.added = self.network[0][:0]
        self.batch = 0

    def add_in_steps(self, added: Tensor) -> None:
        """From now on every step adds this to the models, `[n, d]`."""
        self.added = added.contiguous().numpy()

    def forward(self, inputs: Tensor) -> Tensor:
        """Outputs `[n, b, out]` for inputs `[n, b, in]`, until the next call."""
        if inputs.shape[1] != self.batch:
            self._make_room(inputs.shape[1])
        self.inputs = self._flat(inputs)
        self.kernels.forward(*self.network, self.inputs, self.hidden, self.outputs)
        return self.tensor

    def descend(self, gradient: Tensor) -> None:
        """A step of all models, given the gradient of the last forward pass's outputs `[n, b, out]`."""
        values = self.inputs, self.hidden, self._flat(gradient)
        self.kernels.descend(*self.network, *values, self.spaces, self.ones, self.kept, self.lr, self.added)

    def _make_room(self, batch: int) -> None:
        n, (*widths, last) = len(self.models), self.widths
        largest = max(batch * max(widths), *(a * b for a, b in pairwise(self.widths)))
        self.batch, self.tensor = batch, self._space("outputs", n, batch, last)
        self.outputs, self.ones = self.tensor.numpy().reshape(n, -1), np.ones(batch, dtype=self.dtype)
        self.hidden = self._space("hidden", n, batch * sum(widths[1:])).numpy()
        self.spaces = self._space("of one client", 3, largest).numpy()

    def _flat(self, values: Tensor) -> np.ndarray:
        return np.ascontiguousarray(values.numpy(), dtype=self.dtype).reshape(len(values), -1)

    def _space(self, name: str, *shape: int) -> Tensor:
        return self.workspace.take(name, shape, self.models.dtype)
