"""A run folder read back into a Record, once. A run that has not finished is described by what it wrote so far."""

from __future__ import annotations

from pathlib import Path

from fedpareto.config.errors import UserError
from fedpareto.record.following import Following
from fedpareto.record.run_record import Record


def load(folder: Path) -> Record:
    """Read the run in `folder`; `UserError` says in one line why it cannot be shown."""
    following = Following(folder)
    following.read()
    record = following.record()
    if record.lines and not len(record.common_rounds):
        raise UserError(
            f"{folder} holds no objectives to show: its clients kept them to themselves (privacy.objectives); "
            "rounds and epsilon are in its metrics.jsonl"
        )
    return record
