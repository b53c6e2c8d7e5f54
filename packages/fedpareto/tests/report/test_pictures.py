"""The figures of a comparison as files."""

from __future__ import annotations

import pytest

from fedpareto.record.reading import load
from fedpareto.report.pictures import file_names, main_picture, rendered


@pytest.mark.takes_long
def test_every_figure_is_a_png_and_a_pdf(write_run):
    records = [
        load(write_run("a", "fedpref", sizes=(2, 2), clustered=True, rounds=3)),
        load(write_run("b", sizes=(2, 2), rounds=3)),
    ]
    files = rendered(records, False, "round")
    stems = ("fronts", "hypervolume", "clients-curves", "clusters-fedpref", "similarity-fedpref")
    assert files.keys() == {f"{stem}.{ending}" for stem in stems for ending in ("png", "pdf")}
    assert all(content.startswith(b"%PDF" if name.endswith("pdf") else b"\x89PNG") for name, content in files.items())
    assert main_picture(records) == "fronts.png"


@pytest.mark.takes_long
def test_one_objective_has_clients_instead_of_a_front(write_run):
    records = [load(write_run("a", "fedpref", m=1, measured=True, rounds=2)), load(write_run("b", m=1, rounds=2))]
    files = rendered(records, True, "round")
    assert {name.partition(".")[0] for name in files} == {"clients", "clients-curves", "share-improved"}
    assert main_picture(records) == "clients.png"


def test_file_names_differ_even_where_only_strange_letters_do(write_run):
    records = [load(write_run(f"r{i}", name, rounds=1)) for i, name in enumerate(["a/b", "a:b", "A b", "..", "é"])]
    assert file_names(records) == ["a-b", "a-b-2", "A-b-3", "run", "run-2"]
