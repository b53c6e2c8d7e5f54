"""Nothing that fedpareto reads can run code: there is no reader that could."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedpareto

FILES = sorted(Path(fedpareto.__file__).parent.rglob("*.py"))
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    ("torch", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("pandas", "read_pickle"),
    ("pd", "read_pickle"),
}


def dangers(tree):
    """Whatever in a program could run what it has read."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in MODULES)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES:
                yield module
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                yield name
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in ATTRIBUTES:
                yield f"{owner}.{name}"
            case ast.keyword(arg="allow_pickle" | "shell" as name, value=ast.Constant(value=True)):
                yield name


def test_nothing_that_is_read_can_run_code():
    assert len(FILES) > 300
    found = {path.name: list(dangers(ast.parse(path.read_text(encoding="utf-8")))) for path in FILES}
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "program",
    [
        "import pickle",
        "from cloudpickle import loads",
        "eval(text)",
        "torch.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "yaml.unsafe_load(text)",
    ],
)
def test_what_could_is_seen(program):
    assert list(dangers(ast.parse(program)))
