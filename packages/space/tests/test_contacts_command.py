"""`fedpareto space contacts`: a table for people, a plan for ION, a picture, and one line for each mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedpareto_space.orbits import ion

EXAMPLES = Path(__file__).parents[3] / "examples"
SMALL = ("--shell", "4/2/1", "--station", "svalbard", "--station", "here=-46.5,168.4@5", "--hours", "8")


def test_contacts_are_a_table_a_plan_and_a_picture_and_the_plan_gives_them_again(fedpareto):
    answer = fedpareto("space", "contacts", *SMALL, "--rows", "3", "--out", "plan.ion", "--picture", "plan.png")
    assert answer.code == 0, answer.err
    assert "4 satellites (4/2/1, 530 km, 97.5°) and 2 stations from 2026-01-01 00:00 UTC, 8 h" in answer.out
    assert "--rows 0 shows all" in answer.out
    assert "in the Earth's shadow for " in answer.out
    assert answer.out.count("sat-") == 3
    assert "written: plan.ion, plan.png" in answer.out
    assert Path("plan.png").read_bytes().startswith(b"\x89PNG")
    plan = ion.read(Path("plan.ion"))
    assert all(one.start == int(one.start) and one.rate == 9600 for one in plan.contacts)
    again = json.loads(fedpareto("space", "contacts", "--plan", "plan.ion", "--json").out)
    assert len(again["contacts"]) == len(plan.contacts)
    assert {again["names"][str(one["node"])] for one in again["stations"]} == {"svalbard", "here"}
    assert sum(one["contacts"] for one in again["stations"]) == len(plan.contacts) / 2
    assert again["in_shadow"] is None


def test_satellites_relay_to_a_station_that_is_not_in_sight_yet(fedpareto):
    def route(*options):
        arguments = ("--shell", "12/1/0", "--station", "svalbard", "--hours", "9", "--rate", "80000")
        found = fedpareto("space", "contacts", *arguments, *options, "--route", "sat-1-7,svalbard", "--json").out
        return json.loads(found)["route"]

    alone, together = route(), route("--between")
    assert len(alone) == 1
    assert len(together) > 2
    assert together[-1]["arrives"] < alone[-1]["arrives"]
    assert route("--bytes", "10000000") is None


def test_satellites_come_from_elements_and_start_at_their_epoch(fedpareto):
    arguments = ("--tle", EXAMPLES / "satellites.tle", "--station", "kiruna", "--between")
    answer = fedpareto("space", "contacts", *arguments, "--route", "EXAMPLE 2,kiruna")
    assert answer.code == 0, answer.err
    assert "3 satellites of" in answer.out
    assert "from 2026-01-01 00:00 UTC, 24 h" in answer.out
    assert "  EXAMPLE 2 sends at +" in answer.out
    assert answer.err == ""
    late = fedpareto("space", "contacts", *arguments[:-1], "--hours", "6", "--start", "2026-03-01")
    assert late.code == 0
    assert "the newest elements are 59 days away from the start; beyond 14 days contacts are guesses" in late.err


def test_the_example_in_help_runs(fedpareto):
    words = " ".join(fedpareto("space", "contacts", "--help").out.split())
    example = words.partition("Example: fedpareto ")[2].partition(" Options:")[0]
    answer = fedpareto(*example.split())
    assert answer.code == 0, answer.err
    assert Path("plan.ion").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --station with latitude,longitude such as 48.1,11.6, or one of: awarua, "),
        (["--station", "svalbart"], "unknown station 'svalbart'; did you mean 'svalbard'?"),
        (
            ["--station", "svalbard", "--inclination", "53"],
            "station 'svalbard' never sees a satellite: it is at 78.23° north, and with a mask of 10° these orbits are "
            "seen up to 67.6°; an inclination from 64° on would do, such as 97.5°",
        ),
        (["--station", "redu", "--altitude", "50"], "altitude is 50; it is in km, at least 160 and at most 100,000"),
        (["--station", "redu", "--shell", "40/7/1"], "40 satellites do not fit into 7 planes; 8 planes would do"),
        (["--station", "redu", "--rate", "0"], "down is 0; it is in bits a second, above 0"),
        (["--station", "redu", "--hours", "0"], "a plan of 0 hours; it is of more than 0"),
        (["--station", "redu", "--tle", "absent.tle"], "absent.tle cannot be read"),
        (["--station", "redu", "--tle", "plan.ion"], "ends within the elements"),
        (["--station", "redu", "--start", "monday"], "--start 'monday' is no moment; right is, say, 2026-01-31T12:00"),
        (["--station", "redu", "--picture", "plan.gif"], "right is, say, contacts.png"),
        (["--station", "redu", "--out", "absent/plan.ion"], "absent/plan.ion cannot be written"),
        (["--station", "redu", "--route", "1"], "--route '1' names no two nodes"),
        (["--station", "redu", "--route", "1,1"], "--route '1,1' begins where it ends; name two nodes"),
        (["--station", "redu", "--route", "1,red"], "unknown node 'red'; did you mean 'redu'?"),
        (["--plan", "plan.ion"], "plan.ion, line 1: 'a contract"),
        (
            ["--plan", "plan.ion", "--station", "redu"],
            "--plan is a finished plan; --station and --tle are for making one",
        ),
    ],
)
def test_a_mistake_is_one_line(arguments, words, fedpareto):
    Path("plan.ion").write_text("a contract +0 +1 1 2 3\n", encoding="utf-8")
    answer = fedpareto("space", "contacts", *arguments)
    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert words in answer.err
