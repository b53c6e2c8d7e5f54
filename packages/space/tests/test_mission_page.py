"""A mission's page: its numbers are those of the folder, it needs nothing else, and names are only names."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fedpareto.config.errors import UserError
from fedpareto.report.costs import staleness
from fedpareto.runs.runner import start
from fedpareto.spec.draft import Draft
from fedpareto_space.report import globe, mission_figures, mission_page
from fedpareto_space.report.mission import Station, Tracks, read_mission

ENGINE = {
    "name": "mission",
    "shell": "4/2/1",
    "stations": ["svalbard", "<b>=-46.5,168.4@5"],
    "down": 1200.0,
    "up": 1200.0,
    "mishaps": ["lost sat-1-2 at 3"],
    "threads": 1,
    "chunk": 4,
}
VALUES = {"algorithm": "fedbuff", "problem": "convex", "rounds": 12, "hours": 12.0, "seeds": 2, "engine": ENGINE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mission") / "run"
    start(Draft({**VALUES, "devices": {"kind": "equal", "speed": 1.0e3}}).finish(), path)
    return path


@pytest.fixture(scope="module")
def mission(folder):
    return read_mission(folder)


@pytest.fixture(scope="module")
def page(mission):
    return mission_page.page(mission)


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def embedded(page):
    return json.loads(re.search(r'id="mission-data">(.*?)</script>', page, re.DOTALL)[1])


# -- numbers -------------------------------------------------------------------------------------------------------


def test_the_summary_is_what_the_lines_of_the_folder_add_up_to(folder, mission):
    found = mission.summary
    rows = lines(folder, "metrics.jsonl")
    last = {row["seed"]: row for row in rows}.values()
    assert found.seeds == len(last) == 2
    assert found.hours * 3600 == pytest.approx(np.mean([row["clock"] for row in last]))
    assert found.joules == pytest.approx(np.mean([row["joules"] for row in last]))
    assert found.replies == sum(row["replies"] for row in rows) / 2
    ends = {row["seed"]: row["clock"] for row in last}
    trips = [one for one in lines(folder, "mission.jsonl") if one["what"] == "trip"]
    back = [one["up"] for one in trips if one["arrives"] is not None and one["arrives"] <= ends[one["seed"]]]
    assert found.air_up == sum(back) / 2
    solutions = json.loads((folder / "solutions.json").read_text())
    assert found.value == pytest.approx(np.mean([one["indicators"]["hypervolume"] for one in solutions]))


def test_staleness_of_single_replies_agrees_with_the_means_of_rounds(mission):
    for seed, mean in zip(mission.record.started, staleness(mission.record), strict=True):
        found = mission.staleness(seed)
        assert len(found) == mission.record.total("replies")[0]
        assert np.mean(found) == pytest.approx(mean)
        assert min(found) >= 0


def test_facts_are_on_the_page_and_every_fault_is_in_its_log(mission, page):
    for name, value in mission_page.facts(mission.summary).items():
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert mission.summary.faults["the satellite was lost"] == 2
    assert page.count("<td>the satellite was lost</td>") == 2
    assert "<td>3:00:00</td>" in page


def test_transfers_lie_in_contacts_of_their_satellite(mission):
    assert mission.transfers
    contacts = mission.contacts
    for one in mission.transfers:
        holds = (contacts[:, 2] == one.satellite) & (contacts[:, 3] == one.station)
        assert (holds & (contacts[:, 0] <= one.start) & (one.end <= contacts[:, 1])).any()
        assert one.start < one.end


def test_the_script_gets_contacts_and_places_as_they_are(mission, page):
    data = embedded(page)
    starts = np.concatenate([np.cumsum(one[::3]) for one in data["contacts"]])
    assert np.abs(starts - mission.contacts[:, 0]).max() <= 0.5
    latitude = np.array([np.cumsum(one) for one in data["tracks"]["latitude"]]) / 10
    assert np.abs(latitude - mission.tracks.latitude).max() <= 0.05 + 1e-9
    assert sum(len(one) for one in data["transfers"]) == 4 * len(mission.transfers)
    assert data["faults"] == [[10800, 1]]


def test_who_is_lost_has_no_contacts_any_more(mission):
    own = mission.contacts[mission.contacts[:, 2] == mission.satellites.index("sat-1-2")]
    others = mission.contacts[mission.contacts[:, 2] != mission.satellites.index("sat-1-2")]
    assert own[:, 1].max() <= 3 * 3600 < others[:, 1].max()


def test_bytes_of_all_rounds_are_those_of_all_trips(folder, mission):
    _, air, whole = mission_figures.bytes_by_round(mission)
    trips = [one for one in lines(folder, "mission.jsonl") if one["what"] == "trip"]
    arrived = [one for one in trips if one["received"] is not None and one["received"] <= mission.seconds]
    assert air[:, 0].sum() == pytest.approx(sum(one["down"] for one in arrived) / 2)
    assert whole[:, 0].sum() == len(arrived) * mission.model_bytes / 2


# -- the page ------------------------------------------------------------------------------------------------------


class Structure(HTMLParser):
    """Elements, and whether each was closed."""

    EMPTY = ("meta", "input", "br")

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.labels = [], [], 0

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids += [found["id"]] if "id" in found else []
        self.labels += tag in ("canvas", "svg") and bool(found.get("aria-label"))
        assert "src" not in found
        assert found.get("href", "#").startswith("#")
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]


def test_the_page_is_well_formed_needs_nothing_else_and_says_what_pictures_show(page):
    found = Structure()
    found.feed(page)
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert found.labels == 7
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", page.partition("<details><summary>The run's spec")[0])
    assert "prefers-color-scheme: dark" in page
    assert "prefers-reduced-motion" in page
    wanted = set(re.findall(r'element\("([\w-]+)"\)', page)) | {"zoom-in", "zoom-out", "earlier", "later", "everything"}
    assert wanted <= set(found.ids)


def test_names_are_text_wherever_they_stand(mission, page):
    assert [one.name for one in mission.stations] == ["svalbard", "<b>"]
    assert "<b></" not in page
    assert "&lt;b&gt;</span>" in page
    assert "\\u003cb>" in page
    assert embedded(page)["stations"][1]["name"] == "<b>"


def test_the_same_folder_gives_the_same_page(folder, page):
    assert mission_page.page(read_mission(folder)) == page


def test_of_too_many_transfers_the_first_are_drawn_and_the_page_says_so(mission, monkeypatch):
    monkeypatch.setattr(mission_page, "MOST_TRANSFERS", 3)
    short = mission_page.page(mission)
    assert "Only the first 3 transfers are drawn" in short
    assert sum(len(one) for one in embedded(short)["transfers"]) == 12


def test_a_contact_plan_without_orbits_has_a_page_without_a_map(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    sky = json.loads((copy / "mission.json").read_text())
    for name in ("tracks", "shadows", "altitude"):
        del sky[name]
    sky["stations"] = [{"name": one["name"]} for one in sky["stations"]]
    (copy / "mission.json").write_text(json.dumps(sky))
    page = mission_page.page(read_mission(copy))
    assert "there is no map" in page
    assert 'id="sky"' not in page
    assert embedded(page)["tracks"] is None


def test_a_swarm_without_stations_has_no_contacts_to_draw(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    sky = json.loads((copy / "mission.json").read_text())
    (copy / "mission.json").write_text(json.dumps(sky | {"stations": [], "contacts": []}))
    page = mission_page.page(read_mission(copy))
    assert "Nobody is on the ground" in page
    assert 'id="chart"' not in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contacts": [[0, 1, 9, 0]]}, "of satellites or stations that are not there"),
        ({"start": "soon"}, "'start' is 'soon', expected a moment"),
        ({"tracks": {"step": 300, "latitude": [[1]], "longitude": [[1]]}}, "two places or more of each of 4"),
        ({"satellites": 3}, "'satellites' is 3, expected list"),
    ],
)
def test_a_damaged_sky_is_told_in_one_line(folder, tmp_path, change, words):
    copy = shutil.copytree(folder, tmp_path / "run")
    sky = json.loads((copy / "mission.json").read_text())
    (copy / "mission.json").write_text(json.dumps(sky | change))
    with pytest.raises(UserError) as problem:
        read_mission(copy)
    assert words in str(problem.value)
    assert "\n" not in str(problem.value)


# -- the map -------------------------------------------------------------------------------------------------------


def test_the_edge_of_sight_is_seen_at_the_mask():
    station, altitude = Station("here", 50.0, 10.0, mask=10.0), 530.0
    arc = np.radians(globe.sight(station, altitude))
    up, along = (globe.RADIUS + altitude) * np.cos(arc) - globe.RADIUS, (globe.RADIUS + altitude) * np.sin(arc)
    assert np.degrees(np.arctan2(up, along)) == pytest.approx(10.0)


@pytest.mark.parametrize("place", [(50.0, 10.0), (-46.5, 168.4), (78.2, 15.4), (-89.0, 0.0)])
def test_a_circle_of_sight_is_everywhere_as_far_from_its_station(place):
    station = Station("here", *place)
    longitude, latitude = np.radians(globe.circle(station, 17.0).T)
    north, east = np.radians(place)
    cosine = np.sin(north) * np.sin(latitude) + np.cos(north) * np.cos(latitude) * np.cos(longitude - east)
    assert np.degrees(np.arccos(cosine)) == pytest.approx(17.0)
    assert (len(globe.filled(globe.circle(station, 17.0))) > len(longitude)) == (abs(place[0]) + 17 > 90)


def test_between_two_places_a_satellite_goes_along_its_circle():
    """A circular orbit of 97.5°, in closed form, known every 300 s only."""
    at = np.arange(0.0, 12_001.0, 50.0)

    def orbit(times):
        along, tilt = 2 * np.pi * times / 5700, np.radians(97.5)
        east = np.degrees(np.arctan2(np.cos(tilt) * np.sin(along), np.cos(along))) - globe.TURNING * times
        return np.degrees(np.arcsin(np.sin(tilt) * np.sin(along))), (east + 180) % 360 - 180

    known = orbit(np.arange(0.0, 12_001.0, 300.0))
    found = globe.between(Tracks(300.0, known[0][None], known[1][None]), np.array([0]), at)
    exact = orbit(at)
    assert found[0][0] == pytest.approx(exact[0], abs=1e-6)
    apart = (found[1][0] - exact[1] + 180) % 360 - 180
    assert np.abs(apart).max() < 1e-5


def test_coastlines_fit_the_map_and_name_their_source():
    rings = globe.coastlines()
    assert all(np.abs(ring[:, 0]).max() <= 180 and np.abs(ring[:, 1]).max() <= 90 for ring in rings)
    # Two thirds of land is in the north: by the cylinder's areas, 29 % of the Earth is land.
    area = sum(_area(ring) for ring in rings) / (2 * 360)
    assert area == pytest.approx(0.29, abs=0.015)
    text = Path(globe.__file__).with_name(globe.COASTLINES).read_text(encoding="utf-8")
    assert "Natural Earth" in text
    assert "public domain" in text
    assert len(text) < 16_000


def _area(ring):
    """On the cylinder of equal areas, sin of the latitude by longitude."""
    x, y = ring[:, 0], np.sin(np.radians(ring[:, 1]))
    return abs(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y)) / 2


def test_pictures_are_files_of_their_kind(mission, tmp_path):
    found = mission_page.write_pictures(mission, tmp_path / "new", "png")
    assert [one.stem for one in found] == list(mission_figures.FIGURES)
    assert all(one.read_bytes().startswith(b"\x89PNG") for one in found)
