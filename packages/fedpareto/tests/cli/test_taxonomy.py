"""Who is in which box of the thesis's taxonomy, and the drawing of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from typer.main import get_command

from fedpareto.cli import app
from fedpareto.clock.selection import Selection
from fedpareto.contract import registry
from fedpareto.contract.algorithm import Taxonomy
from fedpareto.contract.taxonomy import BOXES, COMPARISON, LEVELS, OUTSIDE, occupants, outsiders


def test_boxes_are_those_of_section_2_2():
    assert [box.number for box in BOXES] == list(range(1, 14))
    assert len({(box.level, box.family) for box in BOXES}) == len(BOXES), "a label names one box"
    assert [box.level for box in BOXES] == 2 * ["top"] + 5 * ["federation"] + 6 * ["client"]
    assert {box.family for box in BOXES if box.was_empty} == {"client-led", "fully distributed"}


def test_13_of_13_boxes_have_an_occupant():
    found = occupants(registry.algorithms())
    assert len(found) == 13
    assert [box.number for box, names in found.items() if not names] == []


def test_every_way_beside_algorithms_is_there():
    kinds, commands = get_args(get_type_hints(Selection)["kind"]), get_command(app).commands
    for way in (way for box in BOXES for way in box.ways):
        key, _, value = way.partition(": ")
        program, _, command = way.partition(" ")
        assert (key == "selection" and value in kinds) or (program == "fedpareto" and command in commands), way


def test_every_algorithm_is_in_one_box_or_says_that_it_is_in_none():
    known = registry.algorithms()
    placed = [name for names in occupants(known).values() for name in names if name in known]
    assert sorted([*placed, *outsiders(known)]) == sorted(known)
    assert all(known[name].taxonomy.family == COMPARISON for name in outsiders(known))
    labels = {name: known[name].taxonomy.box.number for name in ("afl", "q-fedavg", "fairfed", "praffl", "ifca")}
    assert labels == {"afl": 4, "q-fedavg": 4, "fairfed": 4, "praffl": 10, "ifca": 13}


def test_a_label_that_section_2_2_does_not_have_is_noticed():
    assert Taxonomy("client", "multi-task", "any", "any").is_known
    assert Taxonomy(OUTSIDE, COMPARISON, "any", "any").is_known
    assert not Taxonomy("client", "baseline", "any", "any").is_known
    assert not Taxonomy("federation", "multi-task", "any", "any").is_known, "it is at the client level"


def test_the_drawing_fits_80_columns_and_has_everybody_once(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    answer = fedpareto("algorithms", "--taxonomy", "--picture", "taxonomy.png")
    assert answer.code == 0, answer.err
    assert all(len(line) <= 80 for line in answer.out.splitlines())
    assert all(level in answer.out.splitlines() for level in LEVELS.values())
    words = answer.out.replace(",", " ").split()
    assert all(words.count(name) == 1 for name in registry.algorithms())
    assert (tmp_path / "taxonomy.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads(fedpareto("algorithms", "--taxonomy", "--json").out)
    names = [name for box in found["boxes"] for name in box["algorithms"]]
    assert sorted([*names, *found["outside"]]) == sorted(registry.algorithms())
    assert [box["ways"] for box in found["boxes"] if box["number"] == 6] == [["selection: nsga2"]]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fedpref", "--taxonomy"], "give no name"),
        (["--picture", "taxonomy.png"], "--picture draws that"),
        (["--taxonomy", "--picture", "taxonomy.gif"], "of no known kind; right is, say, taxonomy.png"),
    ],
)
def test_a_wrong_request_is_one_line(arguments: list[str], complaint: str, fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("algorithms", *arguments)
    assert answer.code != 0
    assert complaint in answer.err
    assert len(answer.err.strip().splitlines()) == 1
