"""Commands of a federation across machines."""

from __future__ import annotations

import importlib.util

from fedpareto.config.errors import UserError
from fedpareto.config.files import need_posix


def check(command: str) -> None:
    """Raise UserError if a command cannot work here."""
    need_posix(command)
    if importlib.util.find_spec("flwr") is None:
        raise UserError(f"{command} needs Flower; try: pip install 'fedpareto[flower]'")
