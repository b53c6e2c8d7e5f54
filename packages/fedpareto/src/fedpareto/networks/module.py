"""Any torch module over a stack of clients."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedpareto.config.errors import UserError
from fedpareto.networks.convolution import halved, halves, is_stacked, stacked_conv2d
from fedpareto.networks.layers import NORMALISATIONS, is_noisy, prepared
from fedpareto.networks.linear import stacked_linear
from fedpareto.tensors import rng
from fedpareto.tensors.layout import Hidden, Layout
from fedpareto.tensors.training import Current, Now, Training

ON_PICTURES = (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d, nn.LocalResponseNorm, nn.ReLU)
"""Layers that take images in any memory format."""


class StackedModule:
    """Any torch module over a stack of clients.

    An nn.Sequential runs layer by layer, each for all clients at once; any other module is vectorised by vmap. Its
    floating-point buffers, such as running statistics, are part of the flat model; other buffers are constants.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.layout = module, layout_of(module)
        self._current = Current()
        self._prepared = prepared(module, self._current)
        self._device = torch.device("cpu")
        self._layers = _sequence(self._prepared)

    def initial(self, seed: int) -> Tensor:
        """The weights that the module has, whatever the seed: those of pretraining, or of a method of its own."""
        return self._weights_of(self.module)

    def drawn(self, seed: int) -> Tensor:
        """A copy of the module, initialised with our generator: `reset_parameters` of every part, then of the whole.

        What `__init__` wrote into a layer that has such a method is drawn again; a module that wants it otherwise
        writes it in a `reset_parameters` of its own.
        """
        seeded, module = set[Tensor](), copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(rng.torch_generator(rng.Address(seed), "initial model").initial_seed())
            for part in _parts_first(module):
                # Multi-head attention has it under this other name.
                reset: Any = getattr(part, "reset_parameters", None) or getattr(part, "_reset_parameters", None)
                if reset is not None:
                    reset()
                    seeded.update(part.parameters())
        for name, tensor in module.named_parameters():
            if tensor not in seeded and bool((tensor != tensor.flatten()[:1]).any()):
                raise UserError(
                    f"the parameter '{name}' was drawn when the module was made, so no seed can fix it; give its "
                    "module a method reset_parameters that draws it"
                )
        return self._weights_of(module)

    def _weights_of(self, module: nn.Module) -> Tensor:
        tensors = {**dict(module.named_buffers()), **dict(module.named_parameters())}
        return self.layout.flatten({name: tensors[name].detach() for name in self.layout.names})

    def __call__(self, parameters: Mapping[str, Tensor], inputs: Tensor, training: Training | None = None) -> Tensor:
        """Outputs `[n, b, ...]` for inputs `[n, b, ...]`; in training mode, if a training step is given.

        Then `training.buffers` has the new values of the module's buffers afterwards.
        """
        if training is not None:
            training.readers.add(training.prefix)
        if self._prepared.training != (training is not None):
            self._prepared.train(training is not None)
        if self._device != inputs.device:
            self._bring_constants(inputs.device)
        if self._layers is not None:
            return self._one_layer_after_the_other(self._layers, parameters, inputs, training)
        return self._vectorised(self._prepared, {**parameters}, inputs, training)

    def _bring_constants(self, device: torch.device) -> None:
        """Buffers that are not part of the model to where the model is, once: a recorded step copies nothing."""
        for part in self._prepared.modules():
            for name, tensor in part.named_buffers(recurse=False):
                setattr(part, name, tensor.to(device))
        self._device = device

    def _one_layer_after_the_other(
        self,
        layers: Sequence[tuple[str, nn.Module]],
        parameters: Mapping[str, Tensor],
        values: Tensor,
        training: Training | None,
    ) -> Tensor:
        """Layers with parameters as stacked products, those without on the rows of all clients as one batch.

        Convolutions are stacked on a CUDA device only: elsewhere libraries do them best client by client.
        """
        ordered = _pooled_first(layers)
        count = _convolutional(ordered) if not values.is_cuda or len(values) == 1 else 0
        if count:
            values, ordered = self._client_by_client(ordered[:count], parameters, values, training), ordered[count:]
        for name, layer in ordered:
            own = _own(name, layer, parameters)
            if values.is_cuda and halves(layer, values):
                values = halved(values)
            elif not own and _is_plainly_applied(layer):
                rows = layer(values.flatten(0, 1))
                values = rows.unflatten(0, values.shape[:2])
            elif type(layer) is nn.Linear and layer.bias is not None and values.dim() == 3:
                values = stacked_linear(values, own["weight"].mT, own["bias"])
            elif isinstance(layer, nn.Conv2d) and is_stacked(layer) and layer.bias is not None:
                assert not isinstance(layer.padding, str), "which is not stacked"
                values = stacked_conv2d(values, own["weight"], own["bias"], layer.stride, layer.padding)  # type: ignore[arg-type]
            else:
                values = self._vectorised(layer, own, values.contiguous(), training)
        return values

    def _client_by_client(
        self,
        layers: Sequence[tuple[str, nn.Module]],
        parameters: Mapping[str, Tensor],
        values: Tensor,
        training: Training | None,
    ) -> Tensor:
        # The gradient of unbind is one stack; that of an entry would be as large as the stack, for every client.
        parts = zip(*(tensor.unbind() for tensor in parameters.values()), strict=True)
        each, calls = [], _calls(training, len(values))
        for part, rows, now in zip(parts, values.unbind(), calls, strict=True):
            with self._called(now):
                each.append(_through(layers, dict(zip(parameters, part, strict=True)), rows))
        if training is not None:
            training.wrote({name: torch.stack([now.buffers[name] for now in calls]) for name in calls[0].buffers})
        return torch.stack(each)

    def _vectorised(self, module: nn.Module, own: dict[str, Tensor], rows: Tensor, training: Training | None) -> Tensor:
        """A module of one client over a stack of them.

        Also of one alone, since vmap finds what draws random numbers; but for who writes the graph down.
        """
        alone = len(rows) == 1 and torch.compiler.is_compiling()
        told = () if training is None else (training.mask, *training.streams())
        purpose = "" if training is None else training.purpose

        def one(own: dict[str, Tensor], rows: Tensor, *told: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            now = Now(alone, told[0] if told else None, told[1:], purpose)
            with self._called(now):
                result: Tensor = torch.func.functional_call(module, own, (rows,))
            return result, now.buffers

        if alone:
            result, buffers = one({name: tensor[0] for name, tensor in own.items()}, rows[0], *(x[0] for x in told))
            result, buffers = result.unsqueeze(0), {name: new.unsqueeze(0) for name, new in buffers.items()}
        else:
            result, buffers = _over_stack(one, own, rows, *told)
        if training is not None:
            training.wrote(buffers)
        return result

    @contextmanager
    def _called(self, now: Now) -> Iterator[None]:
        before, self._current.now = self._current.now, now
        try:
            yield
        finally:
            self._current.now = before


def layout_of(module: nn.Module) -> Layout:
    """Parameters and floating-point buffers in the order of the module's parts; what cannot be trained is a buffer."""
    shapes: dict[str, tuple[int, ...]] = {}
    buffers, normalisation, known = [], [], set()
    kept = module.state_dict(keep_vars=True)
    for prefix, part in module.named_modules():
        own = [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]
        for last, tensor in own:
            name = f"{prefix}.{last}" if prefix else last
            is_parameter = isinstance(tensor, nn.Parameter)
            if tensor in known or not (is_parameter or (tensor.is_floating_point() and name in kept)):
                continue
            known.add(tensor)
            shapes[name] = tuple(tensor.shape)
            if not is_parameter or not tensor.requires_grad:
                buffers.append(name)
            if isinstance(part, NORMALISATIONS):
                normalisation.append(name)
    return Layout.of(shapes, buffers, normalisation, hidden_layers(_sequence(module), shapes))


def _calls(training: Training | None, clients: int) -> list[Now]:
    """`Now` of each client of a stack, one by one."""
    if training is None:
        return [Now() for _ in range(clients)]
    streams = zip(*(tensor.unbind() for tensor in training.streams()), strict=True)
    return [Now(True, mask, stream, training.purpose) for mask, stream in zip(training.mask, streams, strict=True)]


def _over_stack(one: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return torch.func.vmap(one)(*arguments)
    except RuntimeError as problem:
        if "vmap" not in str(problem):
            raise
        why = "it draws random numbers" if "random" in str(problem) else str(problem).partition("\n")[0]
        raise UserError(f"this module cannot be stacked over clients by torch's vmap: {why}") from None


def _parts_first(module: nn.Module) -> Iterator[nn.Module]:
    """All parts of a module, theirs before them, and at last the module itself."""
    for part in module.children():
        yield from _parts_first(part)
    yield module


def _sequence(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]] | None:
    """The layers by name, where a module is nothing but one after the other, none of them twice; None: it is not."""
    if type(module).forward is not nn.Sequential.forward:
        return None
    found = []
    for name, layer in module._modules.items():
        assert layer is not None, "a sequence has no gaps"
        inner = _sequence(layer, f"{prefix}{name}.")
        found += [(f"{prefix}{name}", layer)] if inner is None else inner
    tensors = [tensor for _, layer in found for tensor in layer.parameters()]
    return found if len(tensors) == len(set(tensors)) else None


def _own(name: str, layer: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    parts = (*layer.named_parameters(), *layer.named_buffers())
    return {part: parameters[f"{name}.{part}"] for part, _ in parts if f"{name}.{part}" in parameters}


def _convolutional(layers: Sequence[tuple[str, nn.Module]]) -> int:
    """Number of layers up to the last convolution and the pooling after it, or to one of somebody's own.

    What is dropped after them is drawn for all clients at once.
    """
    count = 1 + max((i for i, (_, layer) in enumerate(layers) if isinstance(layer, nn.Conv2d)), default=-1)
    while 0 < count < len(layers) and _is_plainly_applied(layers[count][1]):
        count += 1
    return next((i for i, (_, layer) in enumerate(layers[:count]) if not _is_known(layer)), count)


def _is_plainly_applied(layer: nn.Module) -> bool:
    """True if a layer is the same function of every row; of somebody's own layers that is not known."""
    return _is_known(layer) and next(layer.parameters(), None) is None and not is_noisy(layer)


def _is_known(layer: nn.Module) -> bool:
    return type(layer).__module__.startswith("torch.nn.modules.")


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
        rows = torch.func.functional_call(layer, own, (rows,))
    return rows.contiguous()


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def _pooled_first(layers: Sequence[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
    """Layers by name, with ReLU after the pooling that follows it: the same values, of a quarter as many numbers."""
    ordered = list(layers)
    for i, ((_, first), (_, second)) in enumerate(pairwise(ordered)):
        if isinstance(first, nn.ReLU) and isinstance(second, nn.MaxPool2d):
            ordered[i], ordered[i + 1] = ordered[i + 1], ordered[i]
    return ordered


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
NUMBER_BY_NUMBER = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh, nn.Softsign),
    *(nn.Identity, nn.Dropout),
)
"""Layers that leave 0 as it is and mix no numbers. What is dropped is drawn for the widest network: a narrower one has
the same chances, not the same draws.
"""
CHANNEL_BY_CHANNEL = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d),
    *(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.LocalResponseNorm),
)
"""Layers on images that leave a channel of zeros as it is, and in which such a channel adds nothing to others: a local
response is normalised by the squares of neighbouring channels, and where these end by zeros.
"""


def hidden_layers(layers: Sequence[tuple[str, nn.Module]] | None, names: Collection[str]) -> tuple[Hidden, ...] | None:
    """The hidden layers of a network that runs `layers` one after the other; None: that is not known.

    `names` are the tensors of the whole network. What is before its first layer with weights or after its last one
    works on inputs or outputs, which stay whole.
    """
    if layers is None:
        return None
    weighted = [i for i, (_, layer) in enumerate(layers) if layer.state_dict()]
    if not weighted or any(type(layers[i][1]) not in (nn.Linear, *CONVOLUTIONS) for i in weighted):
        return None
    found = [_between(layers[first : second + 1], names) for first, second in pairwise(weighted)]
    known = tuple(hidden for hidden in found if hidden is not None)
    return known if len(known) == len(found) else None


def _between(layers: Sequence[tuple[str, Any]], names: Collection[str]) -> Hidden | None:
    """The outputs of the first of some layers, which are the inputs of the last; None: that is not known."""
    (before, first), *others, (after, last) = layers
    units, block = _units(first), _block(first, last, [layer for _, layer in others])
    bias = [(f"{before}.bias", 0, 1)] if first.bias is not None else []
    along = ((f"{before}.weight", 0, 1), *bias, (f"{after}.weight", 1, block))
    return Hidden(units, along) if block and all(name in names for name, *_ in along) else None


def _block(first: Any, last: Any, between: Sequence[nn.Module]) -> int:
    """Number of inputs of the last layer that each unit of the first one is, side by side; 0: that is not known."""
    on_images, flat = type(first) in CONVOLUTIONS, False
    for layer in between:
        if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            flat = True
        elif type(layer) not in (*NUMBER_BY_NUMBER, *(CHANNEL_BY_CHANNEL if on_images and not flat else ())):
            return 0
    if type(last) is nn.Linear:
        # Outputs of a linear layer may have more dimensions, of which the units are the last; images have them first.
        block, rest = divmod(last.in_features, _units(first))
        return block if not rest and (flat if on_images else block == 1) else 0
    return 1 if on_images and not flat and first.groups == 1 and last.groups == 1 else 0


def _units(layer: Any) -> int:
    return int(layer.out_features if type(layer) is nn.Linear else layer.out_channels)
