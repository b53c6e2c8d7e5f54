"""A network of the library as a torch module of one client: its weights have the layout's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.config.errors import UserError
from fedpareto.contract.problem import Problem
from fedpareto.networks.module import StackedModule
from fedpareto.tensors.layout import Layout

Call = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""Scores `[n, b, ...]` of n models for inputs `[n, b, ...]`, as every network of the library is called."""


class Network(nn.Module):
    """Rows in, scores out, in evaluation mode; `model` is the flat vector that algorithms send, `[d]`."""

    def __init__(self, call: Call, layout: Layout, model: Tensor) -> None:
        super().__init__()
        if model.shape != (layout.size,):
            raise UserError(f"the model has {model.numel()} numbers; its network has {layout.size}")
        self.layout, self._call = layout, call
        for name, tensor in layout.unflatten(model.detach().float()).items():
            *path, last = name.split(".")
            _part(self, path).register_buffer(last, tensor.clone())
        self.eval()

    @classmethod
    def of_problem(cls, problem: Problem, model: Tensor) -> Network:
        """Return the network that a problem's clients train, with all connections; its answers are `[b, outputs,
        classes]`.
        """
        return cls(problem.dense().answers, problem.layout.dense, problem.layout.to_dense(model))

    @classmethod
    def of_module(cls, module: nn.Module, seed: int = 0) -> Network:
        """Any torch module that the library can train, as it is first initialised."""
        stacked = StackedModule(module)
        return cls(stacked, stacked.layout, stacked.drawn(seed))

    def forward(self, x: Tensor) -> Tensor:
        """Scores `[b, ...]` of rows `[b, ...]`."""
        own = dict(self.named_buffers())
        return self._call({name: own[name][None] for name in self.layout.names}, x[None])[0]

    @property
    def tensors(self) -> dict[str, np.ndarray]:
        own = dict(self.named_buffers())
        return {name: own[name].numpy() for name in self.layout.names}

    def with_model(self, model: Tensor) -> Network:
        """Return the same network with other weights, `[d]`."""
        return Network(self._call, self.layout, model)


def flat(layout: Layout, tensors: Mapping[str, np.ndarray]) -> Tensor:
    """The vector `[d]` that algorithms send, of weights that were read from a file."""
    return layout.flatten({name: torch.from_numpy(np.array(tensors[name])) for name in layout.names})


def _part(root: nn.Module, path: list[str]) -> nn.Module:
    """The part with that name, made where there is none."""
    for name in path:
        if name not in root._modules:
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    return root
