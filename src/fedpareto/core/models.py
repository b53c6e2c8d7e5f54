"""Models over a stack of clients: parameters `{name: [n, ...]}`, inputs `[n, b, ...]`, one batched call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fedpareto.core import rng
from fedpareto.core.layout import Layout
from fedpareto.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])
FEW_OUTPUTS = 4
"""Up to this many, a product is done output by output; beyond, a batched product is faster."""
ON_PICTURES = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.LocalResponseNorm, nn.ReLU)
"""Layers that take images in any memory format."""
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
HAS_MKL: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
TILE, TILES = 64, 256
"""A GPU computes a product in tiles of about this side, and needs about this many at once to be busy."""


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU between them, as batched matrix products (vmap over the same is 1.5 times slower)."""

    inputs: int
    hidden: tuple[int, ...]
    outputs: int
    linear: int = 1
    """Layers at the end that have no ReLU after them."""

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden):
            raise UserError(f"hidden is {list(self.hidden)}; each layer has at least 1 unit, for example [64, 32]")

    @cached_property
    def layout(self) -> Layout:
        """Layer i is "i.weight" `[in, out]` and "i.bias" `[out]`."""
        widths = (self.inputs, *self.hidden, self.outputs)
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (fan_in, fan_out) in enumerate(pairwise(widths)):
            shapes |= {f"{i}.weight": (fan_in, fan_out), f"{i}.bias": (fan_out,)}
        return Layout.of(shapes)

    def has_relu(self, layer: int) -> bool:
        """Whether a ReLU follows that layer, counted from 0."""
        return layer <= len(self.hidden) - self.linear

    def initial(self, seed: int, purpose: str = "initial model") -> Tensor:
        """PyTorch's own initialisation of linear layers: uniform within 1/√fan-in."""
        stream = rng.torch_generator(rng.Address(seed), purpose)
        parts = []
        for i, fan_in in enumerate((self.inputs, *self.hidden)):
            bound = 1 / math.sqrt(fan_in)
            for kind in ("weight", "bias"):
                shape = self.layout.shapes[self.layout.names.index(f"{i}.{kind}")]
                parts.append(torch.empty(math.prod(shape)).uniform_(-bound, bound, generator=stream))
        return torch.cat(parts)

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs `[n, b, outputs]` for inputs `[n, b, inputs]`; of some layers only, if `parameters` holds no more."""
        for i in range(len(self.hidden) + 1):
            if f"{i}.weight" in parameters:
                weight, bias = parameters[f"{i}.weight"], parameters[f"{i}.bias"]
                inputs = stacked_linear(inputs, weight, bias, relu=self.has_relu(i))
        return inputs

    def each(self, shared: Mapping[str, Tensor], own: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        """Outputs `[n, k, b, outputs]` of k models for each client, which share their first layers, `[n, ...]`.

        The others, `own`, are `[n, k, ...]`; what is shared is computed once.
        """
        # Rows come last from here on: the many small products of `own` run along them.
        values = self(shared, inputs).mT.unsqueeze(1)
        for i in range(len(self.hidden) + 1):
            if f"{i}.weight" in own:
                values = linear_of_each(values, own[f"{i}.weight"], own[f"{i}.bias"])
                values = values.relu_() if self.has_relu(i) else values
        return values.mT


def linear_of_each(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Wᵀ·x + b for k models of each client: `[n, k, in, b]`, `[n, k, in, out]`, `[n, k, out]` to `[n, k, out, b]`.

    `inputs` may also be the same for the k models, `[n, 1, in, b]`: then they are one product. A product of tiny
    matrices for each of n·k models costs many times its arithmetic in calls, so these are done output by output.
    """
    n, k, fan_in, fan_out = weight.shape
    if inputs.shape[1] == 1:
        rows = weight.mT.reshape(n, k * fan_out, fan_in)
        return torch.baddbmm(bias.reshape(n, k * fan_out, 1), rows, inputs[:, 0]).view(n, k, fan_out, -1)
    if fan_out <= FEW_OUTPUTS:
        outputs = [(inputs * weight[..., j, None]).sum(2) for j in range(fan_out)]
        return torch.stack(outputs, dim=2) + bias.unsqueeze(-1)
    return weight.mT @ inputs + bias.unsqueeze(-1)


def _inspected(function: F) -> F:
    """Keeps its signature: autograd looks it up in every call, which takes as long as a small product."""
    function.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return function


def stacked_linear(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool = False) -> Tensor:
    """x·W + b, then ReLU if asked: `[n, b, in]`, `[n, in, out]`, `[n, out]` to `[n, b, out]`."""
    lowered = _as_autocast_wants(inputs, weight, bias)
    result: Tensor = _StackedLinear.apply(*lowered, relu)  # type: ignore[no-untyped-call]
    return result


class _StackedLinear(torch.autograd.Function):
    """One node for product, bias and ReLU."""

    generate_vmap_rule = True

    @staticmethod
    @_inspected
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        """See stacked_linear."""
        output = torch.baddbmm(bias.unsqueeze(-2), inputs, weight)
        return output.relu_() if relu else output

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, bool], output: Tensor) -> None:
        """Keeps what the gradient needs; ReLU's own is read off its output."""
        ctx.relu = inputs[3]
        ctx.save_for_backward(inputs[0], inputs[1], *([output] if ctx.relu else []))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        """The gradients of inputs, weight and bias that are needed."""
        inputs, weight, *output = ctx.saved_tensors
        if ctx.relu:
            gradient = torch.ops.aten.threshold_backward(gradient, output[0], 0)
        of_inputs, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            torch.bmm(gradient, _to_the_right(weight.mT)) if of_inputs else None,
            _of_weight(inputs, gradient, weight) if of_weight else None,
            gradient.sum(-2) if of_bias else None,
            None,
        )


def _to_the_right(factor: Tensor) -> Tensor:
    """For a product on a CPU without MKL, a transposed view is copied first.

    OpenBLAS on ARM has no kernel for it among small batched matrices; the product would cost 3.5 times as much.
    """
    swift = factor.stride(-1) == 1 or factor.is_cuda or HAS_MKL
    return factor if swift else factor.contiguous()


def _of_weight(inputs: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
    """The gradient of `weight`, laid out in memory as that is: torch's own linear layers hold theirs transposed."""
    if weight.stride(-2) == 1:
        return torch.bmm(gradient.mT, inputs).mT
    return torch.bmm(inputs.mT, gradient)


def stacked_conv2d(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution without padding and with stride 1: inputs `[n, b, c, h, w]`, weight `[n, o, c, k, l]`.

    One product of all clients' patches.
    """
    values: Tensor
    lowered = _as_autocast_wants(inputs, weight, bias)
    values, _ = _StackedConvolution.apply(*lowered)  # type: ignore[no-untyped-call]
    return values


def _as_autocast_wants(*tensors: Tensor) -> tuple[Tensor, ...]:
    """In the lower precision that was set, if any: torch does not see through operations of our own."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


class _StackedConvolution(torch.autograd.Function):
    """By patches, in channels-last memory: grouped convolutions of libraries leave a GPU mostly idle.

    The bias is one more entry of the kernel, which every patch multiplies by 1; so it is as precise as products are.
    """

    @staticmethod
    @_inspected
    def forward(inputs: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """See stacked_conv2d; also the patches, which the gradient needs."""
        rows, (n, out, channels, height, width) = inputs.shape[1], weight.shape
        windows = inputs.permute(0, 1, 3, 4, 2).unfold(2, height, 1).unfold(3, width, 1)  # [n, b, y, x, c, k, l]
        size, entries = windows.shape[2:4], height * width * channels
        kernel = _kernel(weight, bias)
        patches = inputs.new_empty(n, rows, *size, kernel.shape[1])
        shown = patches[..., :entries].view(n, rows, *size, height, width, channels)
        shown.copy_(windows.permute(0, 1, 2, 3, 5, 6, 4))
        patches[..., entries] = 1
        patches[..., entries + 1 :] = 0
        patches = patches.flatten(1, 3)
        values = torch.bmm(patches, kernel)
        return values.view(n, rows, *size, out).permute(0, 1, 4, 2, 3), patches

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        """Keeps what the gradient needs."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[1], output[1])
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        """The gradients of inputs (if needed), weight and bias."""
        weight, patches = ctx.saved_tensors
        n, out, channels, height, width = weight.shape
        of_values = gradient.permute(0, 1, 3, 4, 2).reshape(n, -1, out)
        of_kernel, entries = _summed_product(patches, of_values, gradient.shape[1]), height * width * channels
        of_weight = of_kernel[:, :entries].view(n, height, width, channels, out).permute(0, 4, 3, 1, 2)
        of_inputs = None
        if ctx.needs_input_grad[0]:
            of_patches = torch.bmm(of_values, _entries(weight).mT)
            of_inputs = _overlaid(of_patches, ctx.shape, (height, width), tuple(gradient.shape[3:]))
        return of_inputs, of_weight, of_kernel[:, entries]


def _entries(weight: Tensor) -> Tensor:
    """A weight `[n, o, c, k, l]` as patches see it, `[n, k · l · c, o]`."""
    return weight.permute(0, 3, 4, 2, 1).flatten(1, 3)


def _kernel(weight: Tensor, bias: Tensor) -> Tensor:
    """What patches are multiplied by, `[n, k · l · c + 1 + padding, o]`: a weight and below it the bias.

    Their length is filled up to a multiple of 8: on rows of another length, a GPU's tensor cores are idle (with
    bfloat16 and 75 entries the gradient took 13 times as long).
    """
    entries = torch.cat([_entries(weight), bias.unsqueeze(1)], dim=1)
    return nn.functional.pad(entries, (0, 0, 0, -entries.shape[1] % 8))


def _summed_product(left: Tensor, right: Tensor, rows: int) -> Tensor:
    """leftᵀ·right of each client, `[n, r, e]` and `[n, r, o]` to `[n, e, o]`.

    A few small results of long sums leave a GPU idle (7 times slower with 20 clients), so each is done in pieces: the
    fewest that keep it busy and divide the client's `rows`, of which r is a multiple.
    """
    n, _, entries = left.shape
    out = right.shape[2]
    tiles = n * math.ceil(entries / TILE) * math.ceil(out / TILE)
    pieces = next((count for count in range(1, rows + 1) if rows % count == 0 and count * tiles >= TILES), max(rows, 1))
    products = torch.bmm(left.reshape(n * pieces, -1, entries).mT, right.reshape(n * pieces, -1, out))
    return products.view(n, pieces, entries, out).sum(1)


def _overlaid(patches: Tensor, shape: torch.Size, kernel: tuple[int, int], size: tuple[int, ...]) -> Tensor:
    """Images of `shape` `[n, b, c, h, w]` as the sums of their patches `[n, b · y · x, k · l · c]`."""
    n, rows, channels, height, width = shape
    tall, wide = size
    parts = patches.view(n, rows, tall, wide, *kernel, channels)
    images = patches.new_zeros(n, rows, height, width, channels)
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            images[:, :, y : y + tall, x : x + wide] += parts[:, :, :, :, y, x]
    return images.permute(0, 1, 4, 2, 3)


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
