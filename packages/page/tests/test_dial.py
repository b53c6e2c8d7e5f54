"""The dial in a browser: what it shows is what `fedpareto predict` says, and numpy counts."""

from __future__ import annotations

import csv
import io
import re
import sys
import warnings

import numpy as np
import pytest

import fedpareto
from browsing import settled
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.synthetic import Synthetic
from fedpareto_page.watch import id_of
from fedpareto_serve import runs
from fedpareto_serve.predictions import predict
from waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import main

ENGINE = {"threads": 1, "chunk": 64}
LITTLE = PraFFL(body_epochs=1, head_epochs=2, sampled=4, hypernetwork=(8, 8))
GOALS = ("accuracy", "demographic-parity:gender", "demographic-parity:region", "equal-opportunity:gender")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Models for every preference with two, three and four goals; and a run that predicts nothing."""
    folder = tmp_path_factory.mktemp("dial")
    problem = Synthetic(partition="fedfb", hidden=(16, 8))
    fedpareto.run(problem, LITTLE, clients=3, rounds=3, seeds=2, engine=ENGINE, out=folder / "two")
    people = folder / "people.csv"
    people.write_text(as_csv(people_rows(400)))
    for name, count in (("three", 3), ("four", 4)):
        own = OwnTable(
            file=str(people),
            label="hired",
            sensitive=("gender", "region"),
            goals=GOALS[:count],
            hidden=(8, 4),
            unmeasured="worst",
        )
        fedpareto.run(own, LITTLE, clients=2, rounds=1, learner={"steps": 5}, engine=ENGINE, out=folder / name)
    fedpareto.run("convex", "fedavg", clients=3, rounds=1, engine=ENGINE, out=folder / "none")
    (folder / "rows.csv").write_text(as_csv(drawn_rows(500)))
    return folder


def people_rows(count):
    stream = np.random.default_rng(0)
    for _ in range(count):
        age, gender = int(stream.integers(18, 70)), stream.choice(["f", "m"])
        odds = (age - 40) / 20 + (gender == "m")
        hired = "yes" if stream.random() < 1 / (1 + np.exp(-odds)) else "no"
        yield {
            "age": age,
            "job": stream.choice(["cook", "nurse", "smith"]),
            "gender": gender,
            "region": stream.choice(["north", "south"]),
            "hired": hired,
        }


def drawn_rows(count):
    stream = np.random.default_rng(1)
    for number in range(count):
        x1, x2 = stream.normal(0, 3, 2)
        yield {"id": f"p{number}", "x1": f"{x1:.4f}", "x2": f"{x2:.4f}", "shift": "night" if x1 < 1 else "day"}


def as_csv(rows):
    rows, text = list(rows), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@pytest.fixture(scope="module")
def server(page_server, root):
    return page_server([root], "--rows", str(root / "rows.csv"))


@pytest.fixture
def at(server, opened, root):
    """`at("two", "w=0.3,0.7")`: a run's dial, once it is drawn."""

    def open_at(name, query="", **options):
        page = opened(server, f"/dial?runs={id_of(root / name, root)}&{query}", **options)
        page.locator("#screen[data-preference], #screen[data-ready='false'], #screen .callout").first.wait_for()
        return settled(page)

    return open_at


@pytest.fixture
def predicted(capfd, monkeypatch, root):
    """`fedpareto predict` as one types it: probabilities and decisions of the rows of a file."""

    def call(command):
        words = command.split()
        monkeypatch.setattr(sys, "argv", words)
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        found = capfd.readouterr()
        assert ended.value.code == 0, found.err
        rows = list(csv.DictReader(io.StringIO(found.out)))
        return np.array([float(row["probability"]) for row in rows]), np.array([int(row["decision"]) for row in rows])

    return call


def shown(page, name):
    return page.locator("#screen").get_attribute(f"data-{name}")


def come(page, name, value):
    """Once the screen says so."""
    page.locator(f"#screen[data-{name}='{value}']").wait_for(state="attached")
    settled(page)


def address(page):
    return page.evaluate("location.search")


def command_of(page):
    return page.locator(".asked code").inner_text()


def in_view(page):
    """By row, the probabilities and decisions that stand on the screen."""
    page.locator(".rowsin").scroll_into_view_if_needed()
    rows = page.locator(".rows tr[data-row]:not([hidden])")
    found = rows.evaluate_all("all => all.map(r => [r.dataset.row, r.dataset.probability, r.dataset.decision])")
    return {int(row): (float(probability), int(decision)) for row, probability, decision in found}


def counted(page):
    """By group, rows and decisions for yes in the table."""
    lines = page.locator(".groups tr[data-group]")
    found = lines.evaluate_all("all => all.map(r => [r.dataset.group, r.dataset.rows, r.dataset.yes])")
    return {group: (int(rows), int(yes)) for group, rows, yes in found}


def test_turning_by_keys_shows_what_predict_says_and_numpy_counts(at, root, predicted):
    page = at("two", "w=0.1,0.9&a=0.1,0.9")
    page.locator("#dial").focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    come(page, "preference", "0.5,0.5")
    assert page.locator("#dial").get_attribute("aria-valuetext") == "accuracy 0.50, demographic-parity 0.50"
    command = command_of(page)
    probabilities, decisions = predicted(command)
    before = predicted(command.replace("0.5,0.5", "0.1,0.9"))[1]

    rows = page.locator(".rows tr[data-row]:not([hidden])")
    below = "all => all.filter((row) => row.getBoundingClientRect().top > innerHeight + 150).length"
    assert rows.evaluate_all(below) == 0, "rows below the window are drawn when it comes to them"
    until(lambda: in_view(page))
    seen = in_view(page)
    assert len(seen) < 60, "rows that nobody sees are not drawn"
    page.locator(".rowsin").evaluate("node => node.scrollTo(0, node.scrollHeight)")
    until(lambda: 499 in in_view(page))
    for row, (probability, decision) in (seen | in_view(page)).items():
        assert abs(probability - probabilities[row]) <= 1e-6
        assert decision == decisions[row]

    changed = int((decisions != before).sum())
    assert changed > 0
    assert shown(page, "changed") == str(changed)
    assert f"{changed} decision" in page.locator(".changes").inner_text()
    shifts = np.array([row["shift"] for row in drawn_rows(500)])
    expected = {name: (int((shifts == name).sum()), int(decisions[shifts == name].sum())) for name in ("day", "night")}
    assert counted(page) == expected
    shares = [yes / rows for rows, yes in expected.values()]
    assert abs(float(page.locator(".gap").get_attribute("data-gap")) - (max(shares) - min(shares))) <= 1e-12
    page.locator("[name=show]").select_option("changed")
    come(page, "shown", changed)


def test_strips_and_curves_tell_decisions_all_along_the_dial(at, root):
    page = at("two", "of=1&seed=1&show=turning")
    model = runs.load(root / "two").conditioned(1, 1)
    rows = list(drawn_rows(500))
    each = np.array([predict(model, rows, [step / 100, 1 - step / 100]).decisions for step in range(101)])
    turning = (each != each[0]).any(0)
    come(page, "shown", int(turning.sum()))
    until(lambda: in_view(page))
    row = next(iter(in_view(page)))
    edges = np.flatnonzero(np.diff(each[:, row]))
    words = page.locator(f".rows tr[data-row='{row}'] .stripe").get_attribute("aria-label")
    first = ["no", "yes"][each[0, row]]
    assert words.startswith(f"{first} 0.00 to {edges[0] / 100:.2f}, ")
    assert len(words.split(", ")) == len(edges) + 1
    page.locator("figure", has_text="Yes by group").get_by_role("button", name="as table").click()
    cells = page.locator("figure .numbers tbody tr").nth(30).locator("[data-value]")
    values = cells.evaluate_all("all => all.map(one => Number(one.dataset.value))")
    night = np.array([row["shift"] == "night" for row in rows])
    assert values == [0.3, int(each[30][~night].sum()), int(each[30][night].sum())]


def test_a_cell_can_be_changed_and_undone(at, root):
    page = at("two", "w=0.6,0.4")
    page.get_by_role("button", name="Row 3: what if?").click()
    panel = page.get_by_role("group", name="What if row 3 were different?")
    panel.wait_for()
    dial = page.locator(".turning").bounding_box()
    until(lambda: panel.bounding_box()["y"] >= dial["y"] + dial["height"])
    assert re.fullmatch(r"Rows 1 to \d\d of 500", page.locator(".rowsin").locator("xpath=..").locator("p").inner_text())
    model, rows = runs.load(root / "two").conditioned(0), list(drawn_rows(500))
    panel.get_by_label("x1").fill("-7.5")
    panel.get_by_label("x1").press("Enter")
    expected = predict(model, [rows[2] | {"x1": "-7.5"}], [0.6, 0.4])
    panel.get_by_text(f"{float(expected.probabilities[0]):.3f}, with 1 cell changed").wait_for()
    until(lambda: abs(in_view(page)[2][0] - float(expected.probabilities[0])) <= 1e-6)
    assert page.locator(".rows tr[data-row='2'] td.edited").inner_text() == "-7.5"
    panel.get_by_role("button", name="as it was").click()
    own = predict(model, [rows[2]], [0.6, 0.4])
    until(lambda: abs(in_view(page)[2][0] - float(own.probabilities[0])) <= 1e-6)
    assert page.locator(".rows td.edited").count() == 0


def test_rows_of_ones_own_take_their_place_and_what_they_lack_is_named(at):
    page = at("two", "w=0.6,0.4", may=("422",))
    own = "x1;x2;who\n" + "".join(f"{i / 5};{-i};{'<b>a</b>' if i % 2 else 'b'}\n" for i in range(30))
    page.locator("#rows-file").set_input_files({"name": "own.csv", "mimeType": "text/csv", "buffer": own.encode()})
    come(page, "rows", 30)
    until(lambda: in_view(page))
    assert page.locator(".rows tr[data-row='1'] td").last.inner_text() == "<b>a</b>"
    assert set(counted(page)) == {"<b>a</b>", "b"}
    assert command_of(page).endswith("--input own.csv")
    beside = at("two", "w=0.6,0.4")
    assert shown(beside, "rows") == "30", "rows are the same in every tab"
    assert beside.get_by_text(
        "30 rows of own.csv, brought to this page for all who look at it", exact=True
    ).is_visible()
    other = at("three")
    other.locator("#screen[data-rows]").wait_for()
    assert int(shown(other, "rows")) > 30, "a run with other inputs keeps its own"
    page.locator("#rows-file").set_input_files({"name": "bad.csv", "mimeType": "text/csv", "buffer": b"x1,y\n1,2\n"})
    page.locator(".callout", has_text="bad.csv has no column 'x2'").wait_for()
    page.get_by_role("button", name="back to the first rows").click()
    come(page, "rows", 500)
    beside.locator("#dial").press("ArrowRight")
    come(beside, "rows", 500)
    assert beside.evaluate("document.activeElement.id") == "dial", "who turns it by keys goes on with them"


def test_an_address_shows_the_same_to_somebody_else(at):
    page = at("two")
    page.locator("[name=of]").select_option("2")
    settled(page)  # Another model has a dial of its own.
    page.locator("#dial").focus()
    page.keyboard.press("Home")
    come(page, "preference", "0,1")
    page.get_by_role("button", name="pin A here").click()
    page.keyboard.press("Tab")
    page.locator("#dial").focus()
    page.keyboard.press("End")
    come(page, "preference", "1,0")
    page.get_by_role("button", name="pin B here").click()
    page.locator("#dial").press("PageDown")
    come(page, "preference", "0.9,0.1")
    table = page.locator(".pinned table").inner_text()
    until(lambda: "w=0.9,0.1" in address(page))
    other = at("two", address(page).partition("&")[2])
    for name in ("preference", "changed", "yes", "against"):
        assert shown(other, name) == shown(page, name)
    assert shown(other, "against") == "pin A"
    assert other.locator(".pinned table").inner_text() == table
    assert "--client 2 --preference 0.9,0.1" in command_of(other)


def test_three_goals_have_a_triangle_and_more_have_linked_sliders(at, server, root):
    page = at("three", may=("422",))
    page.locator(".callout", has_text="rows.csv has no column 'age'").wait_for()
    page.locator("#screen[data-rows]").wait_for()
    people = (root / "people.csv").read_bytes()
    assert 0 < int(shown(page, "rows")) < 400, "the run's own"
    page.locator("#rows-file").set_input_files({"name": "people.csv", "mimeType": "text/csv", "buffer": people})
    come(page, "rows", 400)
    come(page, "preference", "0.34,0.33,0.33")
    assert page.locator("[name=group] option").all_inner_texts()[:2] == [
        "gender (sensitive)",
        "region (sensitive)",
    ]
    triangle = page.locator(".triangle")
    triangle.focus()
    page.keyboard.press("Shift+ArrowUp")
    come(page, "preference", "0.54,0.23,0.23")
    page.keyboard.press("ArrowRight")
    come(page, "preference", "0.54,0.22,0.24")
    box = triangle.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 3)
    come(page, "preference", "1,0,0")
    page.get_by_label("Weight of demographic-parity:region as a number").fill("0.3")
    page.keyboard.press("Enter")
    come(page, "preference", "0.7,0,0.3")

    four = at("four", "w=0.4,0.3,0.2,0.1")
    four.get_by_label("Weight of accuracy", exact=True).press("Home")
    come(four, "preference", "0,0.5,0.33,0.17")
    weights = shown(four, "preference").split(",")
    assert abs(sum(map(float, weights)) - 1) <= 1e-12
    model = runs.load(root / "four").conditioned(0)
    decisions = predict(model, list(csv.DictReader(io.StringIO(people.decode()))), [0, 0.5, 0.33, 0.17]).decisions
    assert shown(four, "yes") == str(int(decisions.sum()))
    page.get_by_role("button", name="back to the first rows").click()


def test_on_a_phone_nothing_is_cut_and_a_run_without_a_dial_says_why(at):
    page = at("two", "w=0.6,0.4&a=0.2,0.8", viewport={"width": 320, "height": 640})
    until(lambda: page.locator(".pinned table").count())
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    none = at("none")
    none.locator(".callout", has_text="This run has no dial").wait_for()
