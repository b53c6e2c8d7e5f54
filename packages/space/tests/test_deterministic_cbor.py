"""One encoding for each value (RFC 8949, section 4.2); every other is refused by name."""

from __future__ import annotations

import math

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpareto_space.wire import cbor
from fedpareto_space.wire.refusals import ProtocolError, Refusal

APPENDIX_A = {
    **{"00": 0, "17": 23, "1818": 24, "1903e8": 1000, "1a000f4240": 1000000, "1bffffffffffffffff": 2**64 - 1},
    **{"20": -1, "3903e7": -1000, "3bffffffffffffffff": -(2**64)},
    **{
        "f90000": 0.0,
        "f93c00": 1.0,
        "fb3ff199999999999a": 1.1,
        "f93e00": 1.5,
        "f97bff": 65504.0,
        "fa47c35000": 100000.0,
    },
    **{"fb7e37e43c8800759c": 1e300, "f90001": 5.960464477539063e-8, "f9c400": -4.0, "f97c00": math.inf},
    **{"f4": False, "f5": True, "f6": None, "40": b"", "4401020304": b"\1\2\3\4", "60": "", "6449455446": "IETF"},
    **{"62c3bc": "ü", "80": [], "8301820203820405": [1, [2, 3], [4, 5]], "a0": {}, "a201020304": {1: 2, 3: 4}},
    **{"a26161016162820203": {"a": 1, "b": [2, 3]}, "826161a161626163": ["a", {"b": "c"}]},
}
"""Examples of RFC 8949 as far as the protocol uses them."""

REFUSED = {
    "": Refusal.TRUNCATED,
    "44010203": Refusal.TRUNCATED,
    "9affffffff": Refusal.TRUNCATED,
    "5bffffffffffffffff": Refusal.TRUNCATED,
    "0000": Refusal.TRAILING,
    "1800": Refusal.NOT_SHORTEST,
    "190017": Refusal.NOT_SHORTEST,
    "1b00000000ffffffff": Refusal.NOT_SHORTEST,
    "580100": Refusal.NOT_SHORTEST,
    "fb3ff8000000000000": Refusal.NOT_SHORTEST,
    "fa3fc00000": Refusal.NOT_SHORTEST,
    "5f42010243030405ff": Refusal.INDEFINITE,
    "9fff": Refusal.INDEFINITE,
    "bfff": Refusal.INDEFINITE,
    "ff": Refusal.INDEFINITE,
    "a203040102": Refusal.WRONG_ORDER,
    "a201020102": Refusal.DUPLICATE_KEY,
    "a1f400": Refusal.FORBIDDEN,
    "a18000": Refusal.FORBIDDEN,
    "c11a514b67b0": Refusal.FORBIDDEN,
    "f7": Refusal.FORBIDDEN,
    "f0": Refusal.FORBIDDEN,
    "f818": Refusal.FORBIDDEN,
    "1c": Refusal.FORBIDDEN,
    "f97e00": Refusal.FORBIDDEN,
    "fa7fc00001": Refusal.FORBIDDEN,
    "f98000": Refusal.FORBIDDEN,
    "62c328": Refusal.NOT_TEXT,
    "81" * 20 + "00": Refusal.TOO_DEEP,
    "99ea60" + "00" * 60000: Refusal.TOO_LARGE,
}


@pytest.mark.parametrize("digits", APPENDIX_A)
def test_examples_of_the_standard(digits):
    assert cbor.encode(APPENDIX_A[digits]).hex() == digits
    assert cbor.decode(bytes.fromhex(digits)) == APPENDIX_A[digits]


@pytest.mark.parametrize("digits", REFUSED, ids=lambda digits: digits[:20])
def test_whatever_is_not_deterministic_is_refused_by_name(digits):
    with pytest.raises(ProtocolError) as refusal:
        cbor.decode(bytes.fromhex(digits))
    assert refusal.value.code is REFUSED[digits]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64 - 1)
    | st.floats(allow_nan=False).map(lambda value: value + 0.0)
    | st.binary(max_size=40)
    | st.text(max_size=40),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.integers(0, 99) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=12,
)


def deep(value):
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(deep, inside), default=0)


@settings(max_examples=60, deadline=None)
@given(values.filter(lambda value: deep(value) <= cbor.DEEPEST))
def test_every_value_is_read_again_by_us_and_by_others(value):
    data = cbor.encode(value)
    assert cbor.decode(data) == value == cbor2.loads(data)
    assert cbor.encode(cbor.decode(data)) == data
