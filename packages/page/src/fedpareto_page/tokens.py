"""The page's token: kept for a port in a private file, so that open tabs go on when the page is started again."""

from __future__ import annotations

import os
import re
import secrets
import stat
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically

BYTES = 24
DAYS = 7
"""After so many without use a token is not used again."""
SHAPE = re.compile(rf"[A-Za-z0-9_-]{{{BYTES * 4 // 3}}}")


def new() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(BYTES)


def kept_for(port: int) -> str:
    """The token with which the page was last on this port, or a new one; where none can be kept, a new one."""
    try:
        file = _private_folder() / f"page-{port}.token"
    except OSError:
        return new()
    token = _read(file) or new()
    with suppress(UserError):
        write_atomically(file, token)
    return token


def _read(file: Path) -> str:
    """What is kept; empty if that is nothing, too old or damaged."""
    try:
        text, age = file.read_text(encoding="utf-8"), time.time() - file.stat().st_mtime
    except (OSError, UnicodeDecodeError):
        return ""
    return text if SHAPE.fullmatch(text) and age < DAYS * 86_400 else ""


def _private_folder() -> Path:
    """A folder that only this user can read; OSError if there is none.

    The system's own folder for this is emptied when the user logs out. In the common folder for temporary files another
    user could have made one of our name: then it is not ours.
    """
    own = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = Path(own) / "fedpareto" if own else Path(tempfile.gettempdir()) / f"fedpareto-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if user != "" and (not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o077):
        raise PermissionError(f"{folder} is not private")
    return folder
