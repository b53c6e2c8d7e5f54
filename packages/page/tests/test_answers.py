"""What the page is told, against what the report and numpy compute of the same folders."""

from __future__ import annotations

import json

import numpy as np
import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.moo.fairness import across_objectives
from fedpareto.record.reading import load
from fedpareto.report.across import across_clients
from fedpareto.report.comparison import comparison
from fedpareto_page import queries
from fedpareto_page.watch import Shelf, Unknown
from framing import unframe
from made_runs import MadeRun

NAMES = ("cfl", "fedavg", "fedpref", "local")


def shelf_of(*roots):
    shelf = Shelf(roots)
    shelf.poll()
    while shelf.reading:
        shelf.poll()
    return shelf


def by_name(shelf):
    return {run.name: run.id for run in shelf.runs.values()}


def as_json(answer):
    """As the page gets it: there is no NaN in it."""
    return json.loads(json.dumps(answer, allow_nan=False))


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Four runs of the same clients, one of them disturbed."""
    folder = tmp_path_factory.mktemp("runs")
    for name in NAMES:
        extra = {"faults": {"dropout": 0.2}, "quorum": 1} if name == "cfl" else {"measure_losses": name == "fedavg"}
        fedpareto.run(
            "synthetic", name, clients=6, rounds=4, seeds=2, preferences="equidistant", out=folder / name, **extra
        )
    return folder


@pytest.fixture(scope="module")
def shelf(root):
    return shelf_of(root)


@pytest.fixture(scope="module")
def ids(shelf):
    return by_name(shelf)


# -- lines and values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_lines_are_those_of_the_report(name, root, shelf, ids):
    record = load(root / name)
    head, columns = unframe(queries.lines(shelf, ids[name]))
    place = {(int(s), int(r)): k for k, (s, r) in enumerate(zip(columns["seed"], columns["round"], strict=True))}
    assert head == {"epoch": 0, "since": 0, "total": len(record.lines)}
    assert len(place) == len(record.lines)
    for line in record.lines:
        k = place[line.seed, line.round]
        for field in ("hypervolume", "trained_hypervolume", "seconds", "replies", "failures", "bytes_up", "at"):
            np.testing.assert_equal(float(columns[field][k]), float(getattr(line, field)))
        for evaluation in ("sent", "trained"):
            for split in record.splits:
                means = line.means[evaluation].get(split, np.full(2, np.nan))
                np.testing.assert_array_equal([columns[f"{evaluation}.{split}.{j}"][k] for j in (0, 1)], means)
        told = [[columns[f"sent.{what}.{j}"][k] for j in (0, 1)] for what in ("worst", "nine")]
        if line.has("sent", record.own_split):
            found = across_objectives(line.measured("sent")[record.own_split], record.maximise)
            np.testing.assert_allclose(told, [[one.worst for one in found], [one.low for one in found]], atol=1e-12)
        else:
            assert np.isnan(told).all()
    rounds, shares = record.share_improved()
    for i, seed in enumerate(record.started):
        for j, r in enumerate(rounds):
            assert columns["improved"][place[seed, int(r)]] == pytest.approx(shares[i, j])
    assert np.isfinite(columns["improved"]).any() == (name == "fedavg")


@pytest.mark.parametrize("evaluation", ["sent", "trained"])
@pytest.mark.parametrize("split", ["train", "test", "own-test"])
def test_values_are_those_of_each_client(evaluation, split, root, shelf, ids):
    record = load(root / "cfl")
    head, columns = unframe(queries.values(shelf, ids["cfl"], evaluation, split))
    lines = {(line.seed, line.round): line for line in record.lines}
    assert (head["clients"], head["every"], len(head["lines"])) == (6, 1, len(lines))
    for (seed, round_), values in zip(head["lines"], columns["values"], strict=True):
        found = lines[seed, round_].measured(evaluation)
        expected = found[split].T if found else np.full((2, 6), np.nan)
        np.testing.assert_array_equal(values, expected)


def test_who_asks_for_what_is_new_has_in_the_end_what_who_asks_once_has(tmp_path):
    run = MadeRun(tmp_path / "run", seeds=(0, 1), clients=3)
    run.go_on(2)
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    epoch, known = 0, {}
    are_told = []
    for happens in (lambda: None, run.go_on, lambda: run.go_on(3), lambda: run.cut(2), lambda: run.go_on(4)):
        happens()
        events = shelf.poll()
        total = len(known.get("seed", []))
        head, columns = unframe(queries.lines(shelf, id, total, epoch))
        told = [event for event in events if "numbers" in event]
        are_told.append(len(told))
        for event in told:
            assert (event["epoch"], event["since"], event["lines"]) == (epoch, total, head["total"])
            new = {name: column.tolist() for name, column in columns.items() if np.isfinite(column).any()}
            assert event["numbers"].keys() == new.keys()
            for name, numbers in event["numbers"].items():
                kind = np.float32 if name.startswith(("sent.", "trained.")) else np.float64
                np.testing.assert_array_equal(np.array(numbers, kind), np.array(new[name], kind))
        assert head["since"] == (total if head["epoch"] == epoch else 0)
        epoch = head["epoch"]
        known = {name: np.concatenate([known.get(name, new)[: head["since"]], new]) for name, new in columns.items()}
        assert len(known["seed"]) == head["total"]
    assert are_told == [0, 1, 1, 0, 1], "nobody had asked, or all are others"
    _, fresh = unframe(queries.lines(shelf_of(tmp_path), id))
    assert known.keys() == fresh.keys()
    for name, column in fresh.items():
        np.testing.assert_array_equal(known[name], column)
    head, columns = unframe(queries.values(shelf, id, "sent", "test", 10, epoch))
    assert head["lines"] == [[0, 5], [1, 5]]
    _, whole = unframe(queries.values(shelf, id, "sent", "test", 10, epoch + 1))
    np.testing.assert_array_equal(columns["values"], whole["values"][10:])


def test_many_points_are_thinned_by_rounds_and_the_last_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(queries, "MOST_POINTS", 20)
    MadeRun(tmp_path / "run", seeds=(0, 1), clients=3, rounds=10).go_on(10)
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    head, columns = unframe(queries.values(shelf, id, "sent", "test"))
    assert head["every"] == 4
    assert sorted({r for _, r in head["lines"]}) == [0, 4, 8, 9]
    assert (head["total"], columns["values"].shape) == (20, (8, 2, 3))


# -- clients ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [None, 2])
@pytest.mark.parametrize("name", NAMES)
def test_regret_and_gain_are_what_numpy_computes(name, when, root, shelf, ids):
    answer = as_json(queries.clients(shelf, ids[name], 1, when, list(ids.values())))

    def points(which):
        """By hand, from the files alone."""
        if when is None:
            (one,) = [one for one in json.loads((root / which / "solutions.json").read_text()) if one["seed"] == 1]
            return np.array(one["objectives"]["test"]), np.array(one["preferences"])
        record = load(root / which)
        (line,) = [line for line in record.lines if (line.seed, line.round) == (1, when)]
        return line.sent["test"], record.solution(1).preferences

    mine, wishes = points(name)
    alone, _ = points("local")
    every = np.concatenate([points(which)[0] for which in NAMES])
    assert (answer["round"], answer["alone"], set(answer["against"])) == (when or 4, ids["local"], set(ids.values()))
    for i, row in enumerate(answer["rows"]):
        utility = sum(w * v for w, v in zip(wishes[i], mine[i], strict=True))
        best = max(sum(w * v for w, v in zip(wishes[i], point, strict=True)) for point in every)
        assert row["client"] == i
        assert row["preference"] == wishes[i].tolist()
        assert row["sent"] == mine[i].tolist()
        assert row["utility"] == pytest.approx(utility, abs=1e-9)
        assert row["regret"] == pytest.approx(best - utility, abs=1e-9)
        gain = None if name == "local" else pytest.approx(utility - wishes[i] @ alone[i], abs=1e-9)
        assert row["gain"] == gain
    if when is None:
        np.testing.assert_allclose([row["utility"] for row in answer["rows"]], load(root / name).own_utilities(1))


def test_what_clients_missed_and_sent_is_what_events_and_traffic_say(root, shelf, ids):
    rows = queries.clients(shelf, ids["cfl"], 0, None, [])["rows"]
    record = load(root / "cfl")
    traffic = sum(line.columns.traffic(line.row) for line in record.of_seed(0))
    missed = [sum((event.seed, event.client) == (0, i) for event in record.events) for i in range(6)]
    assert [row["missed"] for row in rows] == missed
    assert sum(missed) > 0
    assert [[row["bytes_down"], row["bytes_up"]] for row in rows] == traffic.tolist()
    earlier = queries.clients(shelf, ids["cfl"], 0, 2, [])["rows"]
    assert sum(row["missed"] for row in earlier) == sum(event.seed == 0 and event.round <= 2 for event in record.events)
    assert sum(row["bytes_up"] for row in earlier) == sum(line.bytes_up for line in record.of_seed(0)[:2])
    groups = {tuple(row["client"] for row in rows if row["cluster"] == one) for one in {row["cluster"] for row in rows}}
    assert groups == {tuple(sorted(group)) for group in record.clusters(0)[4]}
    assert not any(row["attacker"] for row in rows)


def test_a_gain_is_told_only_of_the_same_clients(tmp_path):
    for name, clients in (("fedavg", 4), ("local", 5)):
        MadeRun(tmp_path / name, name, clients=clients, rounds=2).finish()
    shelf = shelf_of(tmp_path)
    ids = by_name(shelf)
    answer = queries.clients(shelf, ids["fedavg"], 0, None, list(ids.values()))
    assert (answer["alone"], {row["gain"] for row in answer["rows"]}) == (ids["local"], {None})


def test_private_preferences_are_in_no_answer(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3, rounds=2, private=True)
    run.private = False  # Even if a folder had them.
    run.finish()
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    rows = queries.clients(shelf, id, 0, None, [id])
    assert rows["private"]
    assert {(row["preference"], row["utility"], row["regret"], row["gain"]) for row in rows["rows"]} == {(None,) * 4}
    head, _ = unframe(queries.film(shelf, id, 0))
    assert head["preferences"] is None
    _, columns = unframe(queries.solutions(shelf, id, "test"))
    assert list(columns) == ["values.0"]
    assert queries.runs(shelf)["runs"][0]["private"]


# -- film and grid ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedpref", "cfl"])
def test_a_film_is_what_the_lines_tell(name, root, shelf, ids):
    head, columns = unframe(queries.film(shelf, ids[name], 0))
    rows = [json.loads(text) for text in (root / name / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["seed"] == 0]
    assert head["rounds"] == [row["round"] for row in rows]
    for labels, row in zip(head["clusters"], rows, strict=True):
        groups = {tuple(c for c, label in zip(head["clients"], labels, strict=True) if label == one) for one in labels}
        assert groups == {tuple(sorted(group)) for group in row["clusters"]}
    assert head["order"] == sorted(head["clients"], key=lambda client: (head["preferences"][client], client))
    if name == "fedpref":
        expected = np.round(127 * np.array([row["similarity"] for row in rows]))
        np.testing.assert_array_equal(columns["similarity"], expected)
        assert columns["similarity"].dtype == np.int8
        assert not head["sampled"]


def test_a_grid_is_what_events_and_traffic_say(root, shelf, ids):
    head, columns = unframe(queries.grid(shelf, ids["cfl"], 1))
    record = load(root / "cfl")
    lost = {(event.round, event.client) for event in record.events if event.seed == 1}
    assert head["rounds"] == [1, 2, 3, 4]
    assert head["quorum"] == 1
    silent = np.argwhere(columns["state"] == 2)
    assert head["meaning"]["2"] == "no reply"
    assert {(head["rounds"][k], int(client)) for k, client in silent} == lost
    for k, line in enumerate(record.of_seed(1)[:4]):
        traffic = line.columns.traffic(line.row)
        np.testing.assert_array_equal(columns["down"][k], traffic[:, 0])
        np.testing.assert_array_equal(columns["up"][k], traffic[:, 1])
    found = queries.events(shelf, ids["cfl"])
    assert found["total"] == len(record.events) == len(found["events"])
    assert queries.events(shelf, ids["cfl"], found["total"] - 1)["events"] == found["events"][-1:]


def test_who_is_left_out_or_refused_is_seen(tmp_path):
    run = MadeRun(
        tmp_path / "run", clients=4, extra={"attack": {"kind": "sign-flip", "from_round": 1}, "attackers": [[3]]}
    )
    rows = run.next_rows()
    rows[0] |= {"left_out": [3], "shortened": [0]}
    run.append("".join(json.dumps(row) + "\n" for row in rows))
    event = {"seed": 0, "round": 1, "client": 1, "step": "train", "reason": "refused: its model is not finite"}
    run.append(json.dumps(event) + "\n", "events.jsonl")
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    head, columns = unframe(queries.grid(shelf, id, 0))
    assert [head["meaning"][str(state)] for state in columns["state"][0]] == [
        "shortened",
        "refused",
        "replied",
        "left out",
    ]
    assert head["attackers"] == [3]
    assert [row["attacker"] for row in queries.clients(shelf, id, 0, None, [])["rows"]] == [False] * 3 + [True]


# -- side by side ----------------------------------------------------------------------------------------------------


def test_tables_are_those_of_the_report_with_the_ids_of_runs(root, shelf, ids):
    answer = as_json(queries.compare(shelf, [ids[name] for name in NAMES]))
    records = [load(root / name) for name in NAMES]
    assert [row.pop("run") for row in answer["table"]["rows"]][:4] == [ids[name] for name in NAMES]
    assert answer["table"] == comparison(records).to_plain()
    for mine, theirs in zip(answer["across"], across_clients(records), strict=True):
        assert {row.pop("run") for row in mine["rows"]} == set(ids.values())
        assert mine == theirs.to_plain()
    assert answer["refused"] is None
    different = {one["key"]: one["values"] for one in answer["differences"]}
    assert different["faults.dropout"] == {ids[name]: 0.2 if name == "cfl" else 0.0 for name in NAMES}
    assert "clients" not in different
    one = queries.compare(shelf, [ids["cfl"]])
    assert (one["differences"], one["refused"]) == ([], None)


def test_a_run_has_one_name_whichever_others_are_chosen(tmp_path):
    for name in ("one", "other"):
        MadeRun(tmp_path / name, clients=3, rounds=2).finish()
    shelf = shelf_of(tmp_path)
    labels = {entry["id"]: entry["label"] for entry in queries.runs(shelf)["runs"]}
    assert len(set(labels.values())) == 2
    for chosen in ([*labels][:1], [*labels]):
        rows = queries.compare(shelf, chosen)["table"]["rows"]
        assert {row["run"]: row["label"] for row in rows if row["run"]} == {id: labels[id] for id in chosen}


def test_runs_that_cannot_stand_side_by_side_say_why(tmp_path):
    for name, goals in (("two", 2), ("three", 3)):
        MadeRun(tmp_path / name, clients=3, goals=goals, rounds=2).finish()
    shelf = shelf_of(tmp_path)
    answer = queries.compare(shelf, list(shelf.runs))
    assert "different objectives" in answer["refused"]
    assert answer["table"] is None
    assert [one["key"] for one in answer["differences"]] == []


# -- unusual runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "choices", [{"goals": 1}, {"clients": 1}, {"splits": ("train",)}, {"similar": False, "goals": 4}]
)
def test_one_objective_one_client_and_one_split_have_all_answers(choices, tmp_path):
    run = MadeRun(tmp_path / "run", **({"clients": 3, "rounds": 3} | choices))
    for end in (lambda: run.go_on(2), run.finish):
        end()
        shelf = shelf_of(tmp_path)
        (entry,) = as_json(queries.runs(shelf))["runs"]
        record, id = load(run.folder), entry["id"]
        is_one = choices.get("goals") == 1
        assert entry["headline"][0] == ("mean accuracy" if is_one else "hypervolume")
        last = record.points()[0][:, 0].mean() if is_one else record.indicators["hypervolume"][0]
        assert entry["headline"][1] == pytest.approx(last)
        as_json(queries.about(shelf, id))
        as_json(queries.compare(shelf, [id]))
        rows = as_json(queries.clients(shelf, id, 0, None, [id]))["rows"]
        assert all(row["regret"] >= 0 for row in rows)
        _, columns = unframe(queries.values(shelf, id, "sent", entry["held_out"]))
        np.testing.assert_array_equal(columns["values"][-1].T, record.lines[-1].sent[record.held_out])
        for answer in (queries.film, queries.grid):
            unframe(answer(shelf, id, 0))


def test_what_is_not_finite_is_not_known_and_nothing_breaks(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3, rounds=3)
    row = run.next_rows()[0]
    points = np.full((3, 3, 2), 0.5)
    points[1] = np.nan
    row["columns"]["sent"] = run.columns.put(points)
    run.append(json.dumps(row | {"hypervolume": None, "similarity": [[1, None, 0]] * 3}) + "\n")
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    as_json(queries.runs(shelf))
    rows = as_json(queries.clients(shelf, id, 0, None, [id]))["rows"]
    assert rows[1]["sent"] == [None, None]
    assert [row["regret"] is None for row in rows] == [False, True, False]
    _, columns = unframe(queries.lines(shelf, id))
    assert np.isnan(columns["hypervolume"]).all()
    assert columns["sent.worst.0"].tolist() == [0.5]
    _, columns = unframe(queries.film(shelf, id, 0))
    assert columns["similarity"][0][:, 1].tolist() == [-128] * 3


def test_a_front_of_the_servers_own_is_held_against_what_clients_have(tmp_path):
    fedpareto.run("convex", "mofld", clients=3, rounds=6, seeds=1, out=tmp_path / "run")
    shelf = shelf_of(tmp_path)
    (id,) = shelf.runs
    record = load(tmp_path / "run")
    answer = as_json(queries.clients(shelf, id, 0, None, [id]))
    wishes = record.preferences(0)
    assert len(answer["rows"]) == 3
    assert all(row["regret"] >= -1e-12 for row in answer["rows"])
    every = np.concatenate([record.solution(0).objectives["test"], record.of_seed(0)[-1].sent["test"]])
    best = (wishes @ -every.T).max(axis=1)
    np.testing.assert_allclose([row["utility"] + row["regret"] for row in answer["rows"]], best, atol=1e-9)
    as_json(queries.about(shelf, id))
    as_json(queries.compare(shelf, [id]))


def test_what_there_is_not_is_refused_in_one_line(shelf, ids):
    with pytest.raises(Unknown):
        queries.lines(shelf, "../etc")
    for wrong in (
        lambda: queries.values(shelf, ids["cfl"], "best", "test"),
        lambda: queries.values(shelf, ids["cfl"], "sent", "nowhere"),
        lambda: queries.film(shelf, ids["cfl"], 9),
        lambda: queries.grid(shelf, ids["cfl"], 9),
        lambda: queries.clients(shelf, ids["cfl"], 9, None, []),
    ):
        with pytest.raises(UserError):
            wrong()


def test_a_run_that_is_killed_and_resumed_under_the_page_ends_as_on_a_page_that_is_opened_then(tmp_path):
    from fedpareto.config.interrupts import Stopped
    from fedpareto.runs.runner import resume, start
    from fedpareto.spec.draft import Draft

    spec = Draft({"problem": "convex", "algorithm": "fedpref", "clients": 4, "rounds": 5, "seeds": [0, 1]}).finish()
    shelf, stops = Shelf([tmp_path]), iter([False, True])
    with pytest.raises(Stopped):
        start(spec, tmp_path / "run", on_round=lambda progress: shelf.poll(), stop=lambda: next(stops))
    # A killed process leaves more than its checkpoint knows of, and half a line.
    last = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1]
    with (tmp_path / "run" / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(last.replace('"round":1', '"round":2') + "\n" + last[:50])
    shelf.poll()
    (id,) = shelf.runs
    assert len(shelf.run(id).lines) == 5
    resume(tmp_path / "run", on_round=lambda progress: shelf.poll())
    shelf.poll()
    fresh = shelf_of(tmp_path)
    for answer in (queries.lines, lambda *asked: queries.values(*asked, "sent", "test")):
        (mine, mine_columns), (theirs, their_columns) = unframe(answer(shelf, id)), unframe(answer(fresh, id))
        assert mine | {"epoch": 0} == theirs
        assert mine["epoch"] > 0
        for name, column in their_columns.items():
            np.testing.assert_array_equal(mine_columns[name], column)
    assert queries.compare(shelf, [id]) == queries.compare(fresh, [id])
