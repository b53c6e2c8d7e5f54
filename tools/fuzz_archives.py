"""What `fuzz.py` tries of images, archives and downloads: files of numpy, IDX, PNG, zip, gzip and tar."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fuzz_mutations import of_bytes, of_gzip
from fuzz_readers import Reader

PIXELS = np.arange(2 * 6 * 6, dtype=np.uint8).reshape(2, 6, 6)


def of_small(draw: random.Random, content: bytes) -> bytes:
    """One number of a head, or any bytes: lengths, kinds and counts are there."""
    if draw.random() < 0.5:
        return of_bytes(draw, content)
    data = bytearray(content)
    at = draw.randrange(min(len(data), 160))
    data[at] = draw.choice((0, 1, 2, 8, 13, 127, 128, 255, draw.randrange(256)))
    return bytes(data)


def of_end(draw: random.Random, content: bytes) -> bytes:
    """The same at the end, where a zip file has its list."""
    if draw.random() < 0.4:
        return of_small(draw, content)
    data = bytearray(content)
    at = len(data) - 1 - draw.randrange(min(len(data), 160))
    data[at] = draw.choice((0, 1, 2, 8, 9, 127, 128, 255, draw.randrange(256)))
    return bytes(data)


def of_packed(draw: random.Random, content: bytes) -> bytes:
    """A gzip file, damaged or of damaged content."""
    if draw.random() < 0.5:
        return of_gzip(draw, content)
    return gzip.compress(of_small(draw, gzip.decompress(content)), 1)


def of_saved(draw: random.Random, content: bytes) -> bytes:
    """Other arrays and values, with a digest that fits."""
    inside = of_end(draw, content[32:])
    return of_bytes(draw, content) if draw.random() < 0.2 else hashlib.sha256(inside).digest() + inside


def idx(values: np.ndarray) -> bytes:
    """In the format of MNIST."""
    sizes = np.asarray(values.shape, dtype=">u4").tobytes()
    return b"\0\0\x08" + bytes([values.ndim]) + sizes + values.tobytes()


def images(folder: Path) -> list[Reader]:
    """What `predict --input` reads."""
    from PIL import Image

    from fedpareto_serve import tables

    def written(write: Callable[[io.BytesIO], object]) -> bytes:
        buffer = io.BytesIO()
        write(buffer)
        return buffer.getvalue()

    kinds = {
        ".npy": (written(lambda file: np.save(file, PIXELS)), of_small),
        ".npz": (written(lambda file: np.savez_compressed(file, x=PIXELS)), of_end),
        ".idx": (idx(PIXELS), of_small),
        ".gz": (gzip.compress(idx(PIXELS)), of_packed),
        ".png": (written(lambda file: Image.fromarray(PIXELS[0]).save(file, "PNG")), of_small),
        ".gif": (written(lambda file: Image.fromarray(PIXELS[0]).save(file, "GIF")), of_small),
    }

    def reader(ending: str) -> Callable[[bytes], object]:
        path = folder / f"images{ending}"

        def read(content: bytes) -> object:
            path.write_bytes(content)
            return tables.read_images(path)

        return read

    return [Reader(f"images ({end})", (whole,), mutate, reader(end)) for end, (whole, mutate) in kinds.items()]


def data_sets(folder: Path) -> list[Reader]:
    """Downloads, and published files that may be replaced by others."""
    from fedpareto.inputs.idx import parse_idx
    from fedpareto.problems import data
    from fedpareto.problems.images_text import datasets as image_sets

    inner, outer, packed = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.csv", b"a,b\n1,2\n" * 20)
    with zipfile.ZipFile(outer, "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry, content = tarfile.TarInfo("data/test_batch.bin"), bytes(3073 * 2)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    zips, gz = folder / "download.zip", folder / "download.csv.gz"
    place = folder / "downloads"
    place.mkdir()

    def fetch(path: Path, member: str) -> Callable[[bytes], object]:
        def read(content: bytes) -> object:
            path.write_bytes(content)
            whole = hashlib.sha256(b"a,b\n1,2\n" * 20).hexdigest()
            file = data.DataFile("rows.csv", 160, whole, ())
            found = data._fetch(file, path.as_uri() + member, place, lambda have, total: None)
            found.unlink()
            return found

        return read

    def published(content: bytes) -> object:
        gz.write_bytes(content)
        return data.read(data.DataFile("download.csv", 0, "", ()), gz)

    refusals = (*Reader("", (), of_bytes, len).refusals, data._Unavailable)
    plain = gzip.compress(b"a,b\n1,2\n" * 20)
    return [
        Reader("downloads (zip in zip)", (outer.getvalue(),), of_end, fetch(zips, "#inner.zip#rows.csv"), refusals),
        Reader("downloads (zip)", (inner.getvalue(),), of_end, fetch(zips, "#rows.csv"), refusals),
        Reader("downloads (gz)", (plain,), of_packed, fetch(gz, ""), refusals),
        Reader("data files (gz)", (plain,), of_packed, published),
        Reader(
            "data files (tar)", (packed.getvalue(),), of_packed, lambda one: list(image_sets._members(one, "a file"))
        ),
        Reader("data files (IDX)", (idx(PIXELS),), of_small, lambda one: parse_idx(one, "a file")),
    ]


def readers(folder: Path) -> list[Reader]:
    """All of them."""
    from fedpareto_space.session.keeping import Saved

    saved = Saved({"round": 1, "terms": "00"}, {"model": np.ones(5, np.float32)})
    kept = Reader("saved sessions", (saved.to_bytes(),), of_saved, lambda one: Saved.from_bytes(one, "a file").values)
    return [*images(folder), *data_sets(folder), kept]
