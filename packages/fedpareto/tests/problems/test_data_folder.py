"""The data folder against a real server on this machine: what a network can do wrong, it does here."""

from __future__ import annotations

import gzip
import hashlib
import io
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.problems import data
from fedpareto.problems.data import DataFile, DataSet, data_folder, fetch, find, verified

CONTENT = b"age,sex,income\n" + b"".join(b"%d,Male,0\n" % number for number in range(20_000))


class Server:
    """Serves `files`; a `broken` one breaks off half-way that many times; `ranges`: whether it can resume."""

    def __init__(self):
        self.files, self.broken, self.ranges, self.asked = {}, {}, True, []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Range")))
                content = outer.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                start = 0
                if outer.ranges and self.headers.get("Range"):
                    start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
                    if start >= len(content):
                        self.send_error(416)
                        return
                    self.send_response(206)
                else:
                    self.send_response(200)
                body = content[start:]
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if outer.broken.get(self.path, 0) > 0:
                    outer.broken[self.path] -= 1
                    body = body[: len(body) // 2]
                self.wfile.write(body)

            def log_message(self, *arguments):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path / "data"))
    running = Server()
    yield running
    running.close()


def people(server, *paths, content=CONTENT, name="people.csv"):
    """A data set of one file that lies at these paths of the server."""
    urls = tuple(f"{server.url}{path}" for path in paths)
    file = DataFile(name, len(content), hashlib.sha256(content).hexdigest(), urls)
    return DataSet("people", "people", "free", "people", (file,), {})


def fetched(dataset):
    return fetch(dataset, dataset.files[0])


def folder():
    return sorted(path.name for path in (data_folder() / "people").iterdir())


def test_an_absent_file_is_downloaded_verified_and_found_again(server, capsys):
    server.files["/people.csv"] = CONTENT
    dataset = people(server, "/people.csv")
    assert find(dataset, dataset.files[0]) is None
    assert dataset.contents() == [CONTENT]
    assert "downloading people.csv from 127.0.0.1" in capsys.readouterr().err
    assert dataset.contents() == [CONTENT]
    assert len(server.asked) == 1
    assert folder() == ["people.csv"]


def test_progress_is_told_in_bytes(server):
    server.files["/people.csv"] = CONTENT
    dataset = people(server, "/people.csv")
    told = []
    fetch(dataset, dataset.files[0], lambda have, total: told.append((have, total)))
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)


def test_a_connection_that_breaks_is_taken_up_where_it_broke(server):
    server.files["/people.csv"] = CONTENT
    server.broken["/people.csv"] = 2
    assert fetched(people(server, "/people.csv")).read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.asked[1] == ("/people.csv", f"bytes={half}-")


def test_a_download_that_stopped_goes_on_at_the_next_call(server):
    server.files["/people.csv"] = CONTENT
    server.broken["/people.csv"] = data.ATTEMPTS
    with pytest.raises(UserError, match=r"the connection ended after .* will be continued"):
        fetched(people(server, "/people.csv"))
    (part,) = folder()
    assert part.endswith(".part")
    have = (data_folder() / "people" / part).stat().st_size
    assert 0 < have < len(CONTENT)
    assert fetched(people(server, "/people.csv")).read_bytes() == CONTENT
    assert server.asked[-1] == ("/people.csv", f"bytes={have}-")
    assert folder() == ["people.csv"]


def test_a_server_that_cannot_resume_sends_all_again(server):
    server.files["/people.csv"] = CONTENT
    server.broken["/people.csv"] = 1
    server.ranges = False
    assert fetched(people(server, "/people.csv")).read_bytes() == CONTENT


def test_a_part_that_was_complete_already_is_only_verified(server):
    server.files["/people.csv"] = CONTENT
    server.broken["/people.csv"] = data.ATTEMPTS
    dataset = people(server, "/people.csv")
    with pytest.raises(UserError):
        fetched(dataset)
    (data_folder() / "people" / folder()[0]).write_bytes(CONTENT)
    assert fetched(dataset).read_bytes() == CONTENT


def test_wrong_content_is_refused_and_leaves_nothing_behind(server):
    server.files["/people.csv"] = CONTENT[:-1] + b"?"
    with pytest.raises(UserError, match=r"not the published file \(SHA-256") as refused:
        fetched(people(server, "/people.csv"))
    assert "\n" not in str(refused.value)
    assert folder() == []


def test_a_missing_page_names_the_server_and_what_to_do(server):
    with pytest.raises(
        UserError, match=r"people\.csv cannot be downloaded \(http.*404 Not Found.*put it into .*people"
    ):
        fetched(people(server, "/people.csv"))
    assert len(server.asked) == 1
    assert folder() == []


def test_no_server_at_all_is_one_line(server):
    dataset = people(server, "/people.csv")
    server.http.server_close()
    nowhere = replace(dataset.files[0], urls=("http://127.0.0.1:9/people.csv",))
    with pytest.raises(UserError, match=r"people\.csv cannot be downloaded .*refused"):
        fetch(dataset, nowhere)


def test_the_next_place_is_tried(server):
    server.files["/mirror/people.csv"] = CONTENT
    assert fetched(people(server, "/people.csv", "/mirror/people.csv")).read_bytes() == CONTENT


def test_a_compressed_file_stays_compressed(server):
    server.files["/people.csv.gz"] = gzip.compress(CONTENT)
    dataset = people(server, "/people.csv.gz")
    assert fetched(dataset).name == "people.csv.gz"
    assert dataset.contents() == [CONTENT]


def test_a_member_of_an_archive_in_an_archive_is_taken_out(server):
    def zipped(name, content):
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            archive.writestr(name, content)
        return target.getvalue()

    server.files["/all.zip"] = zipped("inner.zip", zipped("people.csv", CONTENT))
    assert fetched(people(server, "/all.zip#inner.zip#people.csv")).read_bytes() == CONTENT
    assert folder() == ["people.csv"]
    with pytest.raises(UserError, match="cannot be unpacked"):
        fetched(people(server, "/all.zip#other.csv", name="other.csv"))


def test_two_at_once_download_once(server):
    server.files["/people.csv"] = CONTENT
    dataset = people(server, "/people.csv")
    both = [threading.Thread(target=fetched, args=(dataset,)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert len(server.asked) == 1
    assert dataset.contents() == [CONTENT]


def test_a_folder_that_cannot_be_written_to_is_named(server, tmp_path):
    (tmp_path / "data").write_text("a file, not a folder")
    with pytest.raises(UserError, match="cannot be written to"):
        fetched(people(server, "/people.csv"))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_file_is_refused_with_what_to_do(server, suffix):
    dataset = people(server, "/people.csv")
    path = data_folder() / "people" / f"people.csv{suffix}"
    path.parent.mkdir(parents=True)
    pack = gzip.compress if suffix else bytes
    for wrong, what in (
        (pack(CONTENT[:-1]), "bytes instead of"),
        (pack(CONTENT[:-1] + b"?"), "SHA-256"),
        *(
            [(gzip.compress(CONTENT)[:-20], "cannot be decompressed"), (CONTENT, "cannot be decompressed")]
            if suffix
            else []
        ),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DamagedFile, match=f"is damaged: .*{what}.*delete it"):
            dataset.contents()
    path.write_bytes(pack(CONTENT))
    assert verified(dataset.files[0], path) == CONTENT


def test_the_data_folder_is_the_users_choice_or_the_cache(monkeypatch):
    monkeypatch.setenv("FEDPARETO_DATA", "~/people")
    assert data_folder() == Path.home() / "people"
    monkeypatch.delenv("FEDPARETO_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/somewhere")
    monkeypatch.setattr("sys.platform", "linux")
    assert data_folder() == Path("/var/somewhere/fedpareto")
    monkeypatch.setattr("sys.platform", "darwin")
    assert data_folder() == Path.home() / "Library" / "Caches" / "fedpareto"


@pytest.mark.parametrize("name", data.catalogue())
def test_the_real_files_come_through_a_server_unharmed(name, published, monkeypatch, tmp_path):
    real = published(name)
    contents, is_published = real.contents(), real.is_published()
    running = Server()
    try:
        running.files = {f"/{file.name}": content for file, content in zip(real.files, contents, strict=True)}
        monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
        local = replace(real, files=tuple(replace(file, urls=(f"{running.url}/{file.name}",)) for file in real.files))
        assert local.paths() == [None] * len(local.files)
        if not is_published:  # What may lie in a file's place is taken when found, never when downloaded.
            with pytest.raises(UserError, match="the download is not the published file"):
                local.contents()
            return
        assert local.contents() == contents
        assert all(local.paths())
    finally:
        running.close()
