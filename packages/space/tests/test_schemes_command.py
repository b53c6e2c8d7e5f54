"""`fedpareto space schemes`: what a mission file has of a scheme is what a run accepts."""

from __future__ import annotations

import json

import pytest
import yaml

from fedpareto.spec.draft import Draft
from fedpareto_space.missions.schemes import SCHEMES


def test_all_are_listed_with_paper_and_difference(fedpareto):
    shown = fedpareto("space", "schemes").out
    found = json.loads(fedpareto("space", "schemes", "--json").out)
    assert [one["name"] for one in found] == list(SCHEMES)
    for name, scheme in SCHEMES.items():
        assert name in shown
        assert scheme.paper in shown
        assert scheme.differs in shown


@pytest.mark.parametrize("name", SCHEMES)
def test_the_lines_of_one_are_a_spec(fedpareto, name):
    values = yaml.safe_load(fedpareto("space", "schemes", name).out)
    spec = Draft({"problem": "convex", **values}).finish()
    assert spec.engine.name == "mission"
    assert spec.policy.kind == SCHEMES[name].changes["policy"]["kind"]


def test_an_unknown_one_is_refused_with_what_there_is(fedpareto):
    answer = fedpareto("space", "schemes", "fedspice")
    assert answer.code != 0
    assert "fedspace" in answer.err
