"""Who may import whom: cli → papers → experiments → engines → algorithms → moo, problems beside algorithms."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import fedpareto

ROOT = Path(fedpareto.__file__).parent

MAY_IMPORT = {
    "errors": set(),
    "config": {"errors"},
    "limits": {"errors"},
    "files": {"errors", "limits"},
    "columns": {"errors", "files"},
    "workers": set(),
    "cluster": {"errors"},
    "plugins": {"errors"},
    "codecs": {"errors", "plugins"},
    "moo": {"errors"},
    "inputs": {"config", "errors", "limits", "core"},
    "core": {"config", "errors", "plugins", "moo", "inputs", "networks", "trust"},
    "trust": {"config", "errors", "moo", "core"},
    "networks": {"errors", "core"},
    "learners": {"errors", "moo", "core", "networks"},
    "algorithms": {"errors", "moo", "core", "trust"},
    "problems": {"errors", "limits", "files", "moo", "core", "inputs", "networks", "learners", "space"},
    "fleet": {"config", "errors", "files", "moo", "core"},
    "engines": {"config", "errors", "files", "cluster", "codecs", "moo", "core", "trust", "learners", "fleet"},
    "experiments": {
        "config",
        "errors",
        "limits",
        "files",
        "columns",
        "moo",
        "core",
        "inputs",
        "trust",
        "engines",
        "fleet",
        "report",
        "workers",
        "cluster",
        "codecs",
        "plugins",
    },
    "report": {"errors", "files", "columns", "moo"},
    "serving": {
        "config",
        "errors",
        "limits",
        "files",
        "moo",
        "core",
        "inputs",
        "networks",
        "experiments",
        "workers",
        "space",
    },
    "space": {
        "config",
        "errors",
        "limits",
        "files",
        "codecs",
        "core",
        "networks",
        "algorithms",
        "engines",
        "experiments",
        "fleet",
        "problems",
    },
    "api": {
        "config",
        "errors",
        "core",
        "trust",
        "engines",
        "experiments",
        "fleet",
        "page",
        "problems",
        "serving",
        "tuning",
    },
    "testing": {"config", "errors", "moo", "core", "engines", "experiments", "learners", "problems"},
    "deploy": {"config", "errors", "files", "codecs", "moo", "core", "trust", "engines", "experiments", "problems"},
    "page": {
        "config",
        "errors",
        "files",
        "columns",
        "moo",
        "core",
        "inputs",
        "report",
        "experiments",
        "serving",
        "deploy",
    },
    "papers": {"config", "errors", "files", "columns", "moo", "core", "trust", "engines", "experiments", "report"},
    "tuning": {"config", "errors", "files", "moo", "core", "engines", "experiments", "report"},
    "cli": {
        "config",
        "errors",
        "plugins",
        "tuning",
        "files",
        "core",
        "experiments",
        "papers",
        "report",
        "problems",
        "serving",
        "deploy",
        "space",
        "page",
    },
    "__main__": {"cli"},
}


@functools.cache
def tree_of(path):
    """A file, parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports_of(path):
    """The modules that a file imports."""
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module == "fedpareto"
            found += [f"fedpareto.{alias.name}" for alias in node.names] if whole else [node.module]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_imports_point_one_way(part):
    files = [ROOT / f"{part}.py"] if (ROOT / f"{part}.py").exists() else sorted((ROOT / part).rglob("*.py"))
    assert files
    for path in files:
        for module in imports_of(path):
            if module.startswith("fedpareto.") and module != "fedpareto.__version__":
                other = module.split(".")[1]
                assert other in MAY_IMPORT[part] | {part}, f"{path.relative_to(ROOT)} imports {module}"


SPACE_MAY_IMPORT = {
    "wire": {"errors", "files", "codecs"},
    "links": {"errors", "space.wire"},  # of which bundles need the strict CBOR
    "orbits": {"errors", "files"},
    "formats": {"errors", "limits", "files", "codecs", "core", "networks", "space.wire"},
    "missions": {
        "config",
        "errors",
        "codecs",
        "core",
        "engines",
        "fleet",
        "space.links",
        "space.orbits",
    },  # never experiments
    "session": {*MAY_IMPORT["space"], "space.wire", "space.links", "space.formats"},
}


@pytest.mark.parametrize("room", SPACE_MAY_IMPORT)
def test_the_rooms_of_space_import_one_way_and_those_for_flight_no_torch(room):
    for path in (ROOT / "space" / room).rglob("*.py"):
        for module in imports_of(path):
            if module.startswith("fedpareto."):
                parts = module.split(".")
                other = ".".join(parts[1:3]) if parts[1] == "space" else parts[1]
                assert other in SPACE_MAY_IMPORT[room] | {f"space.{room}"}, f"{path} imports {module}"
            assert module.split(".")[0] != "torch" or room in ("formats", "session"), path


def test_problems_need_of_space_only_the_orbits():
    for path in (ROOT / "problems").rglob("*.py"):
        found = [module for module in imports_of(path) if module.startswith("fedpareto.space")]
        assert all(module.startswith("fedpareto.space.orbits.") for module in found), path


def test_experiments_need_of_space_only_the_missions_and_only_where_specs_and_flights_are_made():
    for path in (ROOT / "experiments").rglob("*.py"):
        found = [module for module in imports_of(path) if module.startswith("fedpareto.space")]
        assert all(module.startswith("fedpareto.space.missions.") for module in found), path
        assert not found or path.stem in ("spec", "draft", "spec_values", "flights"), path


def test_networks_need_of_the_contract_only_layouts_connections_randomness_memory_and_a_compiler():
    needed = {f"fedpareto.core.{name}" for name in ("layout", "connections", "rng", "workspace", "jit")}
    allowed = {"fedpareto.core", *needed}
    for path in (ROOT / "networks").rglob("*.py"):
        assert {module for module in imports_of(path) if module.startswith("fedpareto.core")} <= allowed, path
    for name in ("layout", "connections", "rng", "quantiles", "workspace"):
        found = {module for module in imports_of(ROOT / f"core/{name}.py") if module.startswith("fedpareto.")}
        assert found <= {*allowed, *(f"fedpareto.{one}" for one in ("core.quantiles", "core.order_kernels", "errors"))}


def test_inputs_need_of_the_contract_only_how_a_dataclass_is_built_of_plain_values():
    for path in (ROOT / "inputs").rglob("*.py"):
        found = {module for module in imports_of(path) if module.startswith("fedpareto.core")}
        assert found <= {"fedpareto.config.parameters"}, path
    found = {module for module in imports_of(ROOT / "core/parameters.py") if "fedpareto" in module}
    assert found <= {"fedpareto.errors"}


def test_the_contract_needs_of_trust_only_what_privacy_and_a_secure_sum_are():
    known = {"fedpareto.core.privacy", "fedpareto.core.secure_sum"}
    for path in (ROOT / "core").rglob("*.py"):
        assert {module for module in imports_of(path) if "fedpareto.trust" in module} <= known, path
    for name in ("privacy", "secure_sum"):
        found = {module for module in imports_of(ROOT / f"trust/{name}.py") if "fedpareto" in module}
        assert found <= {"fedpareto.errors", "fedpareto.config"}, name


def test_no_modules_need_each_other_in_a_circle_not_even_for_types():
    paths = {
        ".".join(("fedpareto", *path.relative_to(ROOT).with_suffix("").parts)): path for path in ROOT.rglob("*.py")
    }
    needs = {name: needed_at_once(path, paths) for name, path in paths.items()}
    reached = {name: everything_after(name, needs) for name in needs}
    circles = {frozenset(other for other in reached[name] if name in reached[other]) for name in needs}
    assert circles == {frozenset()}


def needed_at_once(path, known):
    """The modules that a file imports when it is imported, or for its types; what a function imports comes later."""
    found = set()
    for node in tree_of(path).body:
        for part in node.body if isinstance(node, ast.If) else [node]:
            if isinstance(part, ast.ImportFrom) and part.module:
                found |= {part.module, *(f"{part.module}.{alias.name}" for alias in part.names)}
    return found & known.keys()


def everything_after(name, needs):
    """All modules that a module needs, and those that they need."""
    found, left = set(), set(needs[name])
    while left:
        one = left.pop()
        found.add(one)
        left |= needs[one] - found
    return found


def test_every_part_has_its_wall():
    parts = {path.stem for path in ROOT.iterdir() if path.name not in ("__init__.py", "py.typed", "__pycache__")}
    assert parts == set(MAY_IMPORT)


def test_only_one_place_knows_each_heavy_library():
    homes = {
        "sklearn": {"algorithms", "problems"},
        "moocore": {"moo"},
        "pymoo": {"moo"},
        "matplotlib": {"report"},
        "typer": {"cli"},
        "cryptography": {"deploy", "trust"},
        "pandas": {"problems"},
        "flwr": {"engines", "experiments", "deploy"},
        "dp_accounting": {"trust"},
        "fastapi": {"serving", "page"},
        "uvicorn": {"serving", "page"},
        "onnx": {"serving", "space"},
        "onnxruntime": {"serving", "space"},
        "spacepackets": {"space"},
        "zstandard": {"codecs"},
        "sgp4": {"space"},
        "tensorboard": {"experiments"},
        "mlflow": {"experiments"},
        "numba": {"core", "networks"},
    }
    for library, allowed in homes.items():
        for path in ROOT.rglob("*.py"):
            if any(module.split(".")[0] == library for module in imports_of(path)):
                assert path.relative_to(ROOT).parts[0] in allowed, f"{path} imports {library}"


MOST_LINES = 450


def test_no_file_is_too_long_to_be_read_at_once():
    folders = [ROOT.parents[1] / folder for folder in ("src", "tests", "tools", "benchmarks", "examples")]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert not [path.name for path in files if len(path.read_bytes().splitlines()) > MOST_LINES]


def texts_without_encoding(path):
    """The lines that read or write a text in whatever encoding the system likes: on Windows not UTF-8."""
    for node in ast.walk(tree_of(path)):
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


@pytest.mark.parametrize("folder", ["src", "examples"])
def test_every_text_has_an_encoding(folder):
    files = sorted((ROOT.parents[1] / folder).rglob("*.py"))
    assert files
    assert not [f"{path}:{line}" for path in files for line in texts_without_encoding(path)]


def test_what_a_windows_without_encoding_would_break_is_found(tmp_path):
    code = tmp_path / "code.py"
    lines = ["path.read_text()", "path.open('a')", "run(text=True)", "path.open('rb')", "path.write_text(encoding='x')"]
    code.write_text("\n".join(lines), encoding="utf-8")
    assert list(texts_without_encoding(code)) == [1, 2, 3]
