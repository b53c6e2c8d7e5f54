"""Claims are data files: each is whole, what they name exists, and a damaged one is refused with its claim and key."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from fedpareto.config.errors import UserError
from fedpareto_papers import claims, tables
from fedpareto_papers.catalogue import CATALOGUE
from fedpareto_papers.claims import Judge, Statement

FOLDER = Path(claims.__file__).parent
FILES = {
    ".".join(("fedpareto_papers", *path.parent.relative_to(FOLDER).parts)): path
    for path in sorted(FOLDER.rglob(claims.FILE))
}
MODULES = [f"fedpareto_papers.{name}" for name in {"fedfew.claims", *(one.module for one in CATALOGUE.values())}]
"""Modules of the package in which there are Judges."""
GOOD = """
[names]
pair = ["a", "b"]

[first-is-best]
says = "A or B is ahead of C and D."
section = "1"
places = ["here"]
metrics = ["score"]
each = [["c", "d"]]
better = "pair"
than = "{0}"
"""


def test_every_paper_whose_conclusions_are_checked_has_its_file():
    assert [package.rpartition(".")[2] for package in FILES] == [
        *("fedfew", "fedmgda", "praffl", "studies", "fairness", "mofld", "morl")
    ]


@pytest.mark.parametrize("package", FILES)
def test_every_claim_ends_its_sentence_and_is_used(package):
    for name, one in claims.statements(package).items():
        assert one.says.endswith("."), name
        assert one.section


@pytest.mark.parametrize("package", FILES)
def test_every_hook_is_a_method_of_a_judge_of_the_paper(package):
    modules = [import_module(module) for module in MODULES if module.startswith(f"{package}.")]
    judges = [one for module in modules for one in vars(module).values() if isinstance(one, type)]
    for name, one in claims.statements(package).items():
        hooked = [judge for judge in judges if issubclass(judge, Judge) and hasattr(judge, one.hook or "compared")]
        assert hooked, name


def parsed(text):
    return claims.parse(tomllib.loads(text), "here")


def test_groups_stand_for_their_names():
    (found,) = parsed(GOOD).values()
    assert found == Statement(
        says="A or B is ahead of C and D.",
        section="1",
        places=("here",),
        metrics=("score",),
        each=(("c", "d"),),
        better=("a", "b"),
        than=("{0}",),
    )


class Scores(Judge):
    """Scores under their names."""

    def key(self, at, name):
        return at.metric, name


def test_the_best_of_some_is_compared_with_each_other():
    values = {("score", "a"): 1.0, ("score", "b"): 2.0, ("score", "c"): 1.5, ("score", "d"): 2.5}
    (one,) = parsed(GOOD).values()
    parts = Scores(values).parts(one)["here"]
    assert [(part.holds, part.numbers) for part in parts] == [
        (True, "b 2.00 against c 1.50"),
        (False, "b 2.00 against d 2.50"),
    ]
    del values["score", "a"]
    assert [part.numbers for part in Scores(values).parts(one)["here"]] == ["no value for a"] * 2


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("metrics", "metric", "here: first-is-best 'metric'; did you mean 'metrics'"),
        ('metrics = ["score"]', 'by = "far"', "here: first-is-best: by is 'far'; it should be a number"),
        ('says = "A or B is ahead of C and D."', "", "first-is-best needs says"),
        ('better = "pair"', "", "first-is-best needs says, section, and a hook or better and than"),
        ("[names]", "alone = 3\n[names]", "here: alone is no claim"),
    ],
)
def test_a_damaged_claim_is_refused_with_its_name_and_key(before, after, message):
    assert before in GOOD
    with pytest.raises(UserError, match=message):
        parsed(GOOD.replace(before, after, 1))


def test_a_file_that_is_too_large_is_not_read(monkeypatch):
    monkeypatch.setattr(tables, "MOST", 100)
    with pytest.raises(UserError, match=r"fedmgda/claims\.toml has more than 100 bytes"):
        tables.content("fedpareto_papers.fedmgda", claims.FILE)
