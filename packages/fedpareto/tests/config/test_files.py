from __future__ import annotations

import os

import pytest

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
