"""Who may import whom: cli → experiments → engines → algorithms → moo, problems beside algorithms."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fedpareto

ROOT = Path(fedpareto.__file__).parent

MAY_IMPORT = {
    "errors": set(),
    "files": {"errors"},
    "moo": {"errors"},
    "core": {"errors", "moo"},
    "learners": {"errors", "moo", "core"},
    "algorithms": {"errors", "moo", "core"},
    "problems": {"errors", "files", "moo", "core", "learners"},
    "engines": {"errors", "files", "moo", "core", "learners"},
    "experiments": {"errors", "files", "moo", "core", "engines", "report"},
    "report": {"errors", "files", "moo"},
    "serving": {"errors", "files", "moo", "core", "experiments"},
    "api": {"errors", "core", "engines", "experiments", "serving"},
    "testing": {"errors", "moo", "core", "engines", "experiments", "problems"},
    "cli_data": {"errors", "problems"},
    "cli_reproduce": {"errors", "files", "experiments"},
    "cli_matrix": {"errors", "experiments"},
    "deploy": {"errors", "files", "moo", "core", "engines", "experiments", "problems"},
    "cli_server": {"errors", "deploy", "experiments", "problems"},
    "cli_node": {"errors", "deploy"},
    "cli_serve": {"errors", "files", "serving"},
    "cli": {
        *("errors", "core", "experiments", "report"),
        *("cli_data", "cli_reproduce", "cli_matrix", "cli_server", "cli_node", "cli_serve"),
    },
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (
                [f"fedpareto.{alias.name}" for alias in node.names] if node.module == "fedpareto" else [node.module]
            )
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_point_one_way(part):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else sorted((ROOT / part).rglob("*.py"))
    assert files
    for path in files:
        for module in imports_of(path):
            if module.startswith("fedpareto.") and module != "fedpareto.__version__":
                other = module.split(".")[1]
                assert other in MAY_IMPORT[part] | {part}, f"{path.relative_to(ROOT)} imports {module}"


def test_every_part_has_its_wall():
    parts = {path.stem for path in ROOT.iterdir() if path.name not in ("__init__.py", "py.typed", "__pycache__")}
    assert parts == set(MAY_IMPORT)


def test_only_one_place_knows_each_heavy_library():
    homes = {
        "sklearn": {"algorithms"},
        "moocore": {"moo"},
        "pymoo": {"moo"},
        "matplotlib": {"report"},
        "typer": {
            *("cli.py", "cli_data.py", "cli_reproduce.py", "cli_matrix.py", "cli_server.py", "cli_node.py"),
            "cli_serve.py",
        },
        "cryptography": {"deploy"},
        "pandas": {"problems"},
        "flwr": {"engines", "experiments", "deploy"},
        "dp_accounting": {"core"},
        "fastapi": {"serving"},
        "uvicorn": {"serving"},
        "onnx": {"serving"},
        "onnxruntime": {"serving"},
    }
    for library, allowed in homes.items():
        for path in ROOT.rglob("*.py"):
            if any(module.split(".")[0] == library for module in imports_of(path)):
                assert path.relative_to(ROOT).parts[0] in allowed, f"{path} imports {library}"
