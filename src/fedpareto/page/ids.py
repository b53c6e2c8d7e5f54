"""What runs are called in addresses: never by a path, so that no request can name a file."""

from __future__ import annotations

import hashlib
from pathlib import Path

DIGITS = 8


def id_of(folder: Path, root: Path) -> str:
    """The id of a folder below a root."""
    return hashlib.sha256(folder.relative_to(root).as_posix().encode()).hexdigest()[:DIGITS]
