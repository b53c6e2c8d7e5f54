"""A torch network as a `Graph`: torch writes its operators down, `operators` translates them."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from fedpareto.config.errors import UserError
from fedpareto_space.formats import layers  # noqa: F401 (registers what it translates)
from fedpareto_space.formats.graph import Graph, identifier
from fedpareto_space.formats.lowering import TRACED_ROWS, Lowering
from fedpareto_space.formats.network import Network
from fedpareto_space.formats.operators import translate


def traced(network: Network, x: Tensor) -> Graph:
    """The graph of a network that reads rows such as `x`, `[rows, ...]`; how many there are is left open."""
    names = network.layout.names
    if len({identifier(name) for name in names}) < len(names):
        raise UserError("two weights of the network have names that differ only in signs such as . and _; rename one")
    rows = x[:1].expand(TRACED_ROWS, *x.shape[1:])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its own old ways.
        program = torch.export.export(network, (rows,), strict=False).run_decompositions()
    return Lowering(network, program).graph(translate)
