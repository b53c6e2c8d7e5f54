"""Codecs: what the other end holds, to the last bit, and what is refused."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fedpareto.codecs import Codec, CodecError, ErrorFeedback
from fedpareto.config.errors import UserError

WORDS = [
    f"{kind}{coder}"
    for kind in ("float32", "float32-delta", "float16-delta", "bfloat16", "int8", "int8-delta", "int4-delta", "top10%")
    for coder in ("+none", "+ccsds121", "+zstd")
]


def stack(rows, size, seed=0):
    """Models and where they began; updates have heavy tails."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(rows, size)).astype(np.float32)
    return (base + 0.01 * rng.standard_t(2, size=(rows, size))).astype(np.float32), base


@pytest.mark.parametrize("word", WORDS)
def test_what_is_decoded_is_what_the_sender_knows_to_the_last_bit(word):
    codec = Codec.parse(word)
    for size in (0, 1, 33, 5000):
        values, base = stack(2, size)
        known, sizes = codec.decoded(values, base), codec.sizes(values, base)
        for row in range(2):
            data = codec.encode(values[row], base[row])
            assert codec.decode(data, size, base[row]).tobytes() == known[row].tobytes()
            assert len(data) == sizes[row]
        if codec.lossless:
            assert known.tobytes() == values.tobytes()


@pytest.mark.parametrize("word", WORDS)
def test_a_codec_is_its_word(word):
    assert Codec.parse(str(Codec.parse(word))) == Codec.parse(word)


def test_the_default_coder_is_not_spelled_out():
    assert [str(Codec.parse(word)) for word in ("int8-delta+ccsds121", "float32+none", "top10%")] == [
        "int8-delta",
        "float32",
        "top10%-delta",
    ]


@pytest.mark.parametrize(
    ("word", "right"),
    [("int9", "int8"), ("int8_delta", "int8-delta"), ("int8+gzip", "zstd"), ("top0%", "above 0"), ("", "float32")],
)
def test_an_unknown_word_is_refused_with_what_there_is(word, right):
    with pytest.raises(UserError, match=right):
        Codec.parse(word)


def test_lossless_codecs_keep_every_bit_pattern():
    special = np.array([0.0, -0.0, 1e-45, -1e-45, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38], dtype=np.float32)
    base = np.roll(special, 3)
    for word in ("float32", "float32-delta", "float32-delta+zstd", "float32+ccsds121"):
        codec = Codec.parse(word)
        assert codec.decode(codec.encode(special, base), len(special), base).tobytes() == special.tobytes()


@pytest.mark.parametrize("word", ["int8-delta", "int4-delta", "top10%-delta", "float16-delta", "bfloat16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -3.4e38])
def test_what_is_not_finite_arrives_as_such_and_harms_no_other_row(word, bad):
    codec = Codec.parse(word)
    values, base = stack(2, 50)
    values[0, 7] = bad
    base[0, 7] = 3e38
    known = codec.decoded(values, base)
    assert not np.isfinite(known[0, 7]) or (codec.type == "bfloat16" and abs(known[0, 7]) > 3e38)
    assert np.isfinite(known[1]).all()
    data = codec.encode(values[0], base[0])
    np.testing.assert_array_equal(codec.decode(data, 50, base[0]), known[0])


@pytest.mark.parametrize(("word", "most"), [("int8-delta", 127), ("int4-delta", 7)])
def test_quantised_differences_are_multiples_of_the_smallest_power_of_two_that_reaches_all(word, most):
    codec = Codec.parse(word)
    for largest in (1e-3, 127.0, 7.0, 7.0000005, 1.0, 2.0**-130, 8e37):
        change = np.array([largest, -largest / 3, largest / 50, 0.0], dtype=np.float32)
        exponent = np.frombuffer(codec.encode(change), dtype=np.int8, count=1)[0]
        assert most * 2.0**exponent >= np.float32(largest)
        assert exponent == -126 or most * 2.0 ** (int(exponent) - 1) < np.float32(largest)
        step = 2.0**exponent
        assert np.array_equal(codec.decoded(change), (np.rint(change / step) * step).astype(np.float32))


def test_top_keeps_the_largest_and_of_equal_ones_the_first():
    codec = Codec.parse("top40%")
    change = np.array([1, -3, 1, 2, 1], dtype=np.float32)
    assert codec.decoded(change).tolist() == [0, -3, 0, 2, 0]
    assert Codec.parse("top60%").decoded(change).tolist() == [1, -3, 0, 2, 0]


def test_error_feedback_delivers_in_the_end_what_was_lost_at_first():
    codec = Codec.parse("int4-delta")
    rng = np.random.default_rng(0)
    update = rng.standard_t(2, size=(1, 2000)).astype(np.float32) * 0.01
    feedback, residual = ErrorFeedback(codec), np.zeros_like(update)
    plain, fed = np.zeros_like(update), np.zeros_like(update)
    for _ in range(100):
        plain = codec.decoded(plain + update, plain)
        sent = feedback.send(fed + update, fed, residual)
        fed, residual = sent.held, sent.residual
    wanted = 100 * update
    assert np.abs(fed - wanted).max() < 2 * np.abs(update).max()
    assert np.abs(plain - wanted).mean() > 5 * np.abs(fed - wanted).mean()


def test_error_feedback_carries_nothing_of_a_row_that_is_not_finite():
    feedback = ErrorFeedback(Codec.parse("int8-delta"))
    values, base = stack(2, 20)
    values[0, 3] = np.nan
    before = np.full_like(values, 0.25)
    residual = feedback.send(values, base, before).residual
    assert np.array_equal(residual[0], before[0])
    assert np.isfinite(residual).all()


@pytest.mark.parametrize("word", ["int4-delta", "int8-delta", "top10%-delta", "float16-delta"])
def test_two_replicas_are_equal_after_a_hundred_updates_in_float32_and_in_rounded_float64(word):
    """The second replica restores the coded numbers itself: in double precision, rounded to float32 as defined."""
    codec = Codec.parse(word)
    rng = np.random.default_rng(3)
    single = rng.normal(size=1000).astype(np.float32)
    double = single.astype(np.float64)
    for _ in range(100):
        target = single + (0.01 * rng.standard_t(2, size=1000)).astype(np.float32)
        data = codec.encode(target, single)
        change = codec.decode(data, 1000, np.zeros(1000, dtype=np.float32)).astype(np.float64)
        single = codec.decode(data, 1000, single)
        double = (double + change).astype(np.float32).astype(np.float64)
    assert digest(single) == digest(double.astype(np.float32))


def digest(values):
    return hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()


@pytest.mark.parametrize("word", WORDS)
def test_damaged_bytes_are_refused_or_give_as_many_numbers(word):
    codec = Codec.parse(word)
    values, base = stack(1, 300)
    data = codec.encode(values[0], base[0])
    rng = np.random.default_rng(5)
    attempts = [data[:-1], data + b"\0", b"", b"\x80\0", bytes(len(data)), rng.bytes(len(data)), rng.bytes(7)]
    for _ in range(8):
        damaged = bytearray(data)
        damaged[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        attempts.append(bytes(damaged))
    for attempt in attempts:
        try:
            found = codec.decode(attempt, 300, base[0])
        except CodecError:
            continue
        assert found.shape == (300,)
        assert found.dtype == np.float32
    with pytest.raises(CodecError):
        codec.decode(data[:-1], 300, base[0])


def test_a_hostile_size_in_a_zstd_frame_costs_no_memory():
    import zstandard

    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    with pytest.raises(CodecError, match="do not unpack to 1200 bytes"):
        Codec.parse("float32-delta+zstd").decode(bomb, 300)


def test_numbers_of_another_type_are_refused():
    with pytest.raises(UserError, match="not float64"):
        Codec.parse("int8-delta").encode(np.zeros(3))
    with pytest.raises(UserError, match="not float32 of 3"):
        Codec.parse("int8-delta").encode(np.zeros(3, dtype=np.float32), np.zeros(4, dtype=np.float32))
