"""`fedpareto space simulate` and `look`: a mission from one file, a summary, a page; one line for each mistake."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from fedpareto.spec.draft import Draft
from fedpareto_space.session.agreement import agreement_of
from fedpareto_space.wire import golden
from fedpareto_space.wire.messages import encode

MISSION = """
algorithm: fedavg
problem: convex
rounds: 30
hours: 6
engine:
  shell: 4/2/1
  stations: [svalbard, "here=-46.5,168.4@5"]
  threads: 1
  chunk: 4
"""
AWAY = "https://"


@pytest.fixture
def mission(fedpareto):
    Path("mission.yaml").write_text(MISSION, encoding="utf-8")
    return fedpareto


@pytest.mark.takes_long
def test_a_mission_is_a_run_with_a_page_a_summary_and_what_was_agreed(mission):
    answer = mission("space", "simulate", "mission.yaml", "--quiet")
    assert answer.code == 0, answer.err
    folder = Path("runs/mission")
    assert "look at: runs/mission/mission.html" in answer.out
    assert yaml.safe_load((folder / "spec.yaml").read_text())["engine"]["name"] == "mission"
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"rounds                      {last['round']}\n" in answer.out
    assert "went wrong                  nothing" in answer.out
    page = (folder / "mission.html").read_text(encoding="utf-8")
    assert AWAY not in page
    agreed = yaml.safe_load((folder / "agreement.yaml").read_text())
    assert agreed["client"]["format"]["codec"] == "float32"
    assert agreed["server"]["aggregation"]["rule"] == "fedavg"
    taken = mission("space", "simulate", "mission.yaml", "--out", folder)
    assert taken.code == 2
    assert "holds a finished run" in taken.err


@pytest.mark.takes_long
def test_a_mission_runs_as_agreed_and_run_takes_the_same_file(mission):
    asynchronous = ("--set", "algorithm=fedasync", "--set", "codec=int8-delta")
    first = mission("space", "simulate", "mission.yaml", "--out", "first", *asynchronous, "--no-page", "--json")
    assert first.code == 0, first.err
    found = json.loads(first.out)
    assert found["page"] is None
    assert found["replies"] == found["rounds"] > 3
    again = mission("space", "simulate", "mission.yaml", "--out", "again", "--agreement", "first/agreement.yaml", "-q")
    assert again.code == 0, again.err
    Path("whole.yaml").write_text(MISSION.replace("engine:", "engine:\n  name: mission"), encoding="utf-8")
    plain = mission("run", "--spec", "whole.yaml", "--engine", "mission", "--out", "plain", *asynchronous, "-q")
    assert plain.code == 0, plain.err
    models = [Path(name, "models.safetensors").read_bytes() for name in ("first", "again", "plain")]
    assert models[0] == models[1] == models[2]
    assert Path("again/agreement.yaml").read_bytes() == Path("first/agreement.yaml").read_bytes()
    assert not Path("plain/agreement.yaml").exists()


@pytest.mark.takes_long
def test_look_writes_the_page_again_also_of_a_mission_that_was_stopped_and_draws_pictures(mission):
    assert mission("space", "simulate", "mission.yaml", "--out", "run", "-q", "--no-page").code == 0
    status = json.loads(Path("run/status.json").read_text())
    Path("run/status.json").write_text(json.dumps(status | {"status": "running"}))
    answer = mission("space", "look", "run", "--out", "here.html", "--pictures", "drawn", "--format", "pdf")
    assert answer.code == 0, answer.err
    assert "page: here.html   pictures: 6 in drawn" in answer.out
    assert "The run is not finished" in Path("here.html").read_text(encoding="utf-8")
    assert sorted(one.name for one in Path("drawn").iterdir()) == [
        *("bytes.pdf", "contacts.pdf", "front.pdf", "learning.pdf", "map.pdf", "staleness.pdf")
    ]
    assert all(one.read_bytes().startswith(b"%PDF") for one in Path("drawn").iterdir())


def test_an_agreement_is_yaml_or_the_message_that_accepted_it(mission):
    terms = agreement_of(Draft.read(Path("mission.yaml")).with_section("engine", {"name": "mission"}).finish())
    accepted = replace(golden.every()["accept"], terms=terms, agreement=terms.id)
    Path("answer.flp").write_bytes(encode(accepted))
    Path("offer.flp").write_bytes(encode(golden.every()["offer"]))
    answer = mission(
        "space", "simulate", "mission.yaml", "--out", "run", "--agreement", "answer.flp", "-q", "--no-page"
    )
    assert answer.code == 0, answer.err
    assert terms.id.hex() in Path("run/agreement.yaml").read_text()
    refused = mission("space", "simulate", "mission.yaml", "--agreement", "offer.flp")
    assert refused.code == 2
    assert "offer.flp is a message OFFER; an agreement is an ACCEPT, or YAML" in refused.err


MISTAKES = [
    (["engine.stations=north=89.9,0@80"], "station 'north' never sees a satellite"),
    (["engine.altitude=20"], "altitude is 20; it is in km, at least 160"),
    (["engine.down=0"], "down is 0; it is in bits a second, above 0"),
    (["algorithm=fedavgg"], "unknown algorithm 'fedavgg'; did you mean 'fedavg'?"),
    (["engine.mishaps=lost sat-9-9 at 3"], "there is no satellite of that name"),
    (["engine.mishaps=lost sat-1-1"], "right is, say, 'lost sat-1-3 at 12', in hours"),
    (["hours=0"], "hours is 0, but a mission ends by the clock"),
    (["clients=5"], "clients is 5, but the mission has 4 satellites"),
    (["engine=local"], "has the engine local; a mission's is mission"),
]


@pytest.mark.parametrize(("settings", "words"), MISTAKES)
def test_a_mistake_is_one_line_that_says_what_would_be_right(mission, settings, words):
    options = [part for text in settings for part in ("--set", text)]
    answer = mission("space", "simulate", "mission.yaml", *options)
    assert answer.code == 2, answer
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
    assert answer.out == ""
    assert not Path("runs").exists()


def test_agreements_and_folders_that_are_none_are_refused_in_one_line(mission):
    Path("no.yaml").write_text("client: 3\n", encoding="utf-8")
    assert mission("run", "fedavg", "--problem", "convex", "--rounds", "1", "--out", "plain", "-q").code == 0
    cases = [
        (["simulate", "mission.yaml", "--agreement", "no.yaml"], "no.yaml: client is 3"),
        (["simulate", "mission.yaml", "--agreement", "nowhere.yaml"], "nowhere.yaml"),
        (["simulate", "nowhere.yaml"], "nowhere.yaml"),
        (["look", "plain"], "plain is no mission: it has no mission.json"),
        (["look", "nowhere"], "there is no such folder"),
        (["look", "plain", "--format", "gif"], "--format gif is of no known kind; right is png or pdf"),
    ]
    for arguments, words in cases:
        answer = mission("space", *arguments)
        assert answer.code == 2, (arguments, answer)
        assert answer.err.count("\n") == 1
        assert words in answer.err
