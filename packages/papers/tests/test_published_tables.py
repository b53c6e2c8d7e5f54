"""Published numbers are data files: each table names its source, and a damaged one is refused before it is read."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from fedpareto_papers import tables

FOLDER = Path(tables.__file__).parent
FILES = sorted(FOLDER.rglob(tables.FILE))
GOOD = """
paper = "A. Author, A title, 2026"

[reward]
source = "table 1, page 2"
columns = ["one", "two"]
cell = ["mean", "deviation"]
times = [1, 10]

[reward.rows.uniform]
alone = [[1.5, 0.1], [2.5, 0.29]]
"""


@dataclass(frozen=True)
class Pair:
    """A cell."""

    mean: float
    deviation: float


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_every_published_table_names_its_paper_its_number_and_its_page_or_section(path):
    found = tables.parse(tomllib.loads(path.read_text(encoding="utf-8")), path.parent.name)
    assert found
    for table in found.values():
        assert re.search(r"20\d\d", table.source), "the paper's year"
        assert re.search(r"(page|pages|section|appendix) [\dA-Z]", table.source)


def test_every_paper_with_numbers_has_its_file():
    assert [path.parent.name for path in FILES] == ["fedfew", "fedmgda", "praffl", "fairness", "mofld", "morl"]


def test_a_cell_is_what_is_printed_times_the_factor_of_its_column():
    (table,) = tables.parse(tomllib.loads(GOOD), "here").values()
    assert table.source == "A. Author, A title, 2026, table 1, page 2"
    assert table.of(Pair) == {"uniform": {"alone": {"one": Pair(1.5, 0.1), "two": Pair(25.0, 2.9)}}}
    flat = GOOD.replace(".uniform", "")
    (table,) = tables.parse(tomllib.loads(flat), "here").values()
    assert table.by_column(Pair) == {"one": {"alone": Pair(1.5, 0.1)}, "two": {"alone": Pair(25.0, 2.9)}}


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('paper = "A. Author, A title, 2026"', "", "the paper is missing"),
        ('source = "table 1, page 2"', "", "needs source"),
        ('["one", "two"]', '["one", "one"]', "a column twice"),
        ("[1, 10]", "[1]", "1 factors for 2 columns"),
        (", [2.5, 0.29]", "", "uniform.alone has not 2 cells"),
        ("[2.5, 0.29]", "2.5", "a cell is mean and deviation"),
        ("0.29", '"0.29"', "not all numbers"),
        ("0.29", "inf", "not all numbers"),
        ("times", "time", "unknown key, time"),
    ],
)
def test_a_damaged_table_is_refused_and_its_place_named(before, after, message):
    assert before in GOOD
    with pytest.raises(ValueError, match=message):
        tables.parse(tomllib.loads(GOOD.replace(before, after, 1)), "here")
