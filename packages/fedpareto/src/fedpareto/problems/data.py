"""The data folder: where the files of published data sets are, how they are downloaded and verified.

A data set has its own sub-folder of the data folder, with its files plain or compressed (`adult/adult.data` or
`adult/adult.data.gz`). Missing files are downloaded from their public source; a file that differs from the published
content, by its SHA-256, is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import os
import re
import sys
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, Concatenate, ParamSpec, TypeVar
from urllib.parse import urldefrag, urlsplit

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, UnknownName, UserError
from fedpareto.config.files import ARCHIVE_DAMAGE, Lock, replace
from fedpareto.contract import consent

CATALOGUES = (
    "fedpareto.problems.fairness.datasets",
    "fedpareto.problems.multitask.datasets",
    "fedpareto.problems.images_text.datasets",
)
"""The modules whose CATALOGUE lists data sets by name."""
ATTEMPTS = 3
"""Retries of a download whose connection breaks; each continues where the last one stopped."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
MOST_KEPT = 8
"""Results of one function of data sets that are kept; the oldest is dropped first."""
MD5_DIGITS = 32
GITHUB = "https://raw.githubusercontent.com"
REMEDY = "delete it, and it is downloaded again when it is needed"

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D", bound="DataSet")
Progress = Callable[[int, int], None]
"""Called with the bytes received so far and in total (0: unknown)."""


@dataclass(frozen=True)
class DataFile:
    """One published file."""

    name: str
    size: int
    """Bytes, uncompressed."""
    sha256: str
    """Checksum of the uncompressed content; an MD5 where its publisher gives no other."""
    urls: tuple[str, ...]
    """Sources, tried in order. `….zip#member` is a member of an archive, `….gz` is compressed."""
    is_open: bool = False
    """True if other content of the same format may replace it, such as a subset; its reader then checks it."""
    instead: DataFile | None = None
    """Another file that can be used if this one is missing, such as a sample of its rows."""

    @classmethod
    def at(cls, size: int, sha256: str, *urls: str) -> DataFile:
        """A file that has the name by which it is published."""
        return cls(re.split("[/#]", urls[0])[-1], size, sha256, urls)


@dataclass(frozen=True)
class DataSet:
    """A published data set."""

    name: str
    about: str
    """Content and publisher, in one line."""
    terms: str
    """Licence."""
    folder: str
    """Sub-folder of the data folder."""
    files: tuple[DataFile, ...]
    published: Mapping[str, int]
    """Counts of rows, label and groups in the published content."""

    def census(self) -> Mapping[str, int]:
        """Counts as in `published`, of the local files."""
        return {}

    def paths(self) -> list[Path | None]:
        """Paths of the files, in the order of `files`; None for a missing one."""
        return [find(self, file) for file in self.files]

    def path(self, file: DataFile) -> Path:
        consent.need_data(self.name)
        return find(self, file) or fetch(self, file)

    def contents(self) -> list[bytes]:
        """Every file's content, downloaded if missing, refused if damaged."""
        return [verified(file, self.path(file)) for file in self.files]

    def stamps(self) -> tuple[tuple[str, int], ...]:
        """Paths of the files, downloaded if missing, and their modification times, as a cache key."""
        paths = [self.path(file) for file in self.files]
        return tuple((str(path), path.stat().st_mtime_ns) for path in paths)

    def is_published(self) -> bool:
        """True if the files are exactly the published ones, not replacements."""
        paths = self.paths()
        return all(
            path is not None and is_named(path, file) and digest(read(file, path), file) == file.sha256
            for file, path in zip(self.files, paths, strict=True)
        )


def kept_until_changed(method: Callable[Concatenate[D, P], T]) -> Callable[Concatenate[D, P], T]:
    """A function of a data set whose last few results are kept until one of the set's files changes."""
    results: dict[Hashable, Any] = {}

    @wraps(method)
    def call(dataset: D, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = dataset.name, dataset.stamps(), *args, *kwargs.items()
        if key not in results:
            results[key] = method(dataset, *args, **kwargs)
            for oldest in list(results)[:-MOST_KEPT]:
                results.pop(oldest, None)
        found: T = results[key]
        return found

    return call


def catalogue() -> dict[str, DataSet]:
    found: dict[str, DataSet] = {}
    for module in CATALOGUES:
        found |= importlib.import_module(module).CATALOGUE
    return found


def data_set(name: str) -> DataSet:
    known = catalogue()
    if name not in known:
        raise UnknownName("data set", name, known)
    return known[name]


def data_folder() -> Path:
    """`FEDPARETO_DATA`, or `fedpareto` in the user's cache folder."""
    chosen = os.environ.get("FEDPARETO_DATA")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        caches = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "fedpareto"


def find(dataset: DataSet, file: DataFile) -> Path | None:
    """The path of a file, plain or compressed, or else of its replacement; None if all are missing."""
    plain = data_folder() / dataset.folder / file.name
    compressed = plain.with_name(f"{file.name}.gz")
    found = next((path for path in (plain, compressed) if path.is_file()), None)
    return found or (find(dataset, file.instead) if file.instead else None)


def is_named(path: Path, file: DataFile) -> bool:
    return path.name in (file.name, f"{file.name}.gz")


def digest(content: bytes, file: DataFile) -> str:
    """The checksum of `content`, of the kind that is known for `file`."""
    is_md5 = len(file.sha256) == MD5_DIGITS
    return (hashlib.md5(content, usedforsecurity=False) if is_md5 else hashlib.sha256(content)).hexdigest()


def read(file: DataFile, path: Path) -> bytes:
    """The uncompressed content of the file at `path`."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz" and not file.name.endswith(".gz"):
            return _plain(content, str(path))
        return content
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise DamagedFile(f"{path} is damaged: it cannot be decompressed; {REMEDY}") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror or problem}") from None


def verified(file: DataFile, path: Path) -> bytes:
    """The uncompressed content of the file at `path`, if it is the published one, or may differ."""
    if file.instead is not None and not is_named(path, file):
        return verified(file.instead, path)
    content = read(file, path)
    found = digest(content, file)
    if found != file.sha256 and not file.is_open:
        what = f"{len(content):,} bytes instead of {file.size:,}" if len(content) != file.size else f"SHA-256 {found}"
        raise DamagedFile(f"{path} is damaged: {what}, not the published {file.name}; {REMEDY}")
    return content


def fetch(dataset: DataSet, file: DataFile, progress: Progress | None = None) -> Path:
    """Downloads a file into the data folder and returns its path; a partial download is continued."""
    folder = data_folder() / dataset.folder
    reasons = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for url in file.urls:
            try:
                if progress is not None:
                    return _fetch(file, url, folder, progress)
                with _shown(file, url) as bar:
                    return _fetch(file, url, folder, bar)
            except _Unavailable as problem:
                reasons.append(f"{url}: {problem}")
    except OSError as problem:
        raise UserError(f"{folder} cannot be written to: {problem.strerror or problem}") from None
    raise UserError(
        f"{file.name} cannot be downloaded ({'; '.join(reasons)}); put it into {folder} yourself, plain or as .gz, "
        "or set FEDPARETO_DATA to a folder that holds it"
    )


class _Unavailable(Exception):
    """Reason why a file could not be downloaded from one source."""


def _fetch(file: DataFile, url: str, folder: Path, progress: Progress) -> Path:
    """The file from one source: downloaded beside its target, verified, and then moved there in one step."""
    address, member = urldefrag(url)
    is_compressed = not member and urlsplit(address).path.endswith(".gz") and not file.name.endswith(".gz")
    target = folder / (f"{file.name}.gz" if is_compressed else file.name)
    part = folder / f"{file.name}.{zlib.crc32(url.encode()):08x}.part"
    with Lock(folder.with_name(f".{folder.name}.lock")) as lock:
        lock.take(patiently=True)
        if target.is_file():  # Another process was faster.
            return target
        try:
            with part.open("a+b") as stream:
                _download(address, stream, progress)
        except _Unavailable:
            if not part.stat().st_size:
                part.unlink()
            raise
        try:
            content = _unpacked(part.read_bytes(), member, is_compressed)
        except ARCHIVE_DAMAGE as problem:
            part.unlink()
            raise _Unavailable(f"the download cannot be unpacked ({problem})") from None
        found = digest(content, file)
        if found != file.sha256:
            part.unlink()
            raise _Unavailable(f"the download is not the published file (SHA-256 {found}, not {file.sha256})")
        if member:
            part.write_bytes(content)
        replace(part, target)
    return target


def _unpacked(content: bytes, member: str, is_compressed: bool) -> bytes:
    """The file itself; `inner.zip#file` is a member of an archive in an archive."""
    for name in member.split("#") if member else []:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            limits.must_unpack(archive, len(content), name)
            content = archive.read(name)
    return _plain(content, "the download") if is_compressed else content


def _plain(packed: bytes, what: str) -> bytes:
    with gzip.open(io.BytesIO(packed)) as file:
        return limits.whole(file, limits.unpacked(len(packed)), what)


def _download(url: str, stream: BinaryIO, progress: Progress) -> None:
    """Receive all of `url` into `stream`, which may already hold its beginning."""
    for attempt in range(ATTEMPTS):
        try:
            _receive(url, stream, progress)
        except urllib.error.HTTPError as problem:
            if problem.code == 416 and stream.tell():  # The file is complete: its checksum is verified next.
                return
            raise _Unavailable(f"the server says {problem.code} {problem.reason}") from None
        except (OSError, HTTPException) as problem:
            if attempt == ATTEMPTS - 1:
                kept = "; the partial download is kept and will be continued" if stream.tell() else ""
                raise _Unavailable(f"{getattr(problem, 'reason', None) or problem}{kept}") from None
        else:
            return


def _receive(url: str, stream: BinaryIO, progress: Progress) -> None:
    """One connection: continues at the end of `stream` if the server can, else starts again."""
    have = stream.seek(0, io.SEEK_END)
    headers = {"User-Agent": "fedpareto"} | ({"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as reply:
        if have and reply.status != 206:
            have = 0
            stream.seek(0)
            stream.truncate()
        length = reply.headers.get("Content-Length")
        total = have + int(length) if length else 0
        progress(have, total)
        while chunk := reply.read(1 << 16):
            stream.write(chunk)
            have += len(chunk)
            progress(have, total)
    if have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


@contextmanager
def _shown(file: DataFile, url: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"downloading {file.name} from {urlsplit(url).hostname}", file=sys.stderr)
        yield lambda have, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(f"downloading {file.name}", total=file.size)
        yield lambda have, total: bar.update(task, completed=have, total=total or file.size)
