"""Files that are never half there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fedpareto.errors import UserError

PART = ".part"
"""How the name of a file under way ends; a process that was killed may leave one behind."""


def write_atomically(path: Path, content: bytes | str) -> None:
    """Writes a file so that a reader, or a crash, finds the old one or the new one and nothing between."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}{PART}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as problem:
        with suppress(OSError):
            temporary.unlink()
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None


def write_secret(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on; an older one is replaced."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
