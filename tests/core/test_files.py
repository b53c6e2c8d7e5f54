from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import fedpareto
from fedpareto.config.errors import UserError
from fedpareto.config.files import cut, for_writing, must_hold_no_links, write_atomically
from fedpareto.runs import runner
from fedpareto.spec.draft import Draft


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match="cannot be written: disk full"):
        write_atomically(path, "new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_file_is_written_through_a_link(tmp_path):
    other, link = tmp_path / "other", tmp_path / "link"
    other.write_text("precious")
    link.symlink_to(other)
    for write in (lambda: for_writing(link, "ab"), lambda: cut(link, 0)):
        with pytest.raises(OSError, match="it is a link to another file"):
            write()
    (tmp_path / ".page.html.part").symlink_to(other)
    write_atomically(tmp_path / "page.html", "new")
    write_atomically(link, "new")
    assert other.read_text() == "precious"
    assert (tmp_path / "page.html").read_text() == link.read_text() == "new"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "link").symlink_to(other)
    with pytest.raises(UserError, match="sub/link is a link, through which"):
        must_hold_no_links(tmp_path)


@pytest.mark.parametrize("name", ["events.jsonl", "metrics.jsonl", "columns.bin", "output.log", ".lock", ".x.part"])
def test_a_run_is_not_resumed_through_a_link(name, tmp_path):
    spec = Draft({"problem": "convex", "algorithm": "fedavg", "clients": 2, "rounds": 1}).finish()
    folder, other = tmp_path / "run", tmp_path / "other"
    folder.mkdir()
    (folder / "spec.yaml").write_text(spec.to_yaml())
    other.write_text("precious")
    (folder / name).symlink_to(other)
    with pytest.raises(UserError, match="is a link, through which other files would be written"):
        runner.resume(folder)
    assert other.read_text() == "precious"


WRITERS = {
    "files.py": "for_writing itself",
    "data.py": "the folder of data sets, which is the user's own",
    "stores.py": "the folder of a link's own transactions",
    "nnef.py": "in memory",
    "rehearsal.py": "in memory",
    "worker.py": "a pipe",
    "gym_worker.py": "a pipe",
}
"""Files that open others to write by themselves."""


def test_whoever_appends_or_cuts_does_it_where_links_are_refused():
    root = Path(fedpareto.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "open",
                "fdopen",
            ):
                words = [*node.args, *(one.value for one in node.keywords if one.arg == "mode")]
                modes = [one.value for one in words if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if any(set(mode) <= set("rwaxbt+") and set(mode) & set("wax+") for mode in modes):
                    found.add(path.name)
            if isinstance(node, ast.Attribute) and node.attr == "truncate" and getattr(node.value, "id", "") == "os":
                found.add(f"{path.name}: os.truncate")
    assert found <= WRITERS.keys()
