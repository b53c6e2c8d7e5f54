"""`fedpareto data list`, `fetch` and `check`."""

from __future__ import annotations

import gzip
import json
import warnings

import pytest

from fedpareto.config.errors import UserError
from fedpareto.problems.data import catalogue

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from typer.testing import CliRunner

    from fedpareto.cli.data import app


def data(*arguments):
    """The output of `fedpareto data ARGUMENTS`."""
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def empty(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    return tmp_path


def test_the_list_says_what_where_how_large_and_under_which_terms(empty):
    printed = data("list")
    assert all(name in printed for name in catalogue())
    assert "48,842" not in printed
    for words in ("CC BY 4.0", "6.0 MB", "adult/adult.data", str(empty), " no "):
        assert words in printed


def test_without_a_command_there_is_help():
    assert "fedpareto data report people.csv" in data()


def test_check_passes_on_the_published_sets(published):
    for name in catalogue():
        published(name)
    printed = data("check")
    assert printed.count(" good ") == len(catalogue())
    assert "rows: 48,842" in printed
    assert "gender: sex=Male: 32,650" in printed


def test_check_names_what_is_wrong_and_what_is_missing(published, request):
    content = published("compas").contents()[0]
    empty = request.getfixturevalue("empty")
    with pytest.raises(UserError, match="no data set is in"):
        data("check")
    with pytest.raises(UserError, match="missing or not as published: adult"):
        data("check", "adult")
    (empty / "compas").mkdir()
    target = empty / "compas" / "compas-scores-two-years.csv.gz"
    target.write_bytes(gzip.compress(content))
    assert "1 data sets in" in data("check")
    listed = {one["name"]: one for one in json.loads(data("check", "--json"))["sets"]}
    assert listed["compas"]["verdict"] == "good"
    assert "rows: 6,172" in listed["compas"]["counts"]
    assert listed["adult"]["verdict"] == "missing"
    target.write_bytes(gzip.compress(content.replace(b"Caucasian", b"Caucasion", 1)))
    with pytest.raises(UserError, match="1 of the data sets are missing or not as published: compas"):
        data("check")


def test_fetch_takes_what_is_here_and_asks_for_a_name(published, request):
    with pytest.raises(UserError, match="name the data sets to fetch, or all of them with --all"):
        data("fetch")
    with pytest.raises(UserError, match="unknown data set 'adlt'; did you mean 'adult'"):
        data("fetch", "adlt")
    content = published("bank").contents()[0]
    empty = request.getfixturevalue("empty")
    (empty / "bank").mkdir()
    (empty / "bank" / "bank-full.csv").write_bytes(content)
    assert "bank-full.csv is here already" in data("fetch", "bank")
    (empty / "bank" / "bank-full.csv").write_bytes(content[1:])
    with pytest.raises(UserError, match="is damaged"):
        data("fetch", "bank")


def test_fetch_downloads(empty, monkeypatch):
    monkeypatch.setattr("fedpareto.problems.data._receive", lambda url, stream, progress: stream.write(b"not it"))
    with pytest.raises(UserError, match=r"bank-full\.csv cannot be downloaded"):
        data("fetch", "bank")


def test_fetch_gets_the_published_file_although_a_sample_serves(published, request, monkeypatch):
    sample = published("ag-news").contents()[0]
    folder = request.getfixturevalue("empty") / "ag_news"
    folder.mkdir()
    (folder / "train_sample_6k.csv").write_bytes(sample)
    asked = []

    def fetched(dataset, file, progress):
        asked.append(file.name)
        return folder / file.name

    monkeypatch.setattr("fedpareto.problems.data.fetch", fetched)
    data("fetch", "ag-news")
    assert asked == ["train.csv", "test.csv"]
