"""How the house stands: rooms, floors and arrows of imports, those inside functions included.

    python tools/structure.py [--json FILE]

A package is a folder of `packages/*/src`, or `src` where there is no such folder. A room is a folder of a package, or
a file that lies directly in it; an arrow is a pair of rooms (or packages) one of which imports from the other. Floors
are the longest ways down; an arrow upwards is one that has to be left out so that there are floors at all.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

Arrows = Mapping[tuple[str, str], int]
"""How many pairs of files make each arrow."""


def sources(root: Path) -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for source in sorted(root.glob("packages/*/src")) or [root / "src"]:
        for file in source.rglob("*.py"):
            parts = file.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(name: str, file: Path, known: Iterable[str]) -> set[str]:
    """The modules of ours that a file imports, anywhere in it and also only for types."""
    known, found = set(known), set()
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            named = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {nearest(one, known) for one in named}
    return found - {"", name}


def nearest(name: str, known: set[str]) -> str:
    """The longest beginning of a dotted name that is a module of ours; empty if none is."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def room(name: str, file: Path) -> str:
    """The folder of a package in which a module lies, or the module itself."""
    parts = name.split(".")
    is_folder = file.name == "__init__.py" or len(parts) > 2
    return ".".join(parts[:2]) if is_folder or len(parts) == 2 else name


def package(file: Path, root: Path) -> str:
    """The name of the package to which a file belongs."""
    parts = file.relative_to(root).parts
    return parts[1] if parts[0] == "packages" else parts[0]


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a circle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(one: str) -> None:
        index[one] = low[one] = len(index)
        stack.append(one)
        for other in sorted(graph[one]):
            if other not in index:
                visit(other)
                low[one] = min(low[one], low[other])
            elif other in stack:
                low[one] = min(low[one], index[other])
        if low[one] == index[one]:
            group = stack[stack.index(one) :]
            del stack[stack.index(one) :]
            if len(group) > 1:
                found.append(sorted(group))

    for one in sorted(graph):
        if one not in index:
            visit(one)
    return sorted(found)


def upwards(arrows: Arrows) -> set[tuple[str, str]]:
    """The arrows against the order of rooms that has few pairs of files against it.

    There are none without a circle. From the order of their names on, each room moves to its best place for as long as
    that helps.
    """
    below = defaultdict(set)
    for who, whom in arrows:
        below[who].add(whom)
    with suppress(CycleError):
        TopologicalSorter(below).prepare()
        return set()
    order = sorted({room for arrow in arrows for room in arrow})

    def gain(one: str, other: str) -> int:
        """By how many pairs it is better to have `one` above `other` than below."""
        return arrows.get((one, other), 0) - arrows.get((other, one), 0)

    moved = True
    while moved:
        moved = False
        for one in list(order):
            before, rest = order.index(one), [room for room in order if room != one]
            worth = [sum(gain(one, other) for other in rest[place:]) for place in range(len(order))]
            worth = [worth[place] - sum(gain(one, other) for other in rest[:place]) for place in range(len(order))]
            best = max(range(len(order)), key=worth.__getitem__)
            if worth[best] > worth[before]:
                order = [*rest[:best], one, *rest[best:]]
                moved = True
    place = {room: number for number, room in enumerate(order)}
    return {(who, whom) for who, whom in arrows if place[who] > place[whom]}


def floors(arrows: Arrows, without: set[tuple[str, str]]) -> dict[str, int]:
    """On which floor each room lies; one that imports nothing is on the first."""
    below = defaultdict(set)
    for who, whom in arrows:
        below[who] |= {whom} if (who, whom) not in without else set()
    found: dict[str, int] = {}

    def of(one: str) -> int:
        if one not in found:
            found[one] = 1 + max((of(other) for other in below[one]), default=0)
        return found[one]

    for arrow in arrows:
        for one in arrow:
            of(one)
    return found


def between(graph: Mapping[str, set[str]], place: Mapping[str, str]) -> Arrows:
    """Arrows between places, each with the number of pairs of modules that make it."""
    return Counter(
        (place[who], place[whom]) for who, others in graph.items() for whom in others if place[who] != place[whom]
    )


def drawn(title: str, arrows: Arrows, lines: Mapping[str, int]) -> dict[str, int]:
    """Prints the floors from the top down, and gives the figures."""
    up = upwards(arrows)
    levels = floors(arrows, up) or dict.fromkeys(lines, 1)
    for level in range(max(levels.values()), 0, -1):
        print(
            f"  floor {level:2d}  "
            + ", ".join(f"{one} {lines[one]:,}" for one in sorted(levels) if levels[one] == level)
        )
    for who, whom in sorted(up):
        print(f"  upwards: {who} → {whom} ({arrows[who, whom]})")
    figures = {"boxes": len(lines), "floors": max(levels.values()), "arrows": len(arrows), "upwards": len(up)}
    print(f"{title}: " + ", ".join(f"{count} {what}" for what, count in figures.items()))
    return figures


def main() -> None:
    """Prints floors, arrows and circles; writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures to this file as well.")
    given = parser.parse_args()
    modules = sources(ROOT)
    graph = {name: imports(name, file, modules) for name, file in modules.items()}
    lengths = {name: file.read_text(encoding="utf-8").count("\n") for name, file in modules.items()}
    packages = {name: package(file, ROOT) for name, file in modules.items()}
    by_package: Counter[str] = Counter()
    for name, owner in packages.items():
        by_package[owner] += lengths[name]
    figures: dict[str, object] = {"packages": drawn("packages", between(graph, packages), by_package)}
    for owner in sorted(by_package):
        inside = {name for name in modules if packages[name] == owner}
        rooms = {name: room(name, modules[name]) for name in inside}
        by_room: Counter[str] = Counter()
        for name in inside:
            by_room[rooms[name]] += lengths[name]
        own = {name: graph[name] & inside for name in inside}
        figures[owner] = drawn(f"rooms of {owner}", between(own, rooms), by_room)
    found = circles(graph)
    for group in found:
        print("  circle: " + ", ".join(group))
    figures |= {"circles of files": len(found), "lines": sum(by_package.values())}
    print(f"{len(found)} circles of files; {sum(by_package.values()):,} lines of Python: {dict(by_package)}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
