"""`fedpareto space model` and `space update`: a client's model for the journey, and new weights for one there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from fedpareto.cli.options import Client, RunOrFile, Seed
from fedpareto.config.errors import UserError

if TYPE_CHECKING:
    import torch

    from fedpareto_serve.models import Servable
    from fedpareto_space.formats.network import Network


PACKED = ".tar"


class Format(StrEnum):
    """File formats of a model."""

    ONNX = "onnx"
    NNEF = "nnef"


Preference = Annotated[str | None, typer.Option(help="Of several models the one for this preference, such as 0.7,0.3.")]


def model(
    run: RunOrFile,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="File to write; NNEF is a folder, or one file that ends in .tar.")
    ],
    format: Annotated[
        Format | None, typer.Option(help="Format of the model; default: ONNX if FILE ends in .onnx, else NNEF.")
    ] = None,
    client: Client = None,
    seed: Seed = None,
    preference: Preference = None,
    rows: Annotated[int, typer.Option(min=1, help="How many rows a model in NNEF reads at once.")] = 1,
    apart: Annotated[bool, typer.Option("--apart", help="ONNX: the weights in a file beside the graph.")] = False,
) -> None:
    """Write one client's model as ONNX or NNEF, ready for weights-only updates, and compare runtimes on it.

    Example: fedpareto space model runs/fedavg-digits --client 0 --out model.onnx
    """
    from fedpareto_space.formats import nnef, onnx_files, runtimes
    from fedpareto_space.formats.tracing import traced

    is_onnx = (format or (Format.ONNX if out.suffix == ".onnx" else Format.NNEF)) is Format.ONNX
    if apart and not is_onnx:
        raise UserError("--apart is for ONNX; in NNEF every weight has a file of its own already")
    network, x = _network(run, client, seed, preference, rows)
    graph = traced(network, x)
    with nullcontext(out) if is_onnx else _folder(out, fresh=True) as path:
        if is_onnx:
            onnx_files.write(graph, network.tensors, path, apart)
        else:
            nnef.write(graph, network.tensors, path, rows)
        found = runtimes.differences(network, path, x.numpy())
        for name, difference in found.items():
            if not difference <= runtimes.LARGEST_DIFFERENCE:
                raise UserError(f"{out} differs from the model by {difference:.1e} under {name}; do not use it")
    typer.echo(f"written: {out}, {_size(out):,} bytes, of which {4 * network.layout.size:,} are weights")
    for name, difference in found.items():
        typer.echo(f"under {name} the same to {difference:.1e}")


def update(
    file: Annotated[Path, typer.Argument(help="What fedpareto space model wrote.")],
    run: RunOrFile,
    client: Client = None,
    seed: Seed = None,
    preference: Preference = None,
) -> None:
    """Replace the weights of a model that is already there by those of a run; its graph stays.

    Example: fedpareto space update model.onnx runs/fedavg-digits --client 0
    """
    from fedpareto_space.formats import nnef, onnx_files

    network, _ = _network(run, client, seed, preference, 1)
    if not file.exists():
        raise UserError(f"{file}: there is no such file or folder; fedpareto space model writes one")
    if file.is_dir() or file.suffix == PACKED:
        with _folder(file) as folder:
            nnef.update(folder, network.tensors)
    else:
        onnx_files.update(file, network.tensors)
    typer.echo(f"updated: {file}, {4 * network.layout.size:,} bytes of weights; the graph is the same")


@contextmanager
def _folder(path: Path, fresh: bool = False) -> Iterator[Path]:
    """A folder of NNEF; of a packed one a copy, empty if it is `fresh`, which is packed at the end."""
    from fedpareto.config.files import read_bytes, write_atomically
    from fedpareto_space.formats import nnef

    if path.suffix != PACKED:
        yield path
        return
    with TemporaryDirectory() as place:
        if not fresh:
            nnef.unpacked(read_bytes(path), Path(place), str(path))
        yield Path(place)
        write_atomically(path, nnef.packed(Path(place)))


def _network(
    run: Path, client: str | None, seed: int | None, preference: str | None, rows: int
) -> tuple[Network, torch.Tensor]:
    """The network with a client's weights, and rows such as it reads."""
    import numpy as np
    from torch import from_numpy

    from fedpareto_serve import runs
    from fedpareto_serve.onnx_network import random_rows
    from fedpareto_space.formats.network import Network

    found = runs.load(run).conditioned(client, seed)
    call = found.network if found.problem is None else found.problem.answers
    network = Network(call, found.card.layout, _weights(found, preference))
    return network, from_numpy(random_rows(found.card.inputs, rows, np.random.default_rng(0)))


def _weights(found: Servable, preference: str | None) -> torch.Tensor:
    from fedpareto_serve.models import OneOfMany
    from fedpareto_serve.preferences import parse

    if preference is not None:
        return found.at(parse(preference))
    if isinstance(found, OneOfMany) and len(found.models) == 1:
        return found.models[0]
    raise UserError("there are several models; choose one with --client, or with --preference, such as 0.7,0.3")


def _size(path: Path) -> int:
    from fedpareto_space.formats.onnx_files import weights_file

    files = path.rglob("*") if path.is_dir() else (path, weights_file(path))
    return sum(file.stat().st_size for file in files if file.is_file())
