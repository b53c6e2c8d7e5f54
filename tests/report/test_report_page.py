from __future__ import annotations

import base64
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedpareto.errors import UserError
from fedpareto.report import page
from fedpareto.report.across import across_clients
from fedpareto.report.comparison import comparison
from fedpareto.report.page import write_comparison
from fedpareto.report.reading import load


class Page(HTMLParser):
    """Tags with their attributes, the text of each heading and paragraph, and the balance of the tags."""

    VOID = ("meta", "img", "br", "link")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
            self.text.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.text[self.open[-1]][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(index: Path) -> Page:
    result = Page(index.read_text(encoding="utf-8"))
    assert result.open == []
    return result


@pytest.fixture(scope="module")
def example(tmp_path_factory, write_run_at) -> tuple[list[Path], Path]:
    """Three runs, one clustering and one unfinished, and their page; written once, for it takes seconds."""
    root = tmp_path_factory.mktemp("example")
    reason = "refused: 'model' holds 12 values that are <not> finite"
    events = [{"seed": s, "round": 1, "client": 4, "reason": reason} for s in (0, 1, 2)]
    folders = [
        write_run_at(root / "a", "fedpref", sizes=(3, 3), clustered=True, known=True),
        write_run_at(root / "b", "fedavg", sizes=(3, 3), known=True, events=events),
        write_run_at(root / "c", "local", sizes=(3, 3), known=True, reached=5, status="running"),
    ]
    return folders, write_comparison(folders, root / "out" / "deep")


def test_the_page_and_its_parts_are_all_there(example):
    _, index = example
    names = {path.name for path in index.parent.iterdir()}
    stems = ("fronts", "hypervolume", "clients-curves", "clusters-fedpref", "similarity-fedpref")
    pictures = {f"{stem}.{ending}" for stem in stems for ending in ("png", "pdf")}
    assert names == pictures | {"index.html", "table.md", "table.json"}
    assert (index.parent / "fronts.pdf").read_bytes().startswith(b"%PDF")


def test_every_figure_is_embedded_with_a_heading_and_a_sentence(example):
    _, index = example
    found = read(index)
    images = found.all("img")
    stems = ("fronts", "hypervolume", "clients-curves", "clusters-fedpref", "similarity-fedpref")
    for image, stem in zip(images, stems, strict=True):
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data) == (index.parent / f"{stem}.png").read_bytes()
        assert image["alt"]
    assert found.text["h2"] == [
        "Results",
        "Pareto fronts",
        "Hypervolume over rounds",
        "Clients over rounds",
        "Clusters of fedpref",
        "Similarity of clients under fedpref",
        "accuracy across clients",
        "equal opportunity gap across clients",
        "Missing replies",
        "Runs",
    ]
    sentences = " ".join(found.text["p"])
    assert "start in 1 cluster and end in 2" in sentences
    assert "on each client's own test rows" in sentences


def test_nothing_is_loaded_from_elsewhere(example):
    _, index = example
    found = read(index)
    assert not found.all("link")
    assert all("src" not in script for script in found.all("script"))
    assert all(image["src"].startswith("data:") for image in found.all("img"))
    links = [link["href"] for link in found.all("a")]
    assert links
    assert all((index.parent / link).is_file() for link in links)
    text = index.read_text(encoding="utf-8")
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text


def test_the_table_of_the_page_is_that_of_the_library(example):
    folders, index = example
    records = [load(folder) for folder in folders]
    table, of_clients = comparison(records), across_clients(records)
    assert all(one.to_html() in index.read_text(encoding="utf-8") for one in (table, *of_clients))
    text = (index.parent / "table.md").read_text(encoding="utf-8")
    assert text == "\n".join(one.to_markdown() for one in (table, *of_clients))
    data = json.loads((index.parent / "table.json").read_text(encoding="utf-8"))
    of_clients_plain = [one.to_plain() for one in of_clients]
    assert data == json.loads(table.to_json()) | {"across_clients": of_clients_plain, "by_device": []}
    assert any("local: running" in note for note in read(index).text["p"])


def test_refused_replies_are_counted(example):
    _, index = example
    cells = read(index).text["td"]
    at = cells.index("refused: 'model' holds 12 values that are <not> finite")
    assert cells[at - 2 : at + 2] == ["fedavg", "4", cells[at], "3"]


def test_the_spec_of_each_run_stands_in_a_fold(example):
    _, index = example
    found = read(index)
    assert found.text["summary"] == [f"spec.yaml of {name}" for name in ("fedpref", "fedavg", "local")]
    assert found.text["pre"][0] == "algorithm: fedpref\nproblem: synthetic\n"


def test_words_from_run_folders_cannot_become_markup(write_run, tmp_path):
    evil = '<script>alert("1")</script>'
    folder = write_run(
        "a",
        evil,
        problem=f"p{evil}",
        rounds=1,
        seeds=(0,),
        clustered=True,
        events=[{"seed": 0, "round": 0, "client": 1, "reason": f'"><img src=x onerror=1>{evil}'}],
        extra={
            "versions": {evil: evil},
            "choices": {"x": '"><b>'},
            "objectives": [
                {"name": f"acc{evil}", "maximise": True, "reference": 0.0},
                {"name": "</style><b>", "maximise": False, "reference": 1.0},
            ],
        },
    )
    (folder / "spec.yaml").write_text(f"</pre>{evil}")
    found = read(write_comparison([folder], tmp_path / "out"))
    assert len(found.all("script")) == 1
    assert "alert" not in found.text["script"][0]
    assert not found.all("b")
    assert all("onerror" not in attributes for _, attributes in found.tags)
    assert all(image["src"].startswith("data:") for image in found.all("img"))
    assert evil in found.text["td"][0] or evil in " ".join(found.text["th"])
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "clusters-script-alert-1-script.png" in names


def test_file_names_differ_even_where_only_strange_letters_do(write_run):
    records = [load(write_run(f"r{i}", name, rounds=1)) for i, name in enumerate(["a/b", "a:b", "A b", "..", "é"])]
    assert page._file_names(records) == ["a-b", "a-b-2", "A-b-3", "run", "run-2"]


@pytest.fixture
def no_pictures(monkeypatch) -> None:
    """Drawing takes a second; what a test does not look at need not be drawn."""
    monkeypatch.setattr(page.figures, "render", lambda figure, ending: ending.encode())


@pytest.mark.usefixtures("no_pictures")
def test_many_kinds_of_refusals_do_not_bury_the_page(write_run, tmp_path):
    events = [{"seed": 0, "round": 0, "client": i, "reason": "late"} for i in range(80)]
    folder = write_run("a", rounds=1, seeds=(0,), events=events)
    found = read(write_comparison([folder], tmp_path / "out"))
    assert found.text["td"].count("late") == page.MOST_REFUSALS
    assert any(f"{page.MOST_REFUSALS} most frequent of 80 kinds" in text for text in found.text["p"])


@pytest.mark.usefixtures("no_pictures")
def test_a_folder_given_twice_is_one_run_and_a_page_can_be_written_again(write_run, tmp_path):
    folder = write_run("a", rounds=1, seeds=(0,))
    index = write_comparison([folder, folder.parent / "." / "a"], tmp_path / "out")
    before = index.read_bytes()
    assert write_comparison([folder], tmp_path / "out").read_bytes() == before
    assert "1 run compared" in read(index).text["title"][0]
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix == ".tmp"]


def test_different_problems_are_refused_before_anything_is_written(write_run, tmp_path):
    folders = [write_run("a"), write_run("b", problem="convex")]
    with pytest.raises(UserError, match=r"'synthetic'.*'convex'"):
        write_comparison(folders, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_out_folder_that_cannot_be_written_is_the_users_to_mend(write_run, tmp_path):
    folder = write_run("a", rounds=1, seeds=(0,))
    blocked = tmp_path / "file"
    blocked.write_text("here first")
    for out in (blocked, blocked / "below"):
        with pytest.raises(UserError, match=r"cannot (write to|be written)"):
            write_comparison([folder], out)
    assert blocked.read_text() == "here first"


def test_a_page_says_which_runs_were_attacked_and_defended(write_run, tmp_path):
    extra = {"attackers": [[2]] * 3, "attack": {"kind": "label-flip", "from_round": 1}, "defence": "median"}
    folders = [write_run("a", "fedavg", extra=extra), write_run("b", "local")]
    paragraphs = read(write_comparison(folders, tmp_path / "page")).text["p"]
    assert "fedavg: attack: label-flip, by client 2, from round 1 on; defence: median." in paragraphs
    assert not any(words.startswith("local: ") for words in paragraphs)
