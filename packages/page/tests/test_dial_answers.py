"""The dial's answers: the same as those of the served model, whatever happens to the process that gives them."""

from __future__ import annotations

import asyncio
import csv
import io
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.responses import JSONResponse

import fedpareto
from browsing import apart
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.config.errors import UserError
from fedpareto.problems.fairness.benchmarks import Adult, Bank
from fedpareto.problems.multitask.digits import DigitPairs
from fedpareto.problems.synthetic import Synthetic
from fedpareto.record.store import RunFolder
from fedpareto_page.dial import Dial, Superseded, routes
from fedpareto_page.dial_worker import MISSING, Table
from fedpareto_page.watch import Unknown
from fedpareto_serve import runs
from fedpareto_serve.predictions import predict
from processes import forked_workers

ENGINE = {"threads": 1, "chunk": 64}
GRID = [[step / 20, 1 - step / 20] for step in range(21)]


class Page:
    """The end points without a socket, and a real worker process behind them."""

    def __init__(self, root, rows=None):
        self.root, self.dial = root, Dial(rows)
        app = FastAPI()
        app.include_router(routes(self.folder_of, self.dial))
        app.add_exception_handler(Unknown, lambda _, problem: JSONResponse({"detail": str(problem)}, 404))
        self._app = app

    def folder_of(self, id):
        if not (self.root / id).exists():
            raise Unknown(f"there is no run '{id}'")
        return self.root / id

    def __call__(self, method, path, **options):
        async def asked():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self._app), base_url="http://here") as client:
                return await client.request(method, path, timeout=None, **options)

        return apart(asked())

    def turn(self, run, **question):
        answer = self("POST", f"/api/dial/{run}", json=question)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def bring(self, run, text, name=""):
        return self("POST", "/api/rows", json={"run": run, "csv": text, "name": name})

    def rows(self, run, **query):
        found = self("GET", f"/api/dial/{run}/rows", params=query).json()
        return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]

    def served(self, run, client=None, seed=None):
        return runs.load(self.root / run).conditioned(client, seed)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    root = tmp_path_factory.mktemp("dial")
    problem = Synthetic(partition="fedfb", hidden=(8, 6, 4))
    little = PraFFL(body_epochs=1, head_epochs=1, sampled=4, hypernetwork=(8, 8))
    fedpareto.run(
        problem, little, clients=3, rounds=1, seeds=2, learner={"epochs": 1}, engine=ENGINE, out=root / "praffl"
    )
    options = {"rounds": 1, "preferences": "equidistant", "learner": {"epochs": 1}, "engine": ENGINE}
    fedpareto.run(Synthetic(hidden=(8, 4)), "fedpref", clients=5, **options, out=root / "fedpref")
    fedpareto.run(Synthetic(hidden=(8, 4), sees_group=True), "fedavg", clients=2, **options, out=root / "grouped")
    fedpareto.run(DigitPairs(), "fedavg", clients=2, rounds=1, engine=ENGINE, out=root / "pairs")
    fedpareto.run("convex", "fedavg", clients=3, rounds=1, engine=ENGINE, out=root / "convex")
    opened = Page(root)
    with pytest.MonkeyPatch.context() as patched:
        forked_workers(patched.setattr)
        yield opened
        opened.dial.close()


@pytest.fixture(autouse=True)
def own_rows(page):
    yield
    for run in ("praffl", "grouped"):
        page.bring(run, None)


def test_what_can_be_asked_of_a_model_for_every_preference(page):
    about = page("GET", "/api/dial/praffl", params={"client": 1, "seed": 1}).json()
    assert about["ready"]
    assert about["any"]
    assert (about["clients"], about["seeds"], about["client"], about["seed"]) == ([0, 1, 2], [0, 1], 1, 1)
    assert about["columns"] == {"x1": "number", "x2": "number"}
    assert about["sensitive"] == ["sensitive"]
    assert about["grouped"] == ["sensitive", "y", "x1", "x2"]
    points = page.served("praffl", 1, 1).points
    assert [point["values"] for point in about["points"]] == [list(point.values) for point in points]
    assert about["rows"]["count"] == len(page.rows("praffl", client=1, seed=1))


def test_answers_are_the_served_models_and_counts_are_numpys(page):
    rows, model = page.rows("praffl", client=2), page.served("praffl", 2)
    for preference in ([0.0, 1.0], [0.37, 0.63], [1.0, 0.0]):
        answer = page.turn("praffl", preference=preference, client=2)
        expected = predict(model, rows, preference)
        assert np.abs(np.array(answer["probabilities"]) - expected.probabilities).max() <= 1e-12
        assert answer["decisions"] == expected.decisions.tolist()
        measured = next(point for point in model.points if np.allclose(point.preference, preference))
        assert answer["values"] == list(measured.values)
        assert answer["measured_at"] == list(measured.preference)
        groups = np.array([row["sensitive"] for row in rows])
        for group in (0, 1):
            count = {"rows": int((groups == group).sum()), "yes": int(expected.decisions[groups == group].sum())}
            assert answer["groups"]["sensitive"][str(group)] == count
    assert answer["command"].endswith("praffl --client 2 --preference 1,0 --input ROWS.csv")


def test_among_several_models_the_nearest_serves(page):
    model = page.served("fedpref")
    answer = page.turn("fedpref", preference=[0.7, 0.3])
    assert answer["served_by"] == {"client": 3, "words": model.describe([0.7, 0.3])}
    assert answer["values"] == list(next(point.values for point in model.points if point.client == 3))
    alone = page.turn("fedpref", preference=[0.7, 0.3], client=0)
    assert alone["served_by"]["client"] == 0
    assert "--client 0" in alone["command"]


@pytest.mark.parametrize("run", ["praffl", "fedpref"])
def test_many_preferences_at_once_are_each_as_if_alone(page, run):
    together = page.turn(run, preferences=GRID)
    alone = [page.turn(run, preference=preference) for preference in GRID[::5]]
    assert together["decisions"][::5] == [one["decisions"] for one in alone]
    assert together["groups"][::5] == [one["groups"] for one in alone]


def test_an_edited_cell_changes_its_row_alone_and_its_group(page):
    rows = page.rows("praffl")
    before = page.turn("praffl", preference=[0.5, 0.5])
    edits = [[3, "x1", "-40"], [3, "sensitive", 1 - rows[3]["sensitive"]]]
    after = page.turn("praffl", preference=[0.5, 0.5], edits=edits)
    differs = [
        row
        for row, pair in enumerate(zip(before["probabilities"], after["probabilities"], strict=True))
        if pair[0] != pair[1]
    ]
    assert differs == [3]
    shift = {
        group: after["groups"]["sensitive"][group]["rows"] - count["rows"]
        for group, count in before["groups"]["sensitive"].items()
    }
    assert shift[str(rows[3]["sensitive"])] == -1
    assert sum(shift.values()) == 0


def as_csv(rows, separator=","):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def test_a_table_that_is_dropped_on_the_page_takes_the_place_of_the_runs_own(page):
    rows = [{"who": f"<b>{i}</b>", "x1": i / 7, "x2": -i, "shift": "day" if i % 3 else "night"} for i in range(40)]
    told = page.bring("praffl", as_csv(rows, ";"), "people.csv").json()
    assert (told["count"], told["columns"]) == (40, ["who", "x1", "x2", "shift"])
    about = page("GET", "/api/dial/praffl").json()
    name = "40 rows of people.csv, brought to this page for all who look at it"
    assert about["rows"] == {"count": 40, "name": name, "file": "people.csv"}
    assert (about["sensitive"], about["grouped"]) == ([], ["shift", "x1", "x2"])
    answer = page.turn("praffl", preference=[0.2, 0.8])
    expected = predict(page.served("praffl", 0), rows, [0.2, 0.8])
    assert np.abs(np.array(answer["probabilities"]) - expected.probabilities).max() <= 1e-6
    night = expected.decisions[::3]
    assert answer["groups"]["shift"]["night"] == {"rows": len(night), "yes": int(night.sum())}
    page.bring("praffl", None)
    assert "held-out rows of client 0" in page("GET", "/api/dial/praffl").json()["rows"]["name"]


def test_rows_are_for_the_runs_whose_models_read_their_columns(page):
    own = page.rows("grouped")
    page.bring("praffl", "x1,x2\n1,2\n-3,4\n", "two.csv")
    assert len(page.rows("fedpref")) == 2, "the same inputs"
    assert page.rows("grouped") == own, "it reads the group too"
    page.bring("grouped", "x1,x2,sensitive\n1,2,0\n", "one.csv")
    assert [len(page.rows(run)) for run in ("praffl", "fedpref", "grouped")] == [2, 2, 1]
    os.kill(page.dial.worker.pid, signal.SIGKILL)
    assert [len(page.rows(run)) for run in ("praffl", "fedpref", "grouped")] == [2, 2, 1]
    page.bring("grouped", None)
    assert page.rows("grouped") == own
    assert len(page.rows("praffl")) == 2


def test_a_file_that_fits_some_runs_leaves_the_others_their_own_rows(page, tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("x1,x2\n1,2\n")
    beside = Page(page.root, file)
    try:
        assert beside("GET", "/api/dial/praffl").json()["source"] == "file"
        about = beside("GET", "/api/dial/grouped").json()
        assert about["source"] == "own"
        assert "people.csv has no column 'sensitive'" in about["rows_reason"]
        assert about["rows"]["count"] == len(page.rows("grouped"))
    finally:
        beside.dial.close()


def test_without_the_data_set_it_is_said_where_it_is_looked_for(page, tmp_path, monkeypatch):
    spec = RunFolder(page.root / "praffl").spec()
    folder = tmp_path / "adult"
    shutil.copytree(page.root / "praffl", folder)
    (folder / "spec.yaml").write_text(replace(spec, problem=Adult()).to_yaml())
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    beside = Page(tmp_path)
    try:
        about = beside("GET", "/api/dial/adult").json()
    finally:
        beside.dial.close()
    assert (about["ready"], about["rows"]) == (True, None)
    assert about["rows_reason"].startswith(
        f"There are no rows yet: the data set adult is not in the data folder {tmp_path}"
    )
    assert "FEDPARETO_DATA" in about["rows_reason"]


def test_what_is_wrong_is_said_in_one_line(page):
    assert page("GET", "/api/dial/nothing").status_code == 404
    unfit = page("GET", "/api/dial/convex").json()
    assert not unfit["ready"]
    assert "predicts nothing" in unfit["reason"]
    refused = page.bring("praffl", "x1,x3\n1,2\n", "people.csv")
    assert refused.status_code == 422
    assert refused.json()["detail"] == "people.csv has no column 'x2'; is 'x3' meant?"
    assert "held-out" in page("GET", "/api/dial/praffl").json()["rows"]["name"], "what does not fit is not kept"
    for question, told in (
        ({"preference": [0.5, 0.6]}, "sum to 1.1"),
        ({}, "preference"),
        ({"preference": [0.5, 0.5], "more": 1}, "more"),
    ):
        answer = page("POST", "/api/dial/praffl", json=question)
        assert answer.status_code == 422
        assert told in answer.json()["detail"]
    far = page("POST", "/api/dial/praffl", json={"preference": [0.5, 0.5], "edits": [[9999, "x1", 0]]})
    assert far.json()["detail"].startswith("there is no row 10000")
    assert page.bring("praffl", "", "a.csv").status_code == 422


def test_a_worker_that_was_killed_is_started_again_with_the_rows_it_had(page):
    page.bring("praffl", "x1,x2\n1,2\n-3,4\n", "two.csv")
    before = page.turn("praffl", preference=[0.5, 0.5])
    os.kill(page.dial.worker.pid, signal.SIGKILL)
    assert page.turn("praffl", preference=[0.5, 0.5]) == before


def test_of_a_tabs_waiting_questions_only_the_newest_is_answered(page):
    question = {"run": str(page.root / "praffl"), "preference": [0.5, 0.5]}

    async def many():
        # The first one is under way, or waiting, when the others have come.
        asked = [page.dial.ask("dial", question, "tab") for _ in range(5)]
        other = page.dial.ask("dial", question, "another tab")
        return await asyncio.gather(*asked, other, return_exceptions=True)

    *first, last, other = apart(many())
    assert "probabilities" in last
    assert "probabilities" in other
    assert sum(isinstance(answer, Superseded) for answer in first) >= 3


def test_rows_that_come_while_others_are_asked_about_wait_their_turn(page):
    question = {"run": str(page.root / "praffl"), "preference": [0.5, 0.5]}

    async def mixed():
        jobs = []
        for count in (3, 5, None, 7):
            table = None if count is None else "x1,x2\n" + "1,2\n" * count
            jobs += [
                page.dial.load(page.root / "praffl", table, "some.csv"),
                page.dial.ask("dial", question),
                page.dial.ask("rows", question),
            ]
        return await asyncio.gather(*jobs)

    found = apart(mixed())
    assert [len(answer["decisions"]) for answer in found[1::3]][:2] == [3, 5]
    assert [len(one["decisions"]) for one in found[1::3]] == [len(one["rows"]) for one in found[2::3]]


def test_of_several_answers_each_can_be_asked_for(page):
    model, rows = page.served("pairs"), DigitPairs().examples(2, 0, 0)
    expected = predict(model, rows, [0.5, 0.5])
    for output in (0, 1):
        answer = page.turn("pairs", preference=[0.5, 0.5], output=output)
        assert answer["decisions"] == expected.decisions[:, output].tolist()
        assert np.abs(np.array(answer["probabilities"]) - expected.probabilities[:, output].max(1)).max() <= 1e-12
    assert (answer["groups"], answer["command"]) == ({}, None)
    assert [set(row) for row in page.rows("pairs")] == [{"left", "right"}] * len(rows), "images are not sent"
    assert page("POST", "/api/dial/pairs", json={"preference": [0.5, 0.5], "output": 2}).status_code == 422


def test_the_server_imports_no_torch_for_it():
    code = "import fedpareto_page.dial, sys; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert found.stdout == "False\n"


def groups_of(values, rule=""):
    table = Table([{"a": value} for value in values], "", None, {"a": rule})
    grouping = table.groups.get("a")
    return None if grouping is None else [grouping.names[code] for code in grouping.codes]


def test_rows_are_grouped_by_value_by_bound_or_by_one_value_of_many():
    assert groups_of(["b", "a", "", None, "b"]) == ["b", "a", MISSING, MISSING, "b"]
    assert groups_of([10.0, 9, "9"]) == ["10", "9", "9"]
    assert groups_of([24, "25", 26, "?"], "a>=25") == ["a < 25", "a ≥ 25", "a ≥ 25", MISSING]
    assert groups_of([24, 25, 26], "a<=25") == ["a ≤ 25", "a ≤ 25", "a > 25"]
    many = [*"abcdefghij"]
    assert groups_of(many) is None
    assert groups_of(many, "a=c") == ["c" if one == "c" else "not c" for one in many]
    assert groups_of(["same"] * 3) is None


def test_numbers_with_many_values_are_grouped_in_quarters():
    ages = [*range(20, 60), None]
    expected = [f"{20 + 10 * (i // 10)} to {29 + 10 * (i // 10)}" for i in range(40)]
    assert groups_of(ages) == [*expected, MISSING]
    assert groups_of([*map(str, ages[:-1])]) == expected
    assert groups_of([0] * 40 + [*range(5, 15)]) == ["0"] * 40 + ["5 to 14"] * 10
    assert groups_of([*range(20), "many"]) is None


def test_a_problems_examples_are_the_rows_on_which_it_tests():
    problem = Synthetic(sees_group=True, partition="dirichlet")
    rows = problem.examples(4, 3, 2)
    encoded = problem.input_schema(4, 3).encode(rows).features
    assert np.array_equal(encoded, problem.data(4, 3)["own-test"].of_client(2)["features"].numpy())


@pytest.mark.needs_data("adult")
def test_examples_of_a_published_table_are_its_own_rows():
    problem = Adult(sensitive=("gender", "race"))
    assert problem.sensitive_columns() == {"sex": "sex=Male", "race": "race=White"}
    assert Bank().sensitive_columns() == {"age": "age>=25"}
    rows = problem.examples(5, 0, 3)
    encoded = problem.input_schema(5, 0).encode(rows).features
    expected = problem.data(5, 0)["own-test"].of_client(3)
    assert np.abs(encoded - expected["features"].numpy()).max() <= 1e-5
    assert [row["income"] == ">50K" for row in rows] == expected["label"].bool().tolist()


def test_nothing_is_downloaded_for_examples(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    with pytest.raises(UserError, match="FEDPARETO_DATA"):
        Adult().examples(3, 0, 0)
