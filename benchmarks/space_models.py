"""Models on their way: how large ONNX and NNEF are, what weights alone take, and how far runtimes lie apart.

python benchmarks/space_models.py            # a table in Markdown, as docs/space-models.md has it
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedpareto.networks.mlp import MLP
from fedpareto.networks.resnet import ResNet18
from fedpareto.problems.images_text.networks import CharacterLSTM, ImageNetwork, TextCNN
from fedpareto_space.formats import nnef, onnx_files, runtimes
from fedpareto_space.formats.network import Network
from fedpareto_space.formats.tracing import traced

ROWS = 2
STREAM = torch.Generator().manual_seed(0)


def pixels(*shape: int) -> Tensor:
    """Random images."""
    return torch.randint(0, 256, (ROWS, *shape), generator=STREAM, dtype=torch.uint8)


def numbers(most: int, length: int) -> Tensor:
    """Random words or characters."""
    return torch.randint(0, most, (ROWS, length), generator=STREAM)


def of(network: MLP | ImageNetwork | TextCNN | CharacterLSTM) -> Network:
    """One of the library's."""
    return Network(network, network.layout, network.initial(0))


def normalised(kind: Callable[[int], nn.Module]) -> Network:
    """Three convolutions with a normalisation after each, then the mean over the image."""
    layers: list[nn.Module] = []
    for before, after in ((1, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(before, after, 3, padding=1), kind(after), nn.ReLU(), nn.MaxPool2d(2)]
    return Network.of_module(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)))


NETWORKS: dict[str, Callable[[], tuple[Network, Tensor]]] = {
    "MLP 784-128-64-10": lambda: (of(MLP(784, (128, 64), 10)), torch.randn(ROWS, 784, generator=STREAM)),
    "CNN with BatchNorm": lambda: (normalised(nn.BatchNorm2d), torch.randn(ROWS, 1, 28, 28, generator=STREAM)),
    "CNN with GroupNorm": lambda: (
        normalised(lambda width: nn.GroupNorm(8, width)),
        torch.randn(ROWS, 1, 28, 28, generator=STREAM),
    ),
    "`cnn` (FedFew)": lambda: (of(ImageNetwork("cnn", (1, 28, 28), 10)), pixels(1, 28, 28)),
    "`cnn-lrn` (FedMGDA+)": lambda: (of(ImageNetwork("cnn-lrn", (3, 32, 32), 10)), pixels(3, 32, 32)),
    "`resnet-18`, a quarter as wide": lambda: (
        Network.of_module(ResNet18(3, 10, 16)),
        torch.randn(ROWS, 3, 32, 32, generator=STREAM),
    ),
    "TextCNN, 5,000 words": lambda: (of(TextCNN(5000, 50, 4)), numbers(5000, 30)),
    "LSTM, 2 layers, 20 characters": lambda: (of(CharacterLSTM(80, 8, 64)), numbers(80, 20)),
}


def measured(name: str, folder: Path) -> str:
    """A row of the table."""
    network, x = NETWORKS[name]()
    # Away from where layers begin: a variance of 1 and a mean of 0 would hide mistakes.
    noise = 0.02 * torch.randn(network.layout.size, generator=STREAM)
    other = network.with_model(torch.cat([torch.from_numpy(one).flatten() for one in network.tensors.values()]) + noise)
    graph = traced(network, x)
    onnx, apart, text = folder / "model.onnx", folder / "apart.onnx", folder / "model"
    onnx_files.write(graph, network.tensors, onnx)
    onnx_files.write(graph, network.tensors, apart, apart=True)
    nnef.write(graph, network.tensors, text, rows=ROWS)
    for update, path in ((onnx_files.rewrite, onnx), (onnx_files.swap, apart), (nnef.update, text)):
        update(path, other.tensors)
    far = [runtimes.differences(other, path, x.numpy()) for path in (onnx, text)]
    weights = 4 * network.layout.size
    cells = [
        *(name, f"{weights:,}", f"{apart.stat().st_size:,}", f"{(text / nnef.GRAPH).stat().st_size:,}"),
        f"{100 * weights / onnx.stat().st_size:.1f} %",
        *(f"{difference:.0e}" for found in far for difference in found.values()),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """All of them, or those whose names are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names")
    wanted = parser.parse_args().names
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="raise"):
        for number, name in enumerate(NETWORKS):
            if not wanted or any(part in name for part in wanted):
                place = Path(folder) / str(number)
                place.mkdir()
                print(measured(name, place), flush=True)


if __name__ == "__main__":
    main()
