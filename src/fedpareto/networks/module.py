"""Any torch module over a stack of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.core import rng
from fedpareto.core.layout import Layout
from fedpareto.errors import UserError
from fedpareto.networks.convolution import stacked_conv2d
from fedpareto.networks.linear import stacked_linear

ON_PICTURES = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.LocalResponseNorm, nn.ReLU)
"""Layers that take images in any memory format."""
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


class StackedModule:
    """Any torch module without buffers or internal randomness, over a stack of clients.

    An nn.Sequential runs layer by layer, each for all clients at once; any other module is vectorised by vmap.
    """

    def __init__(self, module: nn.Module) -> None:
        if next(module.buffers(), None) is not None:
            raise UserError("a module with buffers (such as BatchNorm) cannot be stacked; use GroupNorm or LayerNorm")
        for name, part in module.named_modules():
            if isinstance(part, nn.RNNBase):
                raise UserError(f"the layer '{name}' is a {type(part).__name__}, which torch cannot stack over clients")
            if _drops_at_random(part):
                raise UserError(
                    f"the layer '{name}' drops inputs at random, which no seed of a client would fix; leave dropout out"
                )
        self.module = module
        self.layout = Layout.of({name: tuple(tensor.shape) for name, tensor in module.named_parameters()})

    def initial(self, seed: int) -> Tensor:
        """The module's own initialisation with our generator: `reset_parameters` of every part, then of the whole.

        What `__init__` wrote into a layer that has such a method is drawn again; a module that wants it otherwise
        writes it in a `reset_parameters` of its own.
        """
        seeded: set[Tensor] = set()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.torch_generator(rng.Address(seed), "initial model").initial_seed())
            for part in _parts_first(self.module):
                # Multi-head attention has it under this other name.
                reset: Any = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
                if reset is not None:
                    reset()
                    seeded.update(part.parameters())
        for name, tensor in self.module.named_parameters():
            if tensor not in seeded and bool((tensor != tensor.flatten()[:1]).any()):
                raise UserError(
                    f"the parameter '{name}' was drawn when the module was made, so no seed can fix it; give its "
                    "module a method reset_parameters that draws it"
                )
        return self.layout.flatten({name: tensor.detach() for name, tensor in self.module.named_parameters()})

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs `[n, b, ...]` for inputs `[n, b, ...]`."""
        if isinstance(self.module, nn.Sequential):
            return self._one_layer_after_the_other(self.module, parameters, inputs)

        def one(own: dict[str, Tensor], rows: Tensor) -> Tensor:
            result: Tensor = torch.func.functional_call(self.module, own, (rows,))
            return result

        return _vectorised(one, dict(parameters), inputs)

    def _one_layer_after_the_other(
        self, layers: nn.Sequential, parameters: Mapping[str, Tensor], values: Tensor
    ) -> Tensor:
        """Layers with parameters as stacked products, those without on the rows of all clients as one batch.

        Convolutions are stacked on a CUDA device only: elsewhere libraries do them best client by client.
        """
        ordered = _pooled_first(layers)
        count = _convolutional(ordered) if not values.is_cuda or len(values) == 1 else 0
        if count:
            # The gradient of unbind is one stack; that of an entry would be as large as the stack, for every client.
            parts = zip(*(tensor.unbind() for tensor in parameters.values()), strict=True)
            clients = [dict(zip(parameters, part, strict=True)) for part in parts]
            each = [_through(ordered[:count], *client) for client in zip(clients, values.unbind(), strict=True)]
            values, ordered = torch.stack(each), ordered[count:]
        for name, layer in ordered:
            own = _own(name, layer, parameters)
            if not own:
                rows = layer(values.flatten(0, 1))
                values = rows.unflatten(0, values.shape[:2])
            elif isinstance(layer, nn.Linear) and layer.bias is not None:
                values = stacked_linear(values, own["weight"].mT, own["bias"])
            elif isinstance(layer, nn.Conv2d) and _is_plain(layer):
                values = stacked_conv2d(values, own["weight"], own["bias"])
            else:
                values = _vectorised(partial(_call, layer), own, values.contiguous())
        return values


def _vectorised(one: Callable[[dict[str, Tensor], Tensor], Tensor], own: dict[str, Tensor], rows: Tensor) -> Tensor:
    """`one` client's work over a stack of them."""
    try:
        stacked: Tensor = torch.func.vmap(one)(own, rows)
    except RuntimeError as problem:
        if "vmap" not in str(problem):
            raise
        why = "it draws random numbers" if "random" in str(problem) else str(problem).partition("\n")[0]
        raise UserError(f"this module cannot be stacked over clients by torch's vmap: {why}") from None
    return stacked


def _parts_first(module: nn.Module) -> Iterator[nn.Module]:
    """A module's parts, theirs before them, and at last the module itself."""
    for part in module.children():
        yield from _parts_first(part)
    yield module


def _drops_at_random(layer: nn.Module) -> bool:
    if isinstance(layer, nn.MultiheadAttention):
        return bool(layer.dropout > 0)
    return isinstance(layer, DROPOUTS) and bool(layer.p > 0)


def _own(name: str, layer: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The parameters of one layer."""
    return {part: parameters[f"{name}.{part}"] for part, _ in layer.named_parameters()}


def _convolutional(layers: Sequence[tuple[str, nn.Module]]) -> int:
    """How many layers there are up to the last convolution and the pooling after it."""
    count = 1 + max((i for i, (_, layer) in enumerate(layers) if isinstance(layer, nn.Conv2d)), default=-1)
    while 0 < count < len(layers) and next(layers[count][1].parameters(), None) is None:
        count += 1
    return count


def _through(layers: Sequence[tuple[str, nn.Module]], parameters: Mapping[str, Tensor], rows: Tensor) -> Tensor:
    """The layers' outputs for one client's rows.

    On a CPU images and kernels are channels-last where layers are known to support it: pooling takes an eighth of
    the time, a whole training step two thirds.
    """
    for name, layer in layers:
        own = _own(name, layer, parameters)
        if isinstance(layer, ON_PICTURES) and not rows.is_cuda:
            own, rows = {part: _channels_last(tensor) for part, tensor in own.items()}, _channels_last(rows)
        else:
            rows = rows.contiguous()
        rows = _call(layer, own, rows)
    return rows.contiguous()


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _pooled_first(layers: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Layers by name, with ReLU after the pooling that follows it: the same values, of a quarter as many numbers."""
    ordered = list(layers.named_children())
    for i, ((_, first), (_, second)) in enumerate(pairwise(ordered)):
        if isinstance(first, nn.ReLU) and isinstance(second, nn.MaxPool2d):
            ordered[i], ordered[i + 1] = ordered[i + 1], ordered[i]
    return ordered


def _call(layer: nn.Module, parameters: dict[str, Tensor], rows: Tensor) -> Tensor:
    result: Tensor = torch.func.functional_call(layer, parameters, (rows,))
    return result


def _is_plain(layer: nn.Conv2d) -> bool:
    """Whether stacked_conv2d does the same."""
    steps = (layer.stride, layer.dilation, layer.padding, layer.groups)
    return steps == ((1, 1), (1, 1), (0, 0), 1) and layer.bias is not None
