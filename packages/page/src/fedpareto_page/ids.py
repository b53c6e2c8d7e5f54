"""What runs are called in addresses: never by a path, so that no request can name a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

DIGITS = 8


def id_of(folder: Path, root: Path, what: str = "") -> str:
    """The id of a run's folder below a root, or of `what` else is in the folder."""
    return hashlib.sha256(f"{folder.relative_to(root).as_posix()}{what}".encode()).hexdigest()[:DIGITS]
