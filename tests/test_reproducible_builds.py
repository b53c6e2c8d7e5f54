"""Two builds of the same sources give the same bytes, whoever makes them, where and when."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = runpy.run_path(str(ROOT / "tools/build_dist.py"))
ANOTHER_DAY = """
import datetime
import time
true, later = time.time, 400 * 86400
time.time = lambda: true() + later
time.time_ns = lambda: int(time.time() * 1e9)
time.gmtime, time.localtime, time.ctime = (
    lambda second=None, turn=turn: turn(time.time() if second is None else second)
    for turn in (time.gmtime, time.localtime, time.ctime)
)
time.strftime, time.asctime = (
    lambda *given, turn=turn, least=least: turn(*given, *[time.localtime()] * (len(given) == least))
    for turn, least in ((time.strftime, 1), (time.asctime, 0))
)
class Later(datetime.datetime):
    now = classmethod(lambda cls, tz=None: cls.fromtimestamp(time.time(), tz))
    today = classmethod(lambda cls: cls.now())
    utcnow = classmethod(lambda cls: cls.now(datetime.timezone.utc).replace(tzinfo=None))
datetime.datetime = Later
open(__file__ + ".loaded", "w").close()
"""
"""A clock that is 400 days ahead, for every Python process that finds this as `sitecustomize`."""


def built(root, out, umask=0o022, **environment):
    """The SHA-256 of each archive by name."""
    subprocess.run(
        [sys.executable, BUILD["ROOT"] / "tools/build_dist.py", "--root", root, "--out", out],
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        umask=umask,
        capture_output=True,
        check=True,
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The folder with what this checkout gives, and the hashes."""
    out = tmp_path_factory.mktemp("here")
    return out, built(ROOT, out, SOURCE_DATE_EPOCH=str(BUILD["epoch"]()))


@pytest.mark.takes_long
def test_another_folder_day_user_and_language_give_the_same_hashes(here, tmp_path):
    """Also other modes and times of the files, and no git."""
    elsewhere = tmp_path / "ein anderer Ordner"
    for name in reversed(BUILD["sources"]()):
        place = elsewhere / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, place)
        place.chmod(0o600)
        os.utime(place, (0, 86400 * len(name)))
    (tmp_path / "sitecustomize.py").write_text(ANOTHER_DAY, encoding="utf-8")
    hashes = built(
        elsewhere,
        tmp_path / "out",
        umask=0o077,
        SOURCE_DATE_EPOCH=str(BUILD["epoch"]()),
        PYTHONPATH=str(tmp_path),
        PYTHONHASHSEED="7",
        TZ="Pacific/Kiritimati",
        LC_ALL="C",
        HOME=str(tmp_path),
        USER="somebody",
    )
    assert (tmp_path / "sitecustomize.py.loaded").exists(), "the clock was another one"
    assert len(hashes) == 2 * len(BUILD["packages"]()) == 16
    assert hashes == here[1]


@pytest.mark.takes_long
def test_the_archives_hold_the_time_of_the_commit_nobody_and_no_path_of_the_builder(here):
    out, _ = here
    second = BUILD["epoch"]()
    content = []
    for sdist in out.glob("*.tar.gz"):
        with tarfile.open(sdist) as archive:
            members = archive.getmembers()
            content += [archive.extractfile(member).read() for member in members if member.isfile()]
        assert [member.name for member in members] == sorted(member.name for member in members)
        assert {(member.mtime, member.uid, member.gid, member.uname, member.gname) for member in members} == {
            (second, 0, 0, "", "")
        }
        assert {member.mode for member in members} == {0o644, 0o755}
    for wheel in out.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            entries = archive.infolist()
            content += [archive.read(entry) for entry in entries]
        assert {entry.date_time for entry in entries} == {time.gmtime(second - second % 2)[:6]}
        assert {entry.external_attr >> 16 & 0o777 for entry in entries} <= {0o644, 0o664}
    assert not [text for text in content if str(ROOT).encode() in text]


@pytest.mark.takes_long
def test_an_archive_holds_its_package_with_readme_and_licence_and_nothing_else(here):
    """No tests, and nothing of another package."""
    out, _ = here
    for package in BUILD["packages"]():
        folder = ROOT / package
        tracked = {name.removeprefix(f"{package}/") for name in BUILD["sources"]() if name.startswith(f"{package}/")}
        (source,) = {name.split("/")[1] for name in tracked if name.startswith("src/")}
        (sdist,), (wheel,) = out.glob(f"{source}-*.tar.gz"), out.glob(f"{source}-*.whl")
        with tarfile.open(sdist) as archive:
            names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
            licence = archive.extractfile(f"{sdist.name.removesuffix('.tar.gz')}/LICENSE").read()
        assert licence == (ROOT / "LICENSE").read_bytes() == (folder / "LICENSE").read_bytes()
        made = {name for name in names - tracked if name not in ("PKG-INFO", "setup.cfg") and ".egg-info/" not in name}
        assert (tracked - names, made) == (set(), set())
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
        modules = {name for name in names if ".dist-info/" not in name}
        assert modules == {name.removeprefix("src/") for name in tracked if name.startswith("src/")}
