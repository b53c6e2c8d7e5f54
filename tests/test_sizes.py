"""A small file fills neither the memory nor a day, whoever wrote it."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import zipfile

import numpy as np
import pandas
import pytest
import torch

from fedpareto.config import limits
from fedpareto.config.errors import UserError
from fedpareto.config.files import read_bytes, read_json
from fedpareto.inputs.dialect import Sent
from fedpareto.problems import data
from fedpareto.problems.fairness import reading
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.spec import yaml_file
from fedpareto_serve import tables
from fedpareto_space.session.keeping import Saved

ROWS = b"age,hired\n" + b"20,yes\n" * 400_000


@pytest.fixture
def small(monkeypatch):
    """What is packed may become a megabyte."""
    monkeypatch.setattr(limits, "SMALL", 2**20)


def test_a_file_is_read_up_to_its_limit(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(100))
    assert len(read_bytes(file, most=100)) == 100
    with pytest.raises(UserError, match=r"file has more than 99 bytes, and no more are read"):
        read_bytes(file, most=99)
    with pytest.raises(UserError, match="more than 99 bytes"):
        limits.whole(io.BytesIO(bytes(100)), 99, "a stream that does not say its length")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: '" + "x" * limits.SPEC + "'", r"has more than 1,048,576 bytes"),
        ("a: [" + "1," * limits.SPEC_VALUES + "1]", r"line 1: it has more than 50,000 values"),
    ],
)
def test_a_spec_that_would_take_minutes_is_refused(text, said, tmp_path):
    (tmp_path / "spec.yaml").write_text(text)
    with pytest.raises(UserError, match=said):
        yaml_file.read(tmp_path / "spec.yaml")


def test_a_text_of_json_is_read_up_to_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "JSON", 10)
    (tmp_path / "run.json").write_text("[1, 2, 3, 4, 5]")
    with pytest.raises(UserError, match="more than 10 bytes"):
        read_json(tmp_path / "run.json")


def test_a_file_of_more_tensors_than_any_model_has_is_refused(tmp_path, monkeypatch):
    saved, file = Checkpoint({f"t{n}": torch.zeros(0) for n in range(9)}, {"a": 1}), tmp_path / "m.safetensors"
    saved.save(file)
    assert len(Checkpoint.load(file).tensors) == len(Checkpoint.from_bytes(file.read_bytes(), "it").tensors) == 9
    monkeypatch.setattr(limits, "TENSORS", 8)
    for load in (Checkpoint.load, lambda path: Checkpoint.from_bytes(path.read_bytes(), "it")):
        with pytest.raises(UserError, match="has 9 tensors; 8 are read at most"):
            load(file)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_small_packed_table_does_not_become_a_large_one(pack, small, tmp_path):
    bomb = tmp_path / "people.csv.gz"
    bomb.write_bytes(pack(ROWS))
    assert len(ROWS) > limits.unpacked(bomb.stat().st_size)
    for read in (lambda: reading.read(bomb), lambda: tables.read_table(Sent("people.csv", bomb.read_bytes()))):
        with pytest.raises(UserError, match="once it is unpacked, has more than 1,048,576 bytes"):
            read()
    plain = tmp_path / "people.csv"
    plain.write_bytes(ROWS)
    assert len(reading.read(plain).frame) == 400_000


def test_a_table_with_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LINE", 2**18)
    for name, pack in (("a.csv", bytes), ("a.csv.gz", gzip.compress)):
        (tmp_path / name).write_bytes(pack(b"age,hired\n20,yes\n" + b"1" * 2**21 + b",no\n"))
        with pytest.raises(UserError, match=r"a line of .* has more than 262,144 bytes"):
            reading.read(tmp_path / name)


@pytest.mark.parametrize(
    ("columns", "said"),
    [(limits.COLUMNS + 1, "has 5,001 columns; 5,000 are read"), (300_000, "its first line has more than")],
)
def test_a_table_with_more_columns_than_any_is_refused(columns, said, tmp_path):
    (tmp_path / "wide.csv").write_text(",".join(f"c{n}" for n in range(columns)) + "\n" + "1," * (columns - 1) + "1\n")
    with pytest.raises(UserError, match=said):
        reading.read(tmp_path / "wide.csv")


def test_a_parquet_file_that_repeats_itself_does_not_fill_the_memory(small, tmp_path):
    file = tmp_path / "people.parquet"
    pandas.DataFrame({"age": np.zeros(400_000), "hired": np.ones(400_000)}).to_parquet(file)
    with pytest.raises(UserError, match="once it is unpacked, has more than 1,048,576 bytes"):
        reading.read(file)
    pandas.DataFrame({"age": np.arange(100_000), "hired": np.ones(100_000)}).to_parquet(file)
    assert len(reading.read(file).frame) == 100_000


def test_packed_images_and_archives_do_not_fill_the_memory(small, tmp_path):
    pixels = np.zeros((3000, 28, 28), np.uint8)
    (tmp_path / "a.gz").write_bytes(
        gzip.compress(b"\0\0\x08\x03" + np.array(pixels.shape, ">u4").tobytes() + bytes(pixels))
    )
    np.savez_compressed(tmp_path / "a.npz", pixels)
    for name in ("a.gz", "a.npz"):
        with pytest.raises(UserError, match="more than 1,048,576 bytes"):
            tables.read_images(tmp_path / name)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("adult.data", bytes(2**21))
    for member, packed in (("adult.data", content.getvalue()), ("", gzip.compress(bytes(2**21)))):
        with pytest.raises(UserError, match="more than 1,048,576 bytes"):
            data._unpacked(packed, member, not member)


def test_a_saved_session_does_not_fill_the_memory(small):
    written = io.BytesIO()
    np.savez_compressed(written, values=np.frombuffer(b"{}", np.uint8), a=np.zeros(2**20))
    with pytest.raises(UserError, match=r"more than 1,\d+,\d+ bytes"):
        Saved.from_bytes(hashlib.sha256(written.getvalue()).digest() + written.getvalue(), "the session")
