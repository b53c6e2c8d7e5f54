"""Workers of xdist, forked from one process that has imported already what the tests import.

By itself each worker would import torch, Flower and all else anew: three quarters of what it takes to begin.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bytecode import write_all
from processes import CAN_FORK, Nursery, Python

IMPORTS = re.compile(r"^(?:import|from) ([\w.]+)", re.MULTILINE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    write_all()
    if CAN_FORK and len(specs) > 1:
        fork_workers(imported_by(config.args))


def imported_by(arguments: Sequence[str]) -> list[str]:
    """What the files and folders among pytest's arguments import when tests are collected."""
    files = set[Path]()
    for argument in arguments:
        path = Path(argument.partition("::")[0])
        files |= set(path.rglob("*.py")) if path.is_dir() else {path}
    root = Path(__file__).parents[1]
    own = {
        path.stem
        for place in ("tests", "tools", "packages/*/tests")
        for top in root.glob(place)
        for path in top.rglob("*.py")
    }
    found = {name for path in files for name in IMPORTS.findall(path.read_text(encoding="utf-8"))}
    return sorted(name for name in found if name.partition(".")[0] not in own)


class Worker(Python):
    """Imports what its tests do, and no more."""

    common = ()


def fork_workers(modules: Sequence[str]) -> None:
    """From now on what execnet starts comes from a nursery with these modules at hand."""
    from execnet import gateway_base, gateway_io

    class Forked(gateway_io.Popen2IOMaster):
        def __init__(self, args: Sequence[str], execmodel: Any) -> None:
            self.popen = Worker(args, modules=modules, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            gateway_base.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    Nursery.open()
    vars(gateway_io)["Popen2IOMaster"] = Forked
