"""What else a third party may add: an engine, a command, a lossless coder and a tool that runs are reported to."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import typer

from fedpareto.codecs import CodecError
from fedpareto.codecs.lossless import Coder, Plain
from fedpareto.config.errors import UserError
from fedpareto.engines.options import EngineOptions
from fedpareto.runs.callbacks import Callback
from fedpareto.runs.logged import Log
from fedpareto.spec.backends import Backend


@dataclass(frozen=True)
class NightlyOptions(EngineOptions):
    """Computes in this process, and only for teams of a given size."""

    name: ClassVar[str] = "nightly"

    team: int = 3
    """Number of clients."""

    def __post_init__(self):
        super().__post_init__()
        if self.team < 1:
            raise UserError(f"engine: team is {self.team}; at least 1 is needed")

    @property
    def lacks(self):
        return {"stopping": "a nightly run ends in the morning"}

    @property
    def defaults(self):
        return {"clients": self.team}


class Nightly(Backend):
    """The engine of these options."""

    options = NightlyOptions

    @contextmanager
    def opened(self, spec, folder, chosen):
        with super().opened(spec, folder, chosen) as engine:
            print("the night begins")
            yield engine


def greet(name: Annotated[str, typer.Argument(help="Whom to greet.")]) -> None:
    """Greet somebody.

    Example: fedpareto greet you
    """
    typer.echo(f"hello {name}")


class Deflate(Coder):
    """The bytes of plain numbers, deflated."""

    def pack(self, numbers: np.ndarray, bits: int) -> bytes:
        return zlib.compress(Plain().pack(numbers, bits))

    def unpack(self, data: bytes, count: int, bits: int) -> np.ndarray:
        size = (count * bits + 7) // 8
        try:
            return Plain().unpack(zlib.decompressobj().decompress(data, size + 1), count, bits)
        except zlib.error as problem:
            raise CodecError(f"deflate cannot read the coded bytes: {problem}") from None


class Lines(Log):
    """One line of text for every row, in the file that the user names."""

    def begin(self):
        self.file = Path(self.where).open("w")  # noqa: SIM115 (closed by end)

    def figures(self, seed: int, round: int, at: float, values: Mapping[str, float]):
        print(seed, round, sorted(values), file=self.file)

    def final(self, seed: int, round: int, values: Mapping[str, float]):
        print(seed, "final", file=self.file)

    def flush(self):
        self.file.flush()

    def end(self, how: str):
        print(how, file=self.file)
        self.file.close()


class Until(Callback):
    """Ends a run after the round that the user names."""

    def __init__(self, about, where: str):
        self.last = int(where)

    def on_round(self, run):
        return run.round >= self.last
