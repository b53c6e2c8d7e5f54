"""A brush that is dragged: what it counts, and that a picture drawn in pieces is the picture drawn at once."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from browsing import settled
from fedpareto.record.reading import load
from made_runs import MadeRun

NAMES = ("cfl", "fedavg", "fedpref")
CLIENTS = 700
"""Of three runs: more points than are drawn as marks of their own."""
DRAWN = """() => ({
  pixels: document.querySelector(".scatter canvas").toDataURL(),
  layers: [...document.querySelectorAll(".scatter g")].map((layer) => layer.innerHTML),
})"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brushed")
    for name in NAMES:
        MadeRun(folder / name, name, rounds=2, clients=CLIENTS, similar=False).finish()
    return folder


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root])


@pytest.fixture
def plane(server, opened):
    ids = server.ids()
    return settled(opened(server, "/fronts?runs=" + ",".join(ids[name] for name in NAMES)))


def moved(page, share):
    """The pointer to a place of the picture, a share of its width and height; what is drawn then."""
    box = page.locator(".scatter svg").bounding_box()
    page.mouse.move(box["x"] + share * box["width"], box["y"] + share * box["height"])
    return settled(page)


def inside(page, points):
    """How many points lie in the box of the address, which is written once a brush has ended and all is still."""
    page.wait_for_url(lambda url: "range=" in url and "sel=" in url)
    ranges = parse_qs(urlsplit(page.url).query)["range"][0].split(",")
    ends = np.array([[float(end) for end in one.split(":")[1].split("~")] for one in ranges])
    return ((points >= ends[:, 0]) & (points <= ends[:, 1])).all(axis=1).sum()


def test_a_brush_that_is_dragged_counts_and_draws_what_is_in_its_box(plane, server, opened, root):
    points = np.concatenate([load(root / name).pooled() for name in NAMES])
    plane.locator(".scatter svg").press("+")
    moved(plane, 0.3)
    plane.mouse.down()
    counts = []
    for share in (0.5, 0.8, 0.6):
        moved(plane, share)
        counts.append(int(plane.locator("figure[data-chosen]").first.get_attribute("data-chosen")))
    assert counts[1] > counts[2] > counts[0] > 0
    plane.mouse.up()
    assert inside(settled(plane), points) == counts[2]
    assert plane.evaluate("getSelection().toString()") == "", "a brush marks no words of the page"
    # Drawn step by step is as drawn at once, under a pointer that is elsewhere.
    plane.mouse.move(0, 0)
    address = urlsplit(plane.url)
    again = settled(opened(server, f"{address.path}?{address.query}"))
    assert settled(plane).evaluate(DRAWN) == again.evaluate(DRAWN)
