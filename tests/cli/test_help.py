"""Help answers at once, holds examples that work, and nothing heavy is imported before it is needed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COMMANDS = ("run", "resume", "show", "compare", "algorithms", "problems", "demo")


def example_in(text: str) -> list[str]:
    """The arguments of the example in a command's help, which may be wrapped."""
    found = re.search(r"Example: fedpareto (.*?)\n\s*\n", text, flags=re.DOTALL)
    assert found is not None, text
    return shlex.split(" ".join(found.group(1).split()))


def test_importing_the_package_without_torch_takes_less_than_0_3_seconds() -> None:
    def seconds() -> float:
        command = [sys.executable, "-X", "importtime", "-c", "import fedpareto"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        # "import time: self [us] | cumulative | imported package", one line for each module.
        lines = [line.removeprefix("import time:").split("|") for line in report.splitlines()[1:]]
        own = sum(int(line[0]) for line in lines if not line[2].strip().startswith("torch"))
        assert any(line[2].strip() == "fedpareto" for line in lines)
        return own / 1e6

    assert min(seconds() for _ in range(3)) < 0.3


def test_importing_the_package_or_the_command_line_does_not_import_torch() -> None:
    code = "import sys, fedpareto, fedpareto.cli; print([name for name in ('torch', 'numpy') if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\n"


def test_help_answers_in_less_than_a_second() -> None:
    def seconds() -> float:
        begin = time.perf_counter()
        command = Path(sys.executable).with_name("fedpareto")
        subprocess.run([command, "--help"], capture_output=True, check=True)
        return time.perf_counter() - begin

    assert min(seconds() for _ in range(3)) < 1.0


def test_help_lists_every_command(fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("--help")
    listed = re.findall(r"^  ([a-z]+) {2,}\S", answer.out.partition("Commands:")[2], flags=re.MULTILINE)
    assert answer.code == 0
    assert tuple(listed) == (*COMMANDS, "reproduce", "matrix", "predict", "export", "serve", "data", "server", "node")


def test_no_arguments_are_answered_with_help(fedpareto: Callable[..., Any]) -> None:
    assert "Usage: fedpareto" in fedpareto().out


def test_the_version_is_the_packages_own(fedpareto: Callable[..., Any]) -> None:
    from importlib.metadata import version

    for arguments in (["--version"], ["--version", "run"]):
        assert fedpareto(*arguments).out == f"fedpareto {version('fedpareto')}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
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
