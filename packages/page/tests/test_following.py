"""A run folder that is read as it grows ends as one that is read at once."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.record.chunked_array import Pieces
from fedpareto.record.entries import Packed
from fedpareto.record.following import Following, NoRoundsYet
from fedpareto.record.lines import Lines
from fedpareto.record.reading import load
from made_runs import MadeRun


def content(lines):
    """All that lines tell, in a form that can be compared."""
    return [
        (
            line.seed,
            line.round,
            line.hypervolume,
            line.seconds,
            np.nan_to_num(line.averages, nan=-1).tolist(),
            line.clusters,
            None if line.similarity is None else line.similarity.tolist(),
            {split: points.tolist() for split, points in line.sent.items()},
        )
        for line in lines
    ]


class Reader:
    """Somebody who asks for what is new by `since` and `epoch`, as the page does."""

    def __init__(self):
        self.epoch, self.known = 0, []

    def ask(self, following):
        since = len(self.known) if self.epoch == following.epoch else 0
        self.known = [*self.known[:since], *following.lines[since:]]
        self.epoch = following.epoch


def half(run: MadeRun) -> None:
    """A line in two pieces; what is between them is up to the reader."""
    text = "".join(json.dumps(row) + "\n" for row in run.next_rows())
    run.append(text[: len(text) // 2])
    run.rest = text[len(text) // 2 :]


def rows_before_values(run: MadeRun) -> None:
    """Rows that are there before their values, as on a file system that writes as it likes."""
    path = run.folder / "columns.bin"
    length = path.stat().st_size if path.exists() else 0
    run.go_on()
    whole = path.read_bytes()
    with path.open("rb+") as file:
        file.truncate(length + (len(whole) - length) // 2)
    run.values = whole


def again(run: MadeRun) -> None:
    """The last round written once more without a cut; the later row counts."""
    if run.done:
        run.done -= 1
        run.go_on()


def refuse(run: MadeRun) -> None:
    """A refusal."""
    event = {"seed": 0, "round": run.done, "client": 1, "step": "train", "reason": "refused: too long"}
    run.append(json.dumps(event) + "\n", "events.jsonl")


ACTIONS = {
    "one": lambda run: run.go_on(),
    "three": lambda run: run.go_on(3),
    "half": half,
    "values later": rows_before_values,
    "cut": lambda run: run.cut(run.done // 2),
    "cut and on": lambda run: (run.cut(run.done // 2), run.go_on(4)),
    "again": again,
    "refuse": refuse,
    "rewrite run.json": lambda run: run._dump("run.json", json.loads((run.folder / "run.json").read_text())),
    "status": lambda run: run.status("running"),
}


def mend(run: MadeRun) -> None:
    """Ends what an action left half done."""
    if getattr(run, "rest", ""):
        run.append(run.rest)
        run.rest = ""
    if getattr(run, "values", b""):
        (run.folder / "columns.bin").write_bytes(run.values)
        run.values = b""


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.lists(st.integers(0, 3000), max_size=2)), max_size=12))
def test_whatever_happens_to_a_folder_reading_it_in_pieces_ends_with_what_reading_it_at_once_gives(steps):
    folder = Path(tempfile.mkdtemp())
    try:
        run, reader = MadeRun(folder / "run", seeds=(0, 1), clients=4, rounds=30), Reader()
        following = Following(run.folder)
        for action, reads in steps:
            ACTIONS[action](run)
            for most in reads:
                following.read(most)
                reader.ask(following)
            mend(run)
        following.read()
        reader.ask(following)
        fresh = Following(run.folder)
        fresh.read()
        assert sorted(content(following.lines)) == sorted(content(fresh.lines))
        assert content(reader.known) == content(following.lines)
        assert following.events == fresh.events
        assert (following.left, following.problem) == (0, None)
        if fresh.lines:
            assert content(following.record().lines) == content(load(run.folder).lines)
            assert following.record().solutions[0].indicators == load(run.folder).solutions[0].indicators
    finally:
        shutil.rmtree(folder)


def test_half_a_line_waits_and_so_does_one_without_its_values(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3)
    run.go_on(2)
    following = Following(run.folder)
    assert following.read().lines == 2
    half(run)
    assert not following.read().lines
    mend(run)
    assert following.read().lines == 1
    rows_before_values(run)
    assert not following.read().lines
    assert len(load(run.folder).lines) == 3, "a run under way is what is whole of it"
    run.status("finished")
    following.read()
    with pytest.raises(DamagedFile, match=r"columns\.bin is damaged"):
        following.record()
    mend(run)
    assert following.read().lines == 1
    assert not following.read(), "nothing is new when nothing changed"


def test_a_run_that_is_cut_and_has_grown_beyond_what_was_read_is_read_anew(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3)
    run.go_on(4)
    following = Following(run.folder)
    following.read()
    run.cut(2)
    run.go_on(6)
    change = following.read()
    assert (change.again, change.lines, following.epoch) == (True, 8, 1)
    assert content(following.lines) == content(load(run.folder).lines)


def test_a_few_bytes_at_a_time_are_whole_lines_in_the_end(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3, rounds=6)
    run.finish()
    following, pieces = Following(run.folder), 0
    while following.read(100) or following.left:
        pieces += 1
        assert following.done + following.left == (run.folder / "metrics.jsonl").stat().st_size
    assert pieces >= 7
    assert content(following.record().lines) == content(load(run.folder).lines)
    assert following.record().finished


def test_a_damaged_line_is_named_and_mended_by_what_a_resumed_run_does(tmp_path):
    run = MadeRun(tmp_path / "run", clients=3)
    run.go_on(3)
    run.append('{"seed": 0, "round":\n')
    following = Following(run.folder)
    following.read()
    with pytest.raises(DamagedFile, match="line 4"):
        following.record()
    run.go_on()
    following.read()
    assert "line 4" in str(following.problem)
    run.done = 3
    run.cut(3)
    run.go_on(2)
    following.read()
    assert following.problem is None
    assert [line.round for line in following.record().lines] == [0, 1, 2, 3, 4]


def test_before_the_first_round_a_run_says_so_and_without_a_folder_too(tmp_path):
    run = MadeRun(tmp_path / "run")
    following = Following(run.folder)
    following.read()
    with pytest.raises(NoRoundsYet, match="no rounds yet"):
        following.record()
    run.go_on()
    following.read()
    assert following.record().clients == 10
    shutil.rmtree(run.folder)
    assert following.read()
    with pytest.raises(UserError, match="no such folder"):
        following.record()


def test_similarities_take_two_bytes_of_every_pair_and_lose_nothing(tmp_path):
    run = MadeRun(tmp_path / "run", clients=5)
    run.go_on(3)
    lines = load(run.folder).lines
    rows = [json.loads(text) for text in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert all(len(line.packed.content) == 2 * 15 for line in lines)
    assert [line.similarity.tolist() for line in lines] == [row["similarity"] for row in rows]


@pytest.mark.parametrize(
    "matrix", [[[1, 0.5], [0.5, 1]], [[1, 0.5], [-0.25, 1]], [[1 / 3, np.nan], [np.nan, 4e9]], [[7]]]
)
def test_any_matrix_is_unpacked_as_it_was_packed(matrix):
    matrix = np.array(matrix, dtype=np.float64)
    assert np.array_equal(Packed.of(matrix).matrix, matrix, equal_nan=True)


def test_rows_are_the_same_in_pieces_as_in_one():
    stream = np.random.default_rng(0)
    pieces, whole = Pieces(300, "<f4"), np.empty((0, 300), dtype=np.float32)
    for count in (1, 0, 5, 40, 3):
        more = stream.normal(size=(count, 300)).astype(np.float32)
        pieces.extend(more)
        whole = np.concatenate([whole, more])
        for since in range(len(whole) + 1):
            assert np.array_equal(pieces.since(since), whole[since:])
    pieces[7][:] = whole[7] = 1
    assert np.array_equal([pieces[place] for place in range(len(pieces))], whole)
    with pytest.raises(IndexError):
        pieces[len(whole)]


def test_a_line_that_replaces_one_is_all_that_is_left_of_it(tmp_path):
    first, second = (MadeRun(tmp_path / name, clients=clients) for name, clients in (("a", 4), ("b", 4)))
    first.go_on(2)
    second.similar = False
    second.go_on(2)
    lines = Lines(load(first.folder).lines[0].columns)
    for line in load(first.folder).lines:
        lines.append(line)
    lines.replace(lines.place_of(0, 1), load(second.folder).lines[1])
    assert [line.similarity is None for line in lines] == [False, True]
    assert [line.round for line in lines.ordered()] == [0, 1]
    assert lines.place_of(0, 2) is None
    assert lines.place_of(1, 0) is None
