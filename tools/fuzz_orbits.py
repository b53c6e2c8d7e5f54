"""What `fuzz.py` tries of orbits: contact plans and two-line elements, also such as have right checksums."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fuzz_mutations import of_bytes
from fuzz_readers import Reader

from fedpareto_space.orbits import ion
from fedpareto_space.orbits.earth import DAY, J2000
from fedpareto_space.orbits.plans import ends, services, windows
from fedpareto_space.orbits.routes import Router
from fedpareto_space.orbits.sights import eclipses, over_stations
from fedpareto_space.orbits.stations import stations
from fedpareto_space.orbits.tle import LINE, parse_tle

PLAN = b"""# node 1 is sat-1-1
1 1 ''
@ 2026/01/31-12:00:00
a contact +0 +600 1 2 1200
a contact 2026/01/31-12:10:00 2026/01/31-12:20:00 2 1 125000 1.0
a range +0 +600 1 2 0.01
m horizon +0
"""
ELEMENTS = b"""EXAMPLE 1
1 90001U 26001A   26001.00000000  .00000000  00000-0  00000+0 0    00
2 90001  97.5000   0.0000 0000000   0.0000   0.0000 15.04508244    06
"""
ODD = (
    "nan",
    "+inf",
    "-inf",
    "+1e400",
    "1e400",
    "-1",
    "0",
    "+",
    "9" * 5000,
    "+1e308",
    "1e-320",
    "x",
    "\0",
    "2026/13/01-00:00:00",
)
SITES = stations(["svalbard", "redu"])


def read_plan(content: bytes) -> object:
    """What is read has to bear all that is done with plans."""
    plan = ion.from_text(content.decode("utf-8", errors="replace"))
    found = windows(plan)
    services(found, ends(found), 86400.0)
    Router(plan).arrivals(plan.contacts[0].a, size=10)
    plan.both_ways()
    if ion.from_text(ion.to_text(plan)) != plan:
        raise AssertionError("a plan that was read is written otherwise")
    ion.to_text(plan.whole())
    return plan


def read_elements(content: bytes) -> object:
    """Satellites that are read have to fly, or are refused."""
    orbits = parse_tle(content.decode("utf-8", errors="replace").splitlines())
    start = datetime(2026, 1, 1, tzinfo=UTC) if orbits.epoch < 0 else J2000 + timedelta(seconds=DAY * orbits.epoch)
    over_stations(orbits, SITES, start, 7200.0)
    eclipses(orbits, start, 7200.0)
    return orbits


def of_plan(draw: random.Random, content: bytes) -> bytes:
    """Other bytes, or other words."""
    if draw.random() < 0.3:
        return of_bytes(draw, content)
    lines = [line.split(" ") for line in content.decode().split("\n")]
    for _ in range(draw.choice((1, 1, 2))):
        words = draw.choice(lines)
        words[draw.randrange(len(words))] = draw.choice(ODD)
    return "\n".join(" ".join(words) for words in lines).encode()


def of_elements(draw: random.Random, content: bytes) -> bytes:
    """Other bytes; or other digits in lines whose checksums are right."""
    if draw.random() < 0.3:
        return of_bytes(draw, content)
    name, *lines = content.decode().splitlines()
    place = draw.randrange(len(lines))
    line = list(lines[place][: LINE - 1])
    for _ in range(draw.choice((1, 2, 6))):
        line[draw.randrange(2, LINE - 1)] = draw.choice("0123456789 .-+xé")
    total = sum(int(letter) if letter in "0123456789" else letter == "-" for letter in line)
    lines[place] = "".join(line) + str(total % 10)
    return "\n".join([name, *lines, ""]).encode()


def readers(_: Path) -> list[Reader]:
    """Of contact plans and of elements."""
    return [
        Reader("contact plans", (PLAN,), of_plan, read_plan),
        Reader("two-line elements", (ELEMENTS,), of_elements, read_elements),
    ]
