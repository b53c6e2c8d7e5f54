"""Writes space/report/coastlines.json from land-110m.json of the npm package world-atlas (`npm pack` gets it).

python tools/coastlines.py package/land-110m.json
"""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise
from pathlib import Path

OUT = Path(__file__).parents[1] / "packages/space/src/fedpareto_space/report/coastlines.json"
TOLERANCE = 0.3
"""Degrees by which a simplified line may be off: less than a pixel of a map as wide as a page."""
SMALLEST = 0.6
"""Square degrees below which an island is left out."""
ABOUT = {
    "source": "Land of Natural Earth 4.1.0, 1:110m (naturalearthdata.com), in the public domain; from land-110m.json "
    "of the npm package world-atlas 2.0.2 (ISC licence, copyright 2013-2019 Michael Bostock)",
    "about": "Rings of land. Each is longitude and latitude of its first point in tenths of a degree, then the steps "
    "to the next ones. Written by tools/coastlines.py",
}
Point = tuple[float, float]


def rings_of(atlas: dict) -> list[list[Point]]:
    """The rings of a topology whose arcs are steps on a grid."""
    (sx, sy), (tx, ty) = atlas["transform"]["scale"], atlas["transform"]["translate"]
    arcs = []
    for steps in atlas["arcs"]:
        x = y = 0
        arc = []
        for dx, dy in steps:
            x, y = x + dx, y + dy
            arc.append((x * sx + tx, y * sy + ty))
        arcs.append(arc)
    shapes = atlas["objects"]["land"]["geometries"]
    polygons = [one for shape in shapes for one in ([shape["arcs"]] if shape["type"] == "Polygon" else shape["arcs"])]
    return [_joined([arcs[i] if i >= 0 else arcs[~i][::-1] for i in ring]) for polygon in polygons for ring in polygon]


def _joined(parts: list[list[Point]]) -> list[Point]:
    return [*parts[0], *(point for part in parts[1:] for point in part[1:])]


def on_the_map(ring: list[Point]) -> list[list[Point]]:
    """A ring that goes on across the edge of the map, or around a pole, as the shapes that it has on the map."""
    whole = [ring[0]]
    for x, y in ring[1:]:
        whole.append((x - 360 * round((x - whole[-1][0]) / 360), y))
    if abs(whole[-1][0] - whole[0][0]) > 180:
        pole = math.copysign(90, whole[0][1])
        whole += [(whole[-1][0], pole), (whole[0][0], pole)]
    turned = ([(x + turn, y) for x, y in whole] for turn in (-360, 0, 360))
    cut = (_cut(_cut(shape, 180, 1), -180, -1) for shape in turned)
    return [shape for shape in cut if len(shape) >= 3]


def _cut(shape: list[Point], edge: float, sign: int) -> list[Point]:
    """What of a shape lies on this side of a meridian (Sutherland and Hodgman 1974)."""
    found = []
    for (x1, y1), (x2, y2) in pairwise([*shape, *shape[:1]]):
        inside, next_inside = sign * (edge - x1) >= 0, sign * (edge - x2) >= 0
        if inside:
            found.append((x1, y1))
        if inside != next_inside:
            found.append((edge, y1 + (y2 - y1) * (edge - x1) / (x2 - x1)))
    return found


def area(ring: list[Point]) -> float:
    """In square degrees."""
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in pairwise([*ring, ring[0]]))) / 2


def simplified(line: list[Point]) -> list[Point]:
    """Ramer 1972, Douglas and Peucker 1973."""
    (x1, y1), (x2, y2) = line[0], line[-1]
    dx, dy = x2 - x1, y2 - y1
    length = (dx * dx + dy * dy) ** 0.5
    off = [
        abs(dy * (x - x1) - dx * (y - y1)) / length if length else ((x - x1) ** 2 + (y - y1) ** 2) ** 0.5
        for x, y in line[1:-1]
    ]
    if max(off, default=0.0) <= TOLERANCE:
        return [line[0], line[-1]]
    cut = 1 + off.index(max(off))
    return simplified(line[: cut + 1])[:-1] + simplified(line[cut:])


def steps_of(ring: list[Point]) -> list[int]:
    """In tenths of a degree, without points that fall together."""
    whole = [(round(10 * x), round(10 * y)) for x, y in simplified(ring)]
    kept = [point for place, point in enumerate(whole) if not place or point != whole[place - 1]]
    kept = kept[:-1] if kept[0] == kept[-1] else kept
    return [*kept[0], *(step for (a, b), (c, d) in pairwise(kept) for step in (c - a, d - b))]


def main(source: Path) -> None:
    """Reads the atlas, writes the coastlines."""
    shapes = [shape for ring in rings_of(json.loads(source.read_text(encoding="utf-8"))) for shape in on_the_map(ring)]
    rings = [ring for ring in shapes if area(ring) >= SMALLEST]
    found = [steps for steps in map(steps_of, rings) if len(steps) >= 6]
    head = "".join(f" {json.dumps(name)}: {json.dumps(text)},\n" for name, text in ABOUT.items())
    body = ",\n".join("  " + json.dumps(steps, separators=(",", ":")) for steps in found)
    OUT.write_text(f'{{\n{head} "rings": [\n{body}\n ]\n}}\n', encoding="utf-8")
    print(f"{len(found)} rings, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
