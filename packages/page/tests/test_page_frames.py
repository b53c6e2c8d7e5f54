"""Columns as bytes."""

from __future__ import annotations

import json
import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from fedpareto_page.frames import TYPES, frame
from framing import unframe

ARRAYS = st.sampled_from([*TYPES.values(), "<i8"]).flatmap(
    lambda kind: of_numpy.arrays(
        kind,
        of_numpy.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
        elements={"min_value": -(2**40), "max_value": 2**40} if kind == "<i8" else None,
    )
)


@given(st.dictionaries(st.text(), ARRAYS, max_size=4), st.dictionaries(st.text(), st.integers() | st.text()))
def test_columns_come_back_as_they_went(columns, head):
    head.pop("columns", None)
    told, found = unframe(frame(head, columns))
    assert told == head
    assert list(found) == list(columns)
    for name, array in columns.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].shape == array.shape


def test_a_browser_can_lay_its_arrays_over_the_bytes():
    """Read by hand, as the page does."""
    columns = {"a": np.arange(3, dtype=np.int8), "b": np.array([[0.1, np.nan]]), "c": np.array([0.5, 2.0])}
    content = frame({"x": "é"}, columns)
    (length,) = struct.unpack_from("<I", content)
    head = json.loads(content[4 : 4 + length])
    assert (4 + length) % 8 == 0
    assert [(one["name"], one["type"], one["shape"]) for one in head["columns"]] == [
        ("a", "i1", [3]),
        ("b", "f8", [1, 2]),
        ("c", "f4", [2]),
    ], "float32 only where it is exact"
    at = 4 + length
    assert np.frombuffer(content, "<f8", 2, at + 8).tolist()[0] == 0.1
    assert np.frombuffer(content, "<f4", 2, at + 24).tolist() == [0.5, 2.0]
    assert len(content) == at + 32
