"""What tools/mutants.py changes, and what it says of changes that tests notice, do not notice, or never end with."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from processes import CAN_FORK, run

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.append(str(TOOLS))
mutations = importlib.import_module("mutations")

PLANTED = '''
"""A file with known mutants."""

LIMIT = 3


def below(value: int) -> bool:
    if value < 0:
        raise ValueError(f"{value - 1} is below 0")
    return value < LIMIT


def unwatched(value):
    return value * 5


def counted(many):
    while many > 0:
        many -= 1
    return many
'''
TESTS = """
from planted import below, counted, unwatched


def test_the_limit():
    assert below(2)
    assert not below(3)


def test_it_is_called():
    unwatched(1)


def test_it_ends():
    assert counted(2) == 0
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a - b", {"a + b", "b - a", "a"}),
        ("a * b", {"a / b", "a", "b"}),
        ("a < b", {"a <= b", "a > b"}),
        ("x[1:]", {"x[2:]", "x[0:]", "x[:]"}),
        ("x.sum(-1)", {"x.mean(-1)", "x.sum(1)", "x.sum(0)"}),
        ("not a", {"a"}),
        ("a and b", {"a or b"}),
        ("f(a, b)", {"f(b, a)"}),
        ("torch.sqrt(a)", {"a"}),
        ("replace(a, b=c, d=e)", {"replace(a, d=e)", "replace(a, b=c)"}),
        ("raise ValueError(1 - 2)", set()),
        ("f'{1 - 2}'", set()),
        ("'a' + b", set()),
        ("x + 1e-12", {"x - 1e-12", "x", "1e-12"}),
    ],
)
def test_a_line_has_these_mutants(source, expected):
    prefix = "y = " if not source.startswith("raise") else ""
    found = mutations.mutations(prefix + source)
    texts = {
        mutations.ast.unparse(mutations.mutated(prefix + source, one.number)).removeprefix(prefix) for one in found
    }
    assert texts == expected


@pytest.mark.skipif(not CAN_FORK, reason="the tool forks as Linux does")
def test_mutants_are_caught_survive_or_never_end(tmp_path):
    (tmp_path / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    out = tmp_path / "fates.json"
    words = ["--root", tmp_path, "--only", tmp_path / "planted.py", "--tests", "test_planted.py", "--number", 100]
    words += ["--json", out, "--slack", 2, "--jobs", 2]
    done = run([sys.executable, TOOLS / "mutants.py", *words])
    assert done.returncode == 0, done.stderr
    assert "controls: 0 of 5 failed" in done.stdout
    fates = {(one["before"], one["after"]): one["fate"] for one in json.loads(out.read_text())}
    assert fates["value < LIMIT", "value <= LIMIT"] == "caught"
    assert fates["LIMIT = 3", "LIMIT = 4"] == "caught"
    assert fates["value * 5", "value / 5"] == fates["value < 0", "value <= 0"] == "survived"
    assert fates["many -= 1", "many += 1"] == "hang"
    assert "planted.py:14: survived: value * 5 → value / 5" in done.stdout
