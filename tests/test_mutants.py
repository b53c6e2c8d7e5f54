"""What tools/mutants.py changes, and what it says of changes that tests notice, do not notice, or never end with."""

from __future__ import annotations

import difflib
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from processes import CAN_FORK, run

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.append(str(TOOLS))
mutations, patches = (importlib.import_module(name) for name in ("mutations", "patches"))

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


CAUGHT = """diff --git a/src/planted.py b/src/planted.py
index 1..2 100644
--- a/src/planted.py
+++ b/src/planted.py
@@ -9,3 +9,4 @@ def below(value: int) -> bool:
     if value < 0:
         raise ValueError(f"{value - 1} is below 0")
+    value = value - 1
     return value < LIMIT
"""
SURVIVES = """--- src/planted.py
+++ src/planted.py
@@ -90,3 +91,3 @@
 def unwatched(value):
-    return value * 5
+    return value * 6
"""


@pytest.mark.skipif(not CAN_FORK, reason="the tool forks as Linux does")
def test_patches_are_judged_in_the_same_way(tmp_path):
    """A file that cannot be imported is named; a hunk may stand elsewhere than it says, as files change."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "planted.py").write_text(PLANTED)
    (tmp_path / "test_planted.py").write_text(TESTS)
    (tmp_path / "test_other.py").write_text("import nothing_of_that_name\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = src\n")
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "1-limit.patch").write_text(CAUGHT)
    (tmp_path / "faults" / "2-times.patch").write_text(SURVIVES)
    out = tmp_path / "fates.json"
    words = ["--root", tmp_path, "--only", tmp_path / "src" / "planted.py", "--patches", tmp_path / "faults"]
    words += ["--tests", "test_planted.py", "--tests", "test_other.py", "--controls", 1, "--json", out]
    done = run([sys.executable, TOOLS / "mutants.py", *words, "--seconds", 0])
    assert "left out: test_planted.py: it was not done in time" in done.stdout
    words += ["--map", tmp_path / "map.json"]
    done = run([sys.executable, TOOLS / "mutants.py", *words])
    assert done.returncode == 0, done.stderr
    assert [one["fate"] for one in json.loads(out.read_text())] == ["caught", "survived"]
    assert "src/planted.py:14: survived: 2-times.patch" in done.stdout
    assert "left out: test_other.py: failed: E   ModuleNotFoundError" in done.stdout
    done = run([sys.executable, TOOLS / "mutants.py", *words, "--seconds", 0])
    assert [one["fate"] for one in json.loads(out.read_text())] == ["not tried", "not tried"]
    assert "0 under way" in done.stdout


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (SURVIVES.replace("value * 5", "value * 7"), "src/planted.py has no such lines: def unwatched(value):"),
        (SURVIVES.replace("src/planted.py", "src/other.py"), "src/other.py is no Python file under src"),
        (SURVIVES.replace("src/planted.py", "planted.py"), "planted.py is no Python file under src"),
        (SURVIVES.replace("* 6", "* "), "src/planted.py is no Python after it"),
        ("", "it changes no file"),
    ],
)
def test_a_patch_that_does_not_apply_says_why(tmp_path, patch, why):
    (tmp_path / "src").mkdir()
    for folder in (tmp_path, tmp_path / "src"):
        (folder / "planted.py").write_text(PLANTED)
    with pytest.raises(patches.DoesNotApply, match=re.escape(why)):
        patches.patched(patch, tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("    return value < LIMIT", "    return value > LIMIT", {10}),
        ("        many -= 1", "        many -= 1\n        many -= 2", {19, 20}),
        ("    while many > 0:", "    while many > 1:", {18}),
        ("LIMIT = 3", "LIMIT = 4", None),
        ("def unwatched(value):", "def unwatched(value, more=1):", None),
    ],
)
def test_the_lines_that_a_patch_concerns(tmp_path, old, new, lines):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "planted.py").write_text(PLANTED)
    after = PLANTED.replace(old, new)
    words = {"fromfile": "a/src/planted.py", "tofile": "b/src/planted.py", "lineterm": "", "n": 1}
    patch = "\n".join(difflib.unified_diff(PLANTED.splitlines(), after.splitlines(), **words))
    (found,) = patches.patched(patch, tmp_path).values()
    assert found.text == after
    assert found.lines == (lines and frozenset(lines))
