"""The versions of requirements.lock for `pip install --constraint`, without its hashes; needs nothing but Python.

python tools/lock.py > constraints.txt
"""

from __future__ import annotations

import re
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"
ENTRY = re.compile(r"^([a-z0-9][a-z0-9.-]*)==([^\s;]+)", re.MULTILINE)


def pins(lock: Path = LOCK) -> dict[str, str]:
    """The version of every package by name."""
    return dict(ENTRY.findall(lock.read_text(encoding="utf-8")))


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in pins().items()))
