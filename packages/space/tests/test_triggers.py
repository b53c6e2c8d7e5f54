"""When a client submits (table 6.2, row 3)."""

from __future__ import annotations

import pytest

from fedpareto_space.session.triggers import Progress, due, every, fires, goes_on
from fedpareto_space.wire import rows


def first_step(trigger, losses, norms, contact_at, poll_at):
    """The local step, each a second long, after which a trigger fires."""
    progress = Progress(since=100.0)
    for step, loss, norm in zip(range(1, 50), losses, norms, strict=False):
        progress.steps, progress.loss, progress.norm = step, loss, norm
        progress.contact, progress.polled = step >= contact_at, step >= poll_at
        if fires(trigger, progress, 100.0 + step):
            return step
    return None


FALLING = [1.0 / step for step in range(1, 50)]
GROWING = [0.5 * step for step in range(1, 50)]


@pytest.mark.parametrize(
    ("trigger", "step"),
    [
        (rows.Steps(1), 1),
        (rows.Steps(7), 7),
        (rows.Loss(0.25), 4),
        (rows.Loss(-1.0), None),
        (rows.Elapsed(3.0), 3),
        (rows.Elapsed(2.5), 3),
        (rows.AtContact(), 6),
        (rows.Polled(), 9),
        (rows.Norm(2.0), 4),
        (rows.AnyOf((rows.Steps(8), rows.Norm(2.0))), 4),
        (rows.AllOf((rows.Steps(8), rows.Norm(2.0))), 8),
        (rows.AllOf((rows.AtContact(), rows.AnyOf((rows.Polled(), rows.Loss(0.1))))), 9),
        (rows.AnyOf((rows.AllOf((rows.Steps(5), rows.AtContact())), rows.Polled())), 6),
    ],
)
def test_a_trigger_fires_at_the_exact_step(trigger, step):
    assert first_step(trigger, FALLING, GROWING, contact_at=6, poll_at=9) == step


def test_nothing_is_submitted_before_the_first_step():
    assert not fires(rows.Polled(), Progress(0.0, polled=True), 5.0)
    assert not fires(rows.Elapsed(1.0), Progress(0.0), 5.0)


def test_training_goes_on_only_for_what_training_can_bring_about():
    progress = Progress(0.0, steps=1)
    assert goes_on(rows.Steps(2), progress, 0.0)
    assert goes_on(rows.AllOf((rows.AtContact(), rows.Steps(2))), progress, 0.0)
    assert not goes_on(rows.AllOf((rows.AtContact(), rows.Steps(1))), progress, 0.0)
    assert not goes_on(rows.AnyOf((rows.AtContact(), rows.Polled())), progress, 0.0)


def test_time_alone_is_waited_for_at_its_moment():
    trigger = rows.AnyOf((rows.Elapsed(9.0), rows.AllOf((rows.Elapsed(4.0), rows.Steps(3)))))
    assert due(trigger, Progress(100.0)) == 104.0
    assert due(rows.Steps(3), Progress(100.0)) is None
    assert len(every(trigger)) == 3
