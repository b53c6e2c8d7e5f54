"""Images from files: a folder of PNG, a .npy or .npz array, or the IDX format of MNIST."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedpareto.config import limits
from fedpareto.config.errors import DamagedFile, UserError, in_words
from fedpareto.config.files import ARCHIVE_DAMAGE, read_bytes
from fedpareto.inputs.idx import parse_idx

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif")


def read(path: Path) -> Sequence[np.ndarray]:
    """The images of a file or folder, pixels from 0 to 255; of a folder in the order of their names."""
    try:
        if path.is_dir():
            files = sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS)
            if not files:
                raise UserError(f"{path} holds no images: files that end with {', '.join(ENDINGS)}")
            return [_picture(file) for file in files]
        if path.suffix.lower() in ENDINGS:
            return [_picture(path)]
        if path.suffix == ".npy":
            return _each(np.load(path, allow_pickle=False), path)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as arrays:
                limits.must_unpack(arrays.zip, path.stat().st_size, str(path))
                return _each(arrays[arrays.files[0]], path)
        if path.suffix != ".gz":
            return list(parse_idx(read_bytes(path), str(path)))
        with gzip.open(path) as file:
            return list(parse_idx(limits.whole(file, limits.unpacked(path.stat().st_size), str(path)), str(path)))
    except DamagedFile:
        known = "name a folder of PNG files, a .npy, a .npz or an IDX file of bytes"
        raise UserError(f"{path} holds no images: {known}") from None
    except UserError:
        raise
    except ARCHIVE_DAMAGE as problem:
        why = getattr(problem, "strerror", "") or in_words(problem)
        raise UserError(f"{path} cannot be read as images: {why}") from None


def _each(images: np.ndarray, path: Path) -> list[np.ndarray]:
    """One by one; a file of a few bytes can name billions that are empty."""
    if not images.size:
        raise UserError(f"{path} holds no images: its array has the shape {list(images.shape)}")
    return list(images)


def _picture(path: Path) -> np.ndarray:
    """Grey as `[h, w]`, coloured as `[h, w, 3]`."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            grey = image.mode in ("1", "L", "LA", "I;16", "I")
            return np.asarray(image.convert("L" if grey else "RGB"))
    except Image.DecompressionBombError as problem:
        raise ValueError(str(problem)) from None
