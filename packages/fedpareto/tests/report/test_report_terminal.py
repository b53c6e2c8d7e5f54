from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from fedpareto.record.reading import load
from fedpareto.report.terminal import clients, clients_plain, front_in_terminal, show, sparkline


def shown(record, width: int = 100) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=False).print(show(record))
    return stream.getvalue()


def test_a_run_at_a_glance(write_run):
    events = [{"seed": 0, "round": i, "client": 4, "reason": f"refused: reason {i}"} for i in range(8)]
    text = shown(load(write_run("a", "fedpref", events=events)))
    for words in (
        "fedpref on synthetic",
        "finished",
        "100%, round 12 of 12, 3 of 3 seeds",
        "10 clients, 12 rounds, 3 seeds",
        "accuracy ↑, equal opportunity gap ↓",
        "hypervolume ↑",
        "torch 2.6.0",
        "last 5 of 8 missing replies",
        "refused: reason 7",
        "▁",
        "█",
    ):
        assert words in text, words
    assert "reason 2" not in text


def test_an_unfinished_run_shows_how_far_it_is(write_run):
    folder = write_run("a", rounds=10, reached=5, status="failed")
    (folder / "status.json").write_text(
        json.dumps({"status": "failed", "round": 5, "seconds": 2.0, "message": "quorum [bold]lost"})
    )
    text = shown(load(folder))
    assert "failed, 2.0 s: quorum [bold]lost" in text
    assert "50%, round 5 of 10" in text
    assert "████████████░░░░░░░░░░░░" in text


@pytest.mark.parametrize("width", [40, 200])
def test_a_narrow_terminal_is_no_error(write_run, width):
    record = load(write_run("a", m=4, seeds=(0,), clients=1))
    assert all(len(line) <= width for line in shown(record, width).splitlines())


def test_a_sparkline_rises_with_its_values():
    assert sparkline(np.arange(8.0)) == "▁▂▃▄▅▆▇█"
    assert sparkline(np.full(5, 0.7)) == "▅▅▅▅▅"
    assert sparkline(np.array([0.0, np.nan, 1.0])) == "▁ █"
    assert sparkline(np.array([np.nan, np.nan])) == "  "
    assert len(sparkline(np.arange(1000.0), 30)) == 30


def test_the_plot_has_the_size_asked_for_and_each_end_of_the_front_at_its_place(write_run):
    record = load(write_run("a", "fedpref"))
    best = record.front()
    lines = front_in_terminal(record, 60, 18).splitlines()
    assert len(lines) == 18
    assert max(len(line) for line in lines) <= 60
    assert lines[0] == "equal opportunity gap (lower is better)"
    assert lines[-1] == "o fedpref"
    # The best accuracy goes with the widest gap: upper right. The least gap is at the lower left.
    assert lines[1].endswith("o")
    assert lines[1].split()[0] == f"{best[-1, 1]:.4g}"
    plane = [line.partition("|")[2] for line in lines[1:14]]
    assert plane[-1].startswith("o")
    assert sum(line.count("o") for line in plane) <= len(best)


def test_several_runs_share_a_plot_and_a_legend(write_run):
    a, b = load(write_run("a", "fedpref", known=True)), load(write_run("b", "fedavg", known=True))
    text = front_in_terminal([a, b], 72, 22)
    assert "o fedpref   x fedavg   . known front   & several runs" in text
    plane = "\n".join(line.partition("|")[2] for line in text.splitlines())
    assert all(symbol in plane for symbol in "ox.")
    same = front_in_terminal([a, dataclasses.replace(a, algorithm="copy", known_front=None)], 72, 22)
    plane = "".join(line.partition("|")[2] for line in same.splitlines())
    assert set(plane) - {" ", "."} == {"&"}


def test_more_than_two_objectives_show_the_first_two(write_run):
    text = front_in_terminal(load(write_run("a", m=4)), 80, 20)
    assert "[first two of 4 objectives]" in text
    assert "accuracy (higher is better)" in text


def test_one_client_is_one_point(write_run):
    text = front_in_terminal(load(write_run("a", clients=1, seeds=(0,))), 50, 14)
    assert sum(line.partition("|")[2].count("o") for line in text.splitlines()) == 1


def test_long_names_do_not_break_the_width(write_run):
    records = [load(write_run(f"r{i}", "x" * 70 + str(i))) for i in range(3)]
    text = front_in_terminal(records, 50, 14)
    assert max(len(line) for line in text.splitlines()) <= 50


def test_a_run_that_diverged_everywhere_has_no_plot(write_run):
    record = load(write_run("a", seeds=(0,)))
    lost = dataclasses.replace(record.solutions[0], objectives={"test": np.full((10, 2), np.nan)})
    assert "no solution is finite" in front_in_terminal(dataclasses.replace(record, solutions=(lost,)))


def test_too_small_a_plot_is_refused(write_run):
    with pytest.raises(ValueError, match="at least 40 and 12"):
        front_in_terminal(load(write_run("a")), 20, 5)


def named(folder) -> list[str]:
    """What is said of attack and defence."""
    lines = [" ".join(line.strip("│ ").split()) for line in shown(load(folder)).splitlines()]
    return [line for line in lines if line.startswith(("attack ", "defence "))]


@pytest.mark.parametrize(
    ("attackers", "who"),
    [
        ([[3, 7]] * 3, "by clients 3, 7, from"),
        ([[3]] * 3, "by client 3, from"),
        ([[3, 7], [1, 2], [0, 9]], "by 2 clients of each seed's own, from"),
        ([list(range(11))] * 3, "by 11 clients, from"),
    ],
)
def test_an_attack_and_a_defence_are_named(write_run, attackers, who):
    attack = {"kind": "sign-flip", "strength": 3.0, "from_round": 5}
    extra = {"attackers": attackers, "attack": attack, "defence": "multi-krum"}
    assert named(write_run("a", extra=extra)) == [
        f"attack sign-flip, strength 3, {who} round 5 on",
        "defence multi-krum",
    ]
    assert named(write_run("b")) == []


def test_clients_are_listed_with_name_preference_values_and_what_these_are_worth(write_run):
    names = [f"branch {letter}" for letter in "abcd"]
    record = load(write_run("a", clients=4, seeds=(3,), splits=("train", "own-test", "test"), extra={"names": names}))
    of_clients = clients_plain(record, 3)
    assert [one["name"] for one in of_clients] == names
    solution = record.solutions[0]
    for i, one in enumerate(of_clients):
        w, x = solution.preferences[i], solution.objectives["test"][i]
        assert one["preference"] == w.tolist()
        assert [one["accuracy"], one["equal opportunity gap"]] == x.tolist()
        assert one["accuracy on own rows"] == solution.objectives["own-test"][i, 0]
        assert one["own_utility"] == pytest.approx(w[0] * x[0] - w[1] * x[1])
    stream = io.StringIO()
    Console(file=stream, width=140, force_terminal=False).print(clients(record))
    assert "clients of seed 3, on the test rows of all clients" in stream.getvalue()
    assert all(name in stream.getvalue() for name in names)


def test_one_seed_is_one_seed(write_run):
    text = shown(load(write_run("a", clients=1, seeds=(0,))))
    assert "1 client, 12 rounds, 1 seed " in text
    assert "1 of 1 seed " in text
