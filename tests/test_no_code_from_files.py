"""Nothing that fedpareto reads can run code: there is no reader that could."""

from __future__ import annotations

import ast
import subprocess

import pytest

from fedpareto.config.files import python
from sources import SOURCES

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


IMPORTERS = {
    "__init__.py": "our own modules, by a table",
    "apps.py": "what our own launcher writes into a node's configuration",
    "catalogue.py": "our own papers, by a table",
    "completion.py": "the Click that Typer has loaded",
    "data.py": "our own problems, by a list",
    "dialect.py": "gzip, bz2 and lzma, by a table",
    "gym_worker.py": "what consent.need_module has let pass",
    "registry.py": "our own modules",
    "worker.py": "what the process's own command line or its driver names",
}
"""Files that import modules by a name which is no constant, and what that name is."""
STARTER = "files.py"
"""Where `python` is, by which every process of Python is started."""


def dangers(tree, file=""):
    """Whatever in a program could run what it has read, or what lies in the folder where the user stands."""
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
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module"), args=[name, *_]):
                if not isinstance(name, ast.Constant) and file not in IMPORTERS:
                    yield "import_module of a name that is no constant"
            case ast.List(elts=[ast.Attribute(value=ast.Name(id="sys"), attr="executable"), *_]) if file != STARTER:
                yield "a process of Python that files.python does not start"
            case ast.keyword(arg="allow_pickle" | "shell" as name, value=ast.Constant(value=True)):
                yield name


def test_nothing_that_is_read_can_run_code():
    found = {path.name: list(dangers(ast.parse(path.read_text(encoding="utf-8")), path.name)) for path in SOURCES}
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
        "importlib.import_module(spec.module)",
        "subprocess.Popen([sys.executable, '-m', 'fedpareto'])",
    ],
)
def test_what_could_is_seen(program):
    assert list(dangers(ast.parse(program)))


def test_a_process_of_python_takes_no_module_from_the_folder_where_the_user_stands(tmp_path, monkeypatch):
    (tmp_path / "fedpareto.py").write_text("print('evil')")
    monkeypatch.chdir(tmp_path)
    found = subprocess.run(python("fedpareto", "--version"), capture_output=True, text=True, check=True)
    assert found.stdout.startswith("fedpareto 0.")
