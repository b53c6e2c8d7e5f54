"""The page as one file: what `compare` writes, and what "save this view as HTML" gives."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import numpy as np
import pytest

from browsing import settled
from fedpareto.config.errors import UserError
from fedpareto.record.reading import load
from fedpareto.report.across import across_clients
from fedpareto.report.comparison import comparison
from fedpareto_page import queries
from fedpareto_page.comparison import write_comparison
from fedpareto_page.saved import LIVE, LIVE_SCREENS, STATIC, saved
from fedpareto_page.watch import Shelf
from framing import unframe

EVIL = '<script>alert("1")</script>'
NAMESPACE = "http://www.w3.org/2000/svg"
MOST_BYTES = 1_000_000
"""Of four runs of twenty rounds."""


class Page(HTMLParser):
    """Tags with their attributes and their text; all tags are closed."""

    VOID = ("meta", "img", "br", "link", "input")

    def __init__(self, index: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[int] = []
        self.feed(index.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), []))
        if tag not in self.VOID:
            self.open.append(len(self.tags) - 1)

    def handle_endtag(self, tag):
        assert self.tags[self.open.pop()][0] == tag

    def handle_data(self, data):
        if self.open:
            self.tags[self.open[-1]][2].append(data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, "".join(text)) for name, attributes, text in self.tags if name == tag]

    @property
    def answers(self) -> dict:
        """What is written into the page."""
        (text,) = [text for attributes, text in self.all("script") if attributes.get("id") == "saved"]
        return json.loads(text)

    @property
    def modules(self) -> dict[str, str]:
        (text,) = [text for attributes, text in self.all("script") if attributes.get("type") == "importmap"]
        found = json.loads(text)["imports"]
        return {name: base64.b64decode(address.partition(",")[2]).decode() for name, address in found.items()}


@pytest.fixture(scope="module")
def example(tmp_path_factory, write_run_at) -> tuple[list[Path], Path]:
    """Three runs, one clustering and one unfinished, and their page."""
    root = tmp_path_factory.mktemp("example")
    events = [{"seed": s, "round": 1, "client": 4, "reason": f"refused: {EVIL}"} for s in (0, 1, 2)]
    folders = [
        write_run_at(root / "a", "fedpref", sizes=(3, 3), clustered=True, known=True),
        write_run_at(root / "b", "fedavg", sizes=(3, 3), known=True, events=events),
        write_run_at(root / "c", "local", sizes=(3, 3), known=True, reached=5, status="running"),
    ]
    return folders, write_comparison(folders, root / "out" / "deep")


def test_the_tables_beside_the_page_are_those_of_the_library(example):
    folders, index = example
    assert {path.name for path in index.parent.iterdir()} == {"index.html", "table.md", "table.json"}
    records = [load(folder) for folder in folders]
    table, of_clients = comparison(records), across_clients(records)
    text = (index.parent / "table.md").read_text(encoding="utf-8")
    assert text == "\n".join(one.to_markdown() for one in (table, *of_clients))
    data = json.loads((index.parent / "table.json").read_text(encoding="utf-8"))
    of_clients_plain = [one.to_plain() for one in of_clients]
    assert data == json.loads(table.to_json()) | {"across_clients": of_clients_plain, "by_device": []}
    assert any("local: running" in note for note in data["notes"])


def test_nothing_is_loaded_from_elsewhere(example):
    _, index = example
    found = Page(index)
    assert all("src" not in attributes for attributes, _ in found.all("script"))
    assert all(attributes["href"].startswith("data:") for attributes, _ in found.all("link"))
    (policy,) = [attributes["content"] for attributes, _ in found.all("meta") if "http-equiv" in attributes]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for text in (index.read_text(encoding="utf-8"), *found.modules.values()):
        assert not re.search(r"https?:|url\((?!#)|@import", text.replace(NAMESPACE, ""))


def test_modules_know_each_other_by_name_and_none_is_missing(example):
    modules = Page(example[1]).modules
    asked = {name for text in modules.values() for name in re.findall(r'(?:from|import)\s*\(?\s*"([^"]+)"', text)}
    assert asked - {f"fedpareto/{name}" for name in LIVE} == modules.keys() - {"fedpareto/main.js"}
    script = (STATIC / "main.js").read_text(encoding="utf-8")
    (hidden,) = re.findall(r"LIVE_ONLY = \[(.*?)\]", script)
    assert set(re.findall(r'"/(\w+)"', hidden)) == set(LIVE_SCREENS)


def test_a_run_whose_words_are_markup_is_told_as_it_is(write_run, tmp_path):
    folder = write_run(
        "a",
        EVIL,
        problem=f"p{EVIL}",
        rounds=1,
        seeds=(0,),
        events=[{"seed": 0, "round": 0, "client": 1, "reason": f'"><img src=x onerror=1>{EVIL}'}],
        extra={
            "versions": {EVIL: EVIL},
            "choices": {"x": '"><b>'},
            "objectives": [
                {"name": f"acc{EVIL}", "maximise": True, "reference": 0.0},
                {"name": "</style><b>", "maximise": False, "reference": 1.0},
            ],
        },
    )
    (folder / "spec.yaml").write_text(f"</script>{EVIL}", encoding="utf-8")
    found = Page(write_comparison([folder], tmp_path / "out"))
    assert len(found.all("script")) == 3
    assert not found.all("b")
    assert not found.all("img")
    (entry,) = found.answers["/api/runs"]["runs"]
    assert (entry["algorithm"], entry["problem"]) == (EVIL, f"p{EVIL}")
    assert found.answers[f"/api/runs/{entry['id']}"]["spec"] == f"</script>{EVIL}"


def test_a_run_that_cannot_be_read_is_not_saved_but_named(write_run, tmp_path):
    good, bad = write_run("a", "fedavg"), write_run("b", "local")
    (bad / "run.json").write_text("{")
    shelf = Shelf([tmp_path])
    shelf.poll()
    ids = [one["id"] for one in queries.runs(shelf)["runs"]]
    assert len(ids) == 2
    with pytest.raises(UserError, match=r"the run b cannot be saved: .*run\.json is damaged"):
        saved(shelf, ids)
    assert saved(shelf, [one["id"] for one in queries.runs(shelf)["runs"] if one["name"] == good.name])


def test_what_is_asked_of_a_run_is_there(example):
    folders, index = example
    told = Page(index).answers
    entries = {entry["name"]: entry for entry in told["/api/runs"]["runs"]}
    assert list(entries) == [folder.name for folder in folders]
    assert told["/api/runs"]["read_only"] is True
    chosen = ",".join(entry["id"] for entry in entries.values())
    assert told[f"/api/compare?runs={chosen}"]["refused"] is None
    refused = told[f"/api/runs/{entries['b']['id']}/events?since=0"]
    assert [(one["client"], one["reason"]) for one in refused["events"]] == [(4, f"refused: {EVIL}")] * 3
    head, columns = unframe(base64.b64decode(told[f"/api/runs/{entries['c']['id']}/lines?since=0&epoch=0"]["frame"]))
    assert head["total"] == 3 * 6
    record = load(folders[2])
    np.testing.assert_array_equal(columns["hypervolume"].reshape(3, 6), record.hypervolume)


def test_which_runs_were_attacked_and_defended_is_told(write_run, tmp_path):
    extra = {"attackers": [[2]] * 3, "attack": {"kind": "label-flip", "from_round": 1}, "defence": "median"}
    folders = [write_run("a", "fedavg", extra=extra), write_run("b", "local")]
    first, second = Page(write_comparison(folders, tmp_path / "page")).answers["/api/runs"]["runs"]
    assert (first["attack"], first["defence"]) == ("label-flip, by client 2, from round 1 on", "median")
    assert not second["attack"]


def test_without_outliers_the_page_has_the_points_that_the_report_draws(write_run, tmp_path):
    folder = write_run("a", seeds=(0, 1))
    index = write_comparison([folder], tmp_path / "out", rank=2)
    told = Page(index).answers
    (content,) = [answer["frame"] for path, answer in told.items() if path.endswith("/solutions?split=test")]
    record = load(folder).without_outliers(rank=2)
    _, columns = unframe(base64.b64decode(content))
    for solution in record.solutions:
        np.testing.assert_array_equal(columns[f"values.{solution.seed}"].T, record.drawn(solution))
    assert sum(len(record.drawn(one)) for one in record.solutions) < 2 * record.clients


def test_a_folder_given_twice_is_one_run_and_a_page_can_be_written_again(write_run, tmp_path):
    folder = write_run("a", rounds=1, seeds=(0,))
    index = write_comparison([folder, folder.parent / "." / "a"], tmp_path / "out")
    before = index.read_bytes()
    assert write_comparison([folder], tmp_path / "out").read_bytes() == before
    assert len(Page(index).answers["/api/runs"]["runs"]) == 1
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix not in (".html", ".md", ".json")]


def test_different_problems_are_refused_before_anything_is_written(write_run, tmp_path):
    folders = [write_run("a"), write_run("b", problem="convex")]
    with pytest.raises(UserError, match=r"'synthetic'.*'convex'"):
        write_comparison(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_folder_is_refused_before_anything_is_written(write_run, tmp_path):
    folders = [write_run("a", rounds=1), write_run("b", rounds=1)]
    (folders[1] / "solutions.json").write_text("[{", encoding="utf-8")
    with pytest.raises(UserError, match=r"solutions.json"):
        write_comparison(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_out_folder_that_cannot_be_written_is_the_users_to_mend(write_run, tmp_path):
    folder = write_run("a", rounds=1, seeds=(0,))
    blocked = tmp_path / "file"
    blocked.write_text("here first", encoding="utf-8")
    for out in (blocked, blocked / "below"):
        with pytest.raises(UserError, match=r"cannot (write to|be written)"):
            write_comparison([folder], out)
    assert blocked.read_text(encoding="utf-8") == "here first"


# -- in the browser --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def four(tmp_path_factory, write_run_at) -> Path:
    """Four runs of twenty rounds, one of whose name is markup."""
    root = tmp_path_factory.mktemp("four")
    for name in ("local", "fedavg", "fedprox", "fedpref"):
        evil = {"names": [EVIL] * 10} if name == "fedavg" else {}
        write_run_at(root / name, name, rounds=20, clustered=name == "fedpref", splits=("train", "test"), extra=evil)
    return root


@pytest.fixture(scope="module")
def server(page_server, four):
    return page_server([four])


def seen(page):
    page.locator("[data-front]").first.wait_for(state="attached")
    settled(page)
    return page.locator("[data-front]").first.get_attribute("data-front")


def clients_on(front):
    """By run, the seeds and clients on its front; runs are called differently where they are seen from elsewhere."""
    found = {}
    for key in front.split():
        run, _, client = key.partition(":")
        found.setdefault(run, []).append(client)
    return sorted(found.values())


def test_a_saved_view_opens_from_the_disk_and_shows_the_same(server, opened, tmp_path):
    live = opened(server, "/fronts?seed=1")
    front = seen(live)
    href = live.get_by_role("link", name="save this view as HTML").get_attribute("href")
    answer = httpx.get(server.base + href, cookies=server.cookies, timeout=None)
    assert answer.headers["content-disposition"] == 'attachment; filename="fedpareto.html"'
    assert len(answer.content) <= MOST_BYTES
    file = tmp_path / "saved.html"
    file.write_bytes(answer.content)
    assert server.token not in answer.text
    page = opened(file.as_uri())
    assert seen(page) == front
    assert front
    for name in ("Shelf", "Rounds", "Clients", "Film"):
        page.get_by_role("navigation").get_by_text(name, exact=True).click()
        page.locator("h1").get_by_text(name, exact=True).wait_for()
        page.locator("#screen table, #screen figure").first.wait_for(state="attached")
        settled(page)
        assert page.locator("#fault").count() == 0
    assert page.locator("text=save this view").count() == 0


def test_what_compare_writes_is_the_live_page_of_the_same_runs(server, opened, four, tmp_path):
    folders = sorted(four.iterdir())
    index = write_comparison(folders, tmp_path / "out")
    assert index.stat().st_size <= MOST_BYTES
    assert clients_on(seen(opened(index.as_uri()))) == clients_on(seen(opened(server, "/fronts")))


def test_figures_for_papers_are_drawn_by_the_report(server):
    with httpx.Client(base_url=server.base, cookies=server.cookies, timeout=None) as client:
        ids = ",".join(entry["id"] for entry in client.get("/api/runs").json()["runs"])
        for name, begin in {"fronts.pdf": b"%PDF", "hypervolume.svg": b"<?xml", "clients.png": b"\x89PNG"}.items():
            answer = client.get(f"/api/figure/{name}?runs={ids}")
            assert answer.content.startswith(begin), answer.text
        assert client.get(f"/api/figure/other.pdf?runs={ids}").status_code == 404
