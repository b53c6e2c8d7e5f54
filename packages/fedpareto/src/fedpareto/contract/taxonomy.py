"""The boxes of the thesis's taxonomy (figure 2.4, section 2.2), and who is in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

OUTSIDE = "outside"
"""The label in place of a level where nothing about the method is multi-objective; it is here to be compared with."""
COMPARISON = "single-objective comparison"
"""The family of all that is outside."""


@dataclass(frozen=True)
class Box:
    """One box: what methods in it have in common."""

    number: int
    """Place in the order of section 2.2."""
    level: Literal["top", "federation", "client"]
    """Level of the federated system at which several objectives enter."""
    family: str
    """The label that a method of this box bears."""
    branch: str
    """Branch of which the family is a part."""
    solutions: Literal["one", "front", "client-specific"]
    """Result: one solution, a set of compromises to choose from, or one solution for each client."""
    leads: Literal["server", "client", "distributed"]
    """Side that decides what is tried next."""
    section: str
    """Section of the thesis."""
    was_empty: bool = False
    """True if the thesis knows no work in it."""
    ways: tuple[str, ...] = ()
    """Occupants that are no algorithms but go with all of them: a command, or a key of a spec with its value."""


TUNING, AGGREGATION, ONLINE = "offline optimisation", "multi-objective aggregation", "online optimisation"
ONE, FRONT, SPECIFIC = "a single solution", "a Pareto front", "client-specific solutions"

BOXES = (
    Box(1, "top", "offline hyper-parameter tuning", TUNING, "front", "server", "2.2.1.1", ways=("fedpareto tune",)),
    Box(2, "top", "offline architecture search", TUNING, "front", "server", "2.2.1.2", ways=("fedpareto tune",)),
    Box(3, "federation", "clients as objectives", AGGREGATION, "one", "server", "2.2.2.1"),
    Box(4, "federation", "multi-criteria aggregation", AGGREGATION, "one", "server", "2.2.2.1"),
    Box(5, "federation", "online hyper-parameter tuning", ONLINE, "one", "server", "2.2.2.2"),
    Box(6, "federation", "online client selection", ONLINE, "one", "server", "2.2.2.2", ways=("selection: nsga2",)),
    Box(7, "federation", "online architecture search", ONLINE, "front", "server", "2.2.2.2"),
    Box(8, "client", "single-solution", ONE, "one", "server", "2.2.3.1"),
    Box(9, "client", "server-led", FRONT, "front", "server", "2.2.3.2"),
    Box(10, "client", "client-led", FRONT, "front", "client", "2.2.3.2", was_empty=True),
    Box(11, "client", "fully distributed", FRONT, "front", "distributed", "2.2.3.2", was_empty=True),
    Box(12, "client", "preference-driven", SPECIFIC, "client-specific", "server", "2.2.3.2"),
    Box(13, "client", "multi-task", SPECIFIC, "client-specific", "server", "2.2.3.2"),
)
LEVELS = {"top": "top level", "federation": "federation level", "client": "client level"}


def occupants(algorithms: Mapping[str, Any]) -> dict[Box, tuple[str, ...]]:
    """Algorithms in each box, by their labels, and other ways to fill it."""
    return {box: (*box.ways, *_bearing(algorithms, box)) for box in BOXES}


def outsiders(algorithms: Mapping[str, Any]) -> tuple[str, ...]:
    """The algorithms that are in no box."""
    return tuple(_bearing(algorithms, None))


def _bearing(algorithms: Mapping[str, Any], box: Box | None) -> Iterable[str]:
    return (name for name, cls in algorithms.items() if cls.taxonomy.box == box)
