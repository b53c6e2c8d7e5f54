"""Triggers of a client's submission (table 6.2, row 3): conditions on what has happened since the last global model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedpareto_space.wire import rows


@dataclass
class Progress:
    """Progress of a client since it integrated a global model."""

    since: float
    """Time of the integration."""
    steps: int = 0
    loss: float | None = None
    """After the last step, where it was measured."""
    norm: float = 0.0
    contact: bool = False
    polled: bool = False


def fires(trigger: Any, progress: Progress, now: float) -> bool:
    return progress.steps > 0 and _holds(trigger, progress, now)


def _holds(trigger: Any, progress: Progress, now: float) -> bool:
    match trigger:
        case rows.Steps(steps):
            return progress.steps >= steps
        case rows.Loss(loss):
            return progress.loss is not None and progress.loss <= loss
        case rows.Elapsed(seconds):
            return now - progress.since >= seconds
        case rows.AtContact():
            return progress.contact
        case rows.Polled():
            return progress.polled
        case rows.Norm(norm):
            return progress.norm >= norm
        case rows.AnyOf(triggers):
            return any(_holds(one, progress, now) for one in triggers)
        case rows.AllOf(triggers):
            return all(_holds(one, progress, now) for one in triggers)
    raise TypeError(f"{trigger!r} is no trigger")


def every(trigger: Any) -> list[Any]:
    """All conditions in it that hold no other."""
    inner = getattr(trigger, "triggers", None)
    return [trigger] if inner is None else [part for one in inner for part in every(one)]


def goes_on(trigger: Any, progress: Progress, now: float) -> bool:
    trained = rows.Steps | rows.Loss | rows.Norm | rows.Elapsed
    return any(isinstance(one, trained) and not _holds(one, progress, now) for one in every(trigger))


def due(trigger: Any, progress: Progress) -> float | None:
    """The next moment at which time alone can make it fire."""
    times = [progress.since + one.seconds for one in every(trigger) if isinstance(one, rows.Elapsed)]
    return min(times) if times else None
