"""The coder of CCSDS 121.0-B against libaec, which imagecodecs brings."""

from __future__ import annotations

import imagecodecs
import numpy as np
import pytest

from fedpareto.codecs import CodecError, ccsds121
from fedpareto.codecs.ccsds121 import Format
from fedpareto.config.errors import UserError

FLAGS = imagecodecs.AEC.FLAG


def kinds(bits, rng):
    """Samples of n bits: noise, small ones, steps, rare ones with long runs of zeros, ties between options."""
    most = 2**bits - 1
    many = 64 * 70
    found = {
        "noise": rng.integers(0, most, 1000, endpoint=True),
        "small": np.minimum(rng.geometric(0.3, 777) - 1, most),
        "wide": np.minimum(rng.exponential(most / 20 + 0.1, 1024).astype(np.int64), most),
        "rare": np.where(rng.random(many) < 0.001, rng.integers(0, most, many, endpoint=True), 0),
        "ties": np.minimum(rng.integers(1, 4, 640), most),
        "alike": np.full(7, min(2, most)),
        "zeros": np.zeros(many, dtype=np.int64),
    }
    stored = np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32
    return [samples.astype(stored) for samples in found.values()]


def libaec(form):
    """The same parameters for libaec."""
    flags = FLAGS.NOT_ENFORCE | (FLAGS.PAD_RSI if form.padded else 0) | (FLAGS.RESTRICTED if form.restricted else 0)
    return {"bitspersample": form.bits, "flags": int(flags), "blocksize": form.block, "rsi": form.interval}


@pytest.mark.parametrize("bits", [1, 4, 8, 13, 32])
def test_bytes_are_those_of_libaec_and_both_read_each_other(bits):
    rng = np.random.default_rng(bits)
    for block, interval, padded in [(8, 3, False), (16, 64, True), (32, 128, False), (64, 32, True)]:
        form = Format(bits, block, interval, padded)
        for samples in kinds(bits, rng):
            coded, lengths = ccsds121.encode(samples, form)
            assert coded == imagecodecs.aec_encode(samples, **libaec(form))
            whole = -(-len(samples) // block) * block * samples.itemsize  # libaec writes whole blocks.
            there = imagecodecs.aec_decode(coded, out=whole, **libaec(form))
            assert bytes(there)[: samples.nbytes] == samples.tobytes()
            assert np.array_equal(ccsds121.decode(coded, len(samples), form), samples)
            if padded:
                assert np.array_equal(ccsds121.decode(coded, len(samples), form, lengths), samples)


@pytest.mark.parametrize("bits", [2, 4])
def test_the_restricted_set_of_options_is_that_of_libaec(bits):
    form = Format(bits, 16, 64, restricted=True)
    for samples in kinds(bits, np.random.default_rng(0)):
        coded, _ = ccsds121.encode(samples, form)
        assert coded == imagecodecs.aec_encode(samples, **libaec(form))
        assert np.array_equal(ccsds121.decode(coded, len(samples), form), samples)


def test_sizes_are_known_without_coding():
    rng = np.random.default_rng(0)
    form = Format(8, 16, 8, padded=True)
    rows = np.minimum(rng.geometric(0.3, (5, 1000)) - 1, 255).astype(np.uint8)
    rows[2] = 0
    for row, lengths in zip(rows, ccsds121.sizes(rows, form), strict=True):
        assert np.array_equal(lengths, ccsds121.encode(row, form)[1])


def test_damaged_streams_are_refused_or_give_as_many_numbers():
    rng = np.random.default_rng(1)
    form = Format(8, 16, 8, padded=True)
    samples = np.minimum(rng.geometric(0.2, 1000) - 1, 255).astype(np.uint8)
    coded, lengths = ccsds121.encode(samples, form)
    refused = 0
    for _ in range(80):
        damaged = bytearray(coded)
        damaged[rng.integers(len(coded))] ^= 1 << int(rng.integers(8))
        try:
            found = ccsds121.decode(bytes(damaged), 1000, form, lengths)
        except CodecError:
            refused += 1
        else:
            assert found.shape == (1000,)
            assert found.max() < 256
    assert refused
    for cut in (0, 1, len(coded) // 2, len(coded) - 1):
        with pytest.raises(CodecError):
            ccsds121.decode(coded[:cut], 1000, form)
    with pytest.raises(CodecError, match="lengths of the intervals"):
        ccsds121.decode(coded, 1000, form, lengths[::-1] + 1)


@pytest.mark.parametrize("wrong", [{"bits": 33}, {"block": 10}, {"interval": 0}, {"bits": 8, "restricted": True}])
def test_a_format_that_the_standard_does_not_have_is_refused(wrong):
    with pytest.raises(UserError, match=r"it has|at most"):
        Format(**{"bits": 8, **wrong})
