"""The format of MNIST."""

from __future__ import annotations

import pytest

from fedpareto.config.errors import DamagedFile
from fedpareto.inputs.idx import parse_idx

CONTENT = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])


def test_an_idx_file_is_its_header_and_its_values():
    assert parse_idx(CONTENT, "a file").tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"\0\0",
        CONTENT[:9],
        CONTENT[:-1],
        CONTENT + b"\0",
        b"PK" + CONTENT,
        b"\0\0\x0d" + CONTENT[3:],
        b"\0\0\x08\x00",
        b"\0\0\x08\x60" + b"\0\0\0\x01" * 0x60 + b"a",
        b"\0\0\x08\x03" + b"\xff\xff\xff\xff" * 2 + b"\0\0\0\0",
    ],
)
def test_what_is_none_is_one_clear_line(wrong):
    with pytest.raises(DamagedFile, match="a file is not an IDX file of bytes, or is cut short"):
        parse_idx(wrong, "a file")
