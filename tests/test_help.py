"""Help answers at once, holds examples that work, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEAVY = {
    "torch",
    "ray",
    "numpy",
    "scipy",
    "sklearn",
    "matplotlib",
    "pandas",
    "gymnasium",
    "flwr",
    "uvicorn",
    "starlette",
}
"""Packages that take long to import; with none of them, help takes a fraction of a second."""
GROUPS = ("completion", "data", "server", "node", "space")
OWN = ("run", "stop", "resume", "show", "compare", "algorithms", "problems", "demo", "sweep", "tune")
COMMANDS = ("run", "stop", "resume", "show", "compare", "page", "algorithms", "problems", "demo")


def example_in(text: str) -> list[str]:
    """The arguments of the example in a command's help, which may be wrapped."""
    found = re.search(r"Example: fedpareto (.*?)\n\s*\n", text, flags=re.DOTALL)
    assert found is not None, text
    return shlex.split(" ".join(found.group(1).split()))


def imported_by(*arguments: str) -> set[str]:
    """The packages that `python ARGUMENTS` imports."""
    command = [sys.executable, "-X", "importtime", *arguments]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # "import time: self [us] | cumulative | imported package", one line for each module.
    lines = [line.split("|")[2].strip() for line in report.splitlines() if line.startswith("import time:")]
    found = {line.partition(".")[0] for line in lines}
    assert "fedpareto" in found
    return found


def test_importing_the_package_or_the_command_line_imports_nothing_heavy() -> None:
    assert not HEAVY & imported_by("-c", "import fedpareto, fedpareto.cli")


def test_help_says_what_an_argument_is(fedpareto: Any) -> None:
    """Under click 8.5 the words behind an argument's name were gone."""
    shown = " ".join(fedpareto("space", "inspect", "--help").out.split())
    assert shown.count("FILE A message: its bytes, or their hexadecimal digits.") == 1


@pytest.mark.parametrize("command", ["", "run", "data", "stop"])
def test_help_imports_nothing_heavy(command: str) -> None:
    """So it answers at once, on a slow machine too."""
    assert not HEAVY & imported_by("-m", "fedpareto", *command.split(), "--help")


def test_help_lists_every_command(fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("--help")
    listed = re.findall(r"^  ([a-z]+) {2,}\S", answer.out.partition("Commands:")[2], flags=re.MULTILINE)
    assert answer.code == 0
    assert tuple(listed[: len(OWN)]) == OWN, "in this order"
    assert set(listed) == {*COMMANDS, *OWN, *GROUPS, "reproduce", "audit", "matrix", "predict", "export", "serve"}


def test_no_arguments_are_answered_with_help(fedpareto: Callable[..., Any]) -> None:
    assert "Usage: fedpareto" in fedpareto().out


def test_the_version_is_the_packages_own(fedpareto: Callable[..., Any]) -> None:
    from importlib.metadata import version

    for arguments in (["--version"], ["--version", "run"]):
        assert fedpareto(*arguments).out == f"fedpareto {version('fedpareto')}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS, "sweep"])
def test_the_example_in_help_is_a_command_that_parses(command: str, fedpareto: Callable[..., Any]) -> None:
    from typer.main import get_command

    from fedpareto.cli import app

    arguments = example_in(fedpareto(*([command] if command else []), "--help").out)
    name, *rest = arguments
    assert name == (command or "run")
    group: Any = get_command(app)
    parsed = group.commands[name].make_context(name, rest)  # Raises if an option does not exist.
    given = {option for option in rest if option.startswith("--")}
    known = {text for parameter in group.commands[name].params for text in parameter.opts}
    assert given <= known
    assert any(value is not None for value in parsed.params.values())


def test_the_examples_run_one_after_the_other(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    """As a newcomer would paste them; only the numbers of rounds and clients are smaller."""
    small = ("--rounds", "2", "--clients", "4", "--seeds", "1")
    for algorithm in ("fedavg", "fedpref"):  # What the examples of resume, show and compare speak of.
        assert fedpareto("run", algorithm, *small, "--quiet").code == 0
    for command in ("run", "resume", "show", "compare", "algorithms", "problems"):
        example = example_in(fedpareto(command, "--help").out)
        answer = fedpareto(*example, *(small if command == "run" else ()))
        assert answer.code == 0, answer.err
        assert answer.out
    assert (tmp_path / "runs" / "comparison").is_dir()
