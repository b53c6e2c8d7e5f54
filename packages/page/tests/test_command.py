"""`fedpareto page` on the command line: what it says, and what it refuses in one line."""

from __future__ import annotations

import signal
import socket
import sys

import pytest

from processes import run


def refused(*arguments, cwd=None, code="from fedpareto.cli import main; main()"):
    """What the command prints when it ends at once."""
    done = run([sys.executable, "-c", code, "page", *map(str, arguments), "--no-browser"], cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("a", encoding="utf-8")
    assert "there is no folder nowhere" in refused("nowhere", cwd=tmp_path)
    assert "file is not a folder" in refused("file", cwd=tmp_path)
    assert "there is no file rows.csv" in refused(tmp_path, "--rows", "rows.csv", cwd=tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"cannot listen at 127.0.0.1, port {port}: Address already in use" in refused(tmp_path, "--port", port)


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_extra_is_named(package, tmp_path):
    code = f"import sys; sys.modules['{package}'] = None; from fedpareto.cli import main; main()"
    assert 'pip install "fedpareto[page]"' in refused(tmp_path, code=code)


def test_on_an_empty_machine_there_is_a_page_and_ctrl_c_ends_it(page_server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = page_server(["runs"])
    assert not (tmp_path / "runs").exists()
    assert server.end(signal.SIGINT) == 0
    assert "the page has ended" in server.log.read_text(encoding="utf-8")


def test_an_address_that_others_reach_is_warned_of(page_server, tmp_path):
    server = page_server([tmp_path], "--host", "0.0.0.0")
    assert "which is not encrypted" in server.log.read_text(encoding="utf-8").splitlines()[0]
