"""What the page asks for, each answered by a function of the shelf: the server and the saved page call these alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedpareto.page.watch import Shelf


def runs(shelf: Shelf) -> dict[str, Any]:
    """The shelf, but for `server` and `read_only`, which only the server knows."""
    raise NotImplementedError


def about(shelf: Shelf, id: str) -> dict[str, Any]:
    """What a run is and ended with."""
    raise NotImplementedError


def lines(shelf: Shelf, id: str, since: int = 0, epoch: int = 0) -> bytes:
    """A frame: the numbers of each line from `since` on."""
    raise NotImplementedError


def values(shelf: Shelf, id: str, eval: str, split: str, since: int = 0, epoch: int = 0) -> bytes:
    """A frame: what single clients have, line by line."""
    raise NotImplementedError


def film(shelf: Shelf, id: str, seed: int) -> bytes:
    """A frame: clusters and similarities round by round."""
    raise NotImplementedError


def grid(shelf: Shelf, id: str, seed: int) -> bytes:
    """A frame: what became of each client in each round."""
    raise NotImplementedError


def events(shelf: Shelf, id: str, since: int = 0) -> dict[str, Any]:
    """The newest refusals."""
    raise NotImplementedError


def clients(shelf: Shelf, id: str, seed: int, round: int | None, runs: Sequence[str]) -> dict[str, Any]:
    """What each client wanted and got; `round` None is the latest."""
    raise NotImplementedError


def compare(shelf: Shelf, runs: Sequence[str]) -> dict[str, Any]:
    """Runs side by side."""
    raise NotImplementedError
