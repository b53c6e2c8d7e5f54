"""What uv.lock says: exact versions for pip, and on which machines each extra has wheels for all it needs.

python tools/lock.py pins      # for pip install --constraint; needs nothing but Python
python tools/lock.py wheels    # the table of docs/installation.md; needs packaging
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = {
    "Linux x86-64": {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "x86_64",
    },
    "Linux ARM": {
        "sys_platform": "linux",
        "platform_system": "Linux",
        "os_name": "posix",
        "platform_machine": "aarch64",
    },
    "macOS ARM": {
        "sys_platform": "darwin",
        "platform_system": "Darwin",
        "os_name": "posix",
        "platform_machine": "arm64",
    },
    "Windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
}
"""The machines of `tool.uv.environments`, by the variables of dependency markers."""
PLATFORM_TAGS = {
    "Linux x86-64": ("manylinux", "_x86_64"),
    "Linux ARM": ("manylinux", "_aarch64"),
    "macOS ARM": ("macosx", ("_arm64", "_universal2")),
    "Windows": ("win_amd64", ""),
}
"""How the platform tag of a wheel begins and ends there."""

Package = Mapping[str, Any]


def read(path: Path = ROOT / "uv.lock") -> dict[str, Package]:
    """The packages of the lock file by name."""
    packages = tomllib.loads(path.read_text(encoding="utf-8"))["package"]
    by_name = {package["name"]: package for package in packages}
    if len(by_name) < len(packages):
        sys.exit(f"{path} has two versions of a package; narrow its range in pyproject.toml until one will do")
    return by_name


def pins(lock: Mapping[str, Package]) -> list[str]:
    """Every package but our own as name==version."""
    return [f"{name}=={package['version']}" for name, package in lock.items() if "registry" in package["source"]]


def needed(lock: Mapping[str, Package], extra: str | None, python: str, machine: str) -> set[str]:
    """The names of all packages that an extra, or none, takes there."""
    from packaging.markers import Marker

    environment = {**MACHINES[machine], "python_version": python, "python_full_version": f"{python}.9", "extra": ""}
    environment |= {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
    found: set[tuple[str, str | None]] = set()
    waiting: list[tuple[str, str | None]] = [("fedpareto", None), ("fedpareto", extra)]
    while waiting:
        name, part = waiting.pop()
        if (name, part) in found:
            continue
        found.add((name, part))
        package = lock[name]
        for dependency in (
            package.get("optional-dependencies", {}).get(part, []) if part else package.get("dependencies", [])
        ):
            if "marker" not in dependency or Marker(dependency["marker"]).evaluate(environment):
                waiting += [(dependency["name"], part) for part in (None, *dependency.get("extra", []))]
    return {name for name, _ in found} - {"fedpareto"}


def has_wheel(package: Package, python: str, machine: str) -> bool:
    """Whether one of its wheels fits."""
    from packaging.utils import parse_wheel_filename

    names = (wheel["url"].rsplit("/", 1)[-1] for wheel in package.get("wheels", []))
    return any(fits(tag, python, machine) for name in names for tag in parse_wheel_filename(name)[3])


def fits(tag: Any, python: str, machine: str) -> bool:
    """Whether this CPython takes a wheel with such a tag, on a system of recent years."""
    minor = int(python.removeprefix("3."))
    begins, ends = PLATFORM_TAGS[machine]
    if tag.platform != "any" and not (tag.platform.startswith(begins) and tag.platform.endswith(ends)):
        return False
    if tag.abi == "none":
        return tag.interpreter in ("py3", f"py3{minor}", f"cp3{minor}", "cp3")
    if not tag.interpreter.startswith("cp3"):
        return False
    built_for = int(tag.interpreter.removeprefix("cp3") or 0)
    return built_for <= minor if tag.abi == "abi3" else tag.abi == f"cp3{minor}" and built_for == minor


def without_wheel(lock: Mapping[str, Package], extra: str | None, python: str, machine: str) -> list[str]:
    """What would have to be built from source there."""
    return sorted(name for name in needed(lock, extra, python, machine) if not has_wheel(lock[name], python, machine))


def table(lock: Mapping[str, Package]) -> Iterator[str]:
    """A row for each extra, a column for each machine: `yes` means wheels for all of `PYTHONS`."""
    yield f"| | {' | '.join(MACHINES)} |"
    yield "|---" * (len(MACHINES) + 1) + "|"
    for extra in (None, *lock["fedpareto"]["optional-dependencies"]):
        cells = [_cell(lock, extra, machine) for machine in MACHINES]
        yield f"| {f'`{extra}`' if extra else 'fedpareto itself'} | {' | '.join(cells)} |"


def _cell(lock: Mapping[str, Package], extra: str | None, machine: str) -> str:
    """`yes`, or `yes, but builds pygame on 3.14`."""
    missing = [(python, without_wheel(lock, extra, python, machine)) for python in PYTHONS]
    builds = [f"builds {', '.join(names)} on {python}" for python, names in missing if names]
    return ", but ".join(["yes", " and ".join(builds)]) if builds else "yes"


if __name__ == "__main__":
    print("\n".join({"pins": pins, "wheels": table}[sys.argv[1]](read())))
