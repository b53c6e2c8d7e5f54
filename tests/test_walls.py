"""No file needs another in a circle, and each heavy library has one place.

That imports go down the floors is checked by import-linter: see tool.importlinter in pyproject.toml, and `make lint`.
"""

from __future__ import annotations

import ast

import pytest
import structure

from sources import ROOT, SOURCES, package, room


def imports_of(path):
    """The modules that a file imports, inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def test_no_files_need_each_other_in_a_circle_not_even_inside_functions_or_for_types():
    files = structure.sources(ROOT)
    assert len(files) > 500
    needs = {name: structure.imports(name, file, files) for name, file in files.items()}
    assert structure.circles(needs) == []


def test_only_one_place_knows_each_heavy_library():
    homes = {
        "sklearn": {"algorithms", "problems"},
        "moocore": {"moo"},
        "pymoo": {"moo"},
        "matplotlib": {"audit", "papers", "report", "space"},
        "typer": {"audit", "cli", "flower", "page", "papers", "serve", "space"},
        "cryptography": {"flower", "trust"},
        "pandas": {"problems"},
        "flwr": {"flower"},
        "dp_accounting": {"contract"},
        "fastapi": {"page", "serve"},
        "uvicorn": {"page", "serve"},
        "onnx": {"serve", "space"},
        "onnxruntime": {"serve", "space"},
        "spacepackets": {"space"},
        "zstandard": {"codecs"},
        "sgp4": {"space"},
        "tensorboard": {"runs"},
        "mlflow": {"runs"},
        "numba": {"networks", "tensors"},
    }
    for library, allowed in homes.items():
        for path in SOURCES:
            if any(module.split(".")[0] == library for module in imports_of(path)):
                place = room(path) if package(path) == "fedpareto" else package(path)
                assert place in allowed, f"{path} imports {library}"


def texts_without_encoding(path):
    """The lines that read or write a text in whatever encoding the system likes: on Windows not UTF-8."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in ("read_text", "write_text") and not (name == "read_text" and isinstance(node.func, ast.Name)):
            yield node.lineno
        elif name == "open":
            # A class of ours may be opened too, with no mode or a folder; a file's mode is a text such as "a" or "rb".
            modes = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            if any(isinstance(mode, str) and "b" not in mode for mode in modes):
                yield node.lineno
        elif any(keyword.arg in ("text", "universal_newlines") for keyword in node.keywords):
            yield node.lineno


@pytest.mark.parametrize("files", [SOURCES, sorted((ROOT / "examples").rglob("*.py"))], ids=["packages", "examples"])
def test_every_text_has_an_encoding(files):
    assert files
    assert not [f"{path}:{line}" for path in files for line in texts_without_encoding(path)]


def test_what_a_windows_without_encoding_would_break_is_found(tmp_path):
    code = tmp_path / "code.py"
    lines = ["path.read_text()", "path.open('a')", "run(text=True)", "path.open('rb')", "path.write_text(encoding='x')"]
    code.write_text("\n".join(lines), encoding="utf-8")
    assert list(texts_without_encoding(code)) == [1, 2, 3]


WRITERS = {
    "files.py": "for_writing itself",
    "data.py": "the folder of data sets, which is the user's own",
    "stores.py": "the folder of a link's own transactions",
    "nnef.py": "in memory",
    "rehearsal.py": "in memory",
    "worker.py": "a pipe",
    "gym_worker.py": "a pipe",
}
"""Files that open others to write by themselves."""


def test_whoever_appends_or_cuts_does_it_where_links_are_refused():
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "open",
                "fdopen",
            ):
                words = [*node.args, *(one.value for one in node.keywords if one.arg == "mode")]
                modes = [one.value for one in words if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes):
                    found.add(path.name)
            if isinstance(node, ast.Attribute) and node.attr == "truncate" and getattr(node.value, "id", "") == "os":
                found.add(f"{path.name}: os.truncate")
    assert found <= WRITERS.keys()
