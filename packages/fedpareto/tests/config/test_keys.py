"""A key of a spec is written in one place, and is then wherever keys are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedpareto
from fedpareto.config import keys
from waiting import PATIENCE

DOCUMENT = Path(__file__).parents[4] / "docs" / "running.md"
FIELD = '''
    patience: Annotated[float, AtLeast(0, 60)] = 7.0
    """Patience of the server, in minutes."""
'''
LOOK = """
import contextlib, inspect, io, json, sys, typer.main
from pathlib import Path
import fedpareto
from fedpareto.cli import app
from fedpareto.cli.completion import candidates
from fedpareto.config import keys
from fedpareto.spec.draft import Draft
from fedpareto_page import form_worker

def refused(values):
    try:
        Draft.read(Path(values)).finish()
    except fedpareto.UserError as problem:
        return str(problem)

Path("good.yaml").write_text("problem: convex\\npatience: 12\\n")
Path("bad.yaml").write_text("problem: convex\\npatience: 61\\n")
command = typer.main.get_command(app)
told = form_worker.check({"problem": "convex", "patience": "9"})
json.dump({
    "api": inspect.signature(fedpareto.run).parameters["patience"].default,
    "run": fedpareto.run("convex", clients=3, rounds=1, patience=3).spec.patience,
    "help": "Patience of the server, in minutes." in fedpareto.run.__doc__,
    "option": command.commands["run"].make_context("run", ["--patience", "5"]).params["patience"],
    "yaml": Draft.read(Path("good.yaml")).finish().to_mapping()["patience"],
    "default": Draft().finish().patience,
    "refused": refused("bad.yaml"),
    "form": next(one for one in form_worker.form()["spec"] if one["name"] == "patience"),
    "words": told["words"],
    "completion": candidates(command, ["run", "--pat"]),
    "table": [line for line in keys.table().splitlines() if "patience" in line],
}, sys.stdout)
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What a copy of the package says that has one key more."""
    place = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(fedpareto.__file__).parent, place / "fedpareto", ignore=shutil.ignore_patterns("__pycache__"))
    file = place / "fedpareto" / "config" / "keys.py"
    before, mark, after = file.read_text(encoding="utf-8").partition("\n\n@dataclass(frozen=True)\nclass Section:")
    assert mark
    file.write_text(before + FIELD + mark + after, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", LOOK],
        env={**os.environ, "PYTHONPATH": str(place)},
        cwd=place,
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("api", 7.0),
        ("run", 3.0),
        ("help", True),
        ("option", 5.0),
        ("yaml", 12.0),
        ("default", 7.0),
        ("refused", "bad.yaml, line 2: patience is 61; it is at least 0 and at most 60"),
        ("words", ["fedpref", "--problem", "convex", "--patience", "9.0"]),
        ("completion", ["--patience"]),
        ("table", ["| `patience` | Patience of the server, in minutes. | 7 | at least 0 and at most 60 |"]),
    ],
)
def test_a_new_key_is_everywhere(found, where, said):
    assert found[where] == said


def test_a_new_key_is_in_the_form(found):
    assert (found["form"]["type"], found["form"]["default"]) == ("number", 7.0)
    assert found["form"]["meaning"] == "Patience of the server, in minutes."


def test_the_table_in_the_documents_is_that_of_the_keys():
    assert keys.table() in DOCUMENT.read_text(encoding="utf-8"), "print it: fedpareto.config.keys.table()"
