"""Named arrays travel in the order of their manifest; what does not fit it is refused before it is used."""

from __future__ import annotations

import numpy as np
import pytest

from fedpareto.codecs import Codec
from fedpareto_space.wire import payload
from fedpareto_space.wire.manifest import MANIFEST, Dtype, Manifest, Tensor
from fedpareto_space.wire.refusals import ProtocolError, Refusal

DRAW = np.random.default_rng(0)
BASE = {"model": DRAW.standard_normal(300).astype(np.float32), "updates": np.zeros((3, 100), np.float32)}
SENT = {
    "model": BASE["model"] + 0.01 * DRAW.standard_normal(300).astype(np.float32),
    "updates": DRAW.standard_normal((3, 100)).astype(np.float32),
    "losses": np.array([0.5, 0.25], np.float32),
    "cluster": np.array(3, np.int64),
    "exact": np.array([1e300]),
    "chosen": np.array([[True, False]]),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.mark.parametrize(
    "codec", ["float32", "float32-delta", "float16", "bfloat16-delta", "int8-delta", "int4", "top10%"]
)
def test_arrays_make_a_round_trip_within_what_their_codec_loses(codec):
    codec = Codec.parse(codec)
    manifest, data = payload.pack(SENT, codec, BASE)
    heard = payload.unpack(manifest, data, codec, BASE)
    assert list(heard) == list(SENT)
    for name, array in heard.items():
        assert array.shape == SENT[name].shape
        assert array.dtype == SENT[name].dtype
        lost = name in BASE and not codec.lossless
        flat = SENT[name].reshape(-1)
        expected = codec.decoded(flat, BASE[name].reshape(-1)) if lost else flat
        np.testing.assert_array_equal(array.reshape(-1), expected)
    assert {tensor.name for tensor in manifest.tensors if tensor.coded} == set(BASE)


def test_only_large_float32_with_a_base_of_its_shape_is_coded():
    codec = Codec.parse("int4-delta")
    small = {"model": np.ones(payload.SMALLEST_CODED - 1, np.float32)}
    for tensors, bases in ((small, small), (BASE, {}), (BASE, {"model": np.ones(299, np.float32)})):
        manifest, data = payload.pack(tensors, codec, bases)
        assert not any(tensor.coded for tensor in manifest.tensors)
        assert data == b"".join(array.tobytes() for array in tensors.values())


def test_a_payload_that_does_not_fit_its_manifest_is_refused_by_name():
    codec = Codec.parse("int8-delta")
    manifest, data = payload.pack(SENT, codec, BASE)

    def refused(code, *arguments):
        with pytest.raises(ProtocolError) as refusal:
            payload.unpack(*arguments)
        assert refusal.value.code is code

    for size in range(0, len(data), 7):
        refused(Refusal.TRUNCATED, manifest, data[:size], codec, BASE)
    refused(Refusal.TRAILING, manifest, data + b"\0", codec, BASE)
    refused(Refusal.INCONSISTENT, manifest, data, codec, {"model": BASE["model"]})
    refused(Refusal.INCONSISTENT, manifest, data, codec, {**BASE, "model": BASE["model"][1:]})
    truth = Manifest((Tensor("chosen", (2,), Dtype.BOOL),))
    refused(Refusal.OUT_OF_RANGE, truth, b"\1\2", codec, {})


def test_damaged_bytes_of_a_codec_are_refused_or_used_and_nothing_else():
    codec = Codec.parse("int8-delta")
    manifest, data = payload.pack({"model": SENT["model"]}, codec, BASE)
    outcomes = set()
    for number in range(60):
        damaged = bytearray(data)
        damaged[DRAW.integers(len(data))] ^= 1 << number % 8
        try:
            heard = payload.unpack(manifest, bytes(damaged), codec, BASE)
            outcomes.add(heard["model"].shape)
        except ProtocolError as problem:
            outcomes.add(problem.code)
    assert outcomes <= {(300,), Refusal.OUT_OF_RANGE, Refusal.TRUNCATED, Refusal.TRAILING}
    assert len(outcomes) > 1


def test_a_digest_is_equal_only_if_every_bit_is():
    digest = payload.digest(BASE)
    assert digest == payload.digest({name: array.copy() for name, array in BASE.items()})
    assert digest == payload.digest({name: array.astype(">f4") for name, array in BASE.items()})
    other = BASE["model"].copy()
    other[7] = np.nextafter(other[7], np.float32(np.inf))
    assert digest != payload.digest({**BASE, "model": other})


def test_a_manifest_has_its_own_digest_and_refuses_what_no_payload_has():
    manifest = Manifest.of(SENT)
    assert MANIFEST.from_wire(MANIFEST.to_wire(manifest)) == manifest
    assert len(manifest.digest) == 8
    assert manifest.digest != Manifest.of(dict(reversed(SENT.items()))).digest, "the order counts"
    for wrong in (
        lambda: Manifest.of({"x": np.ones(2, np.complex64)}),
        lambda: Manifest((Tensor("x", (2,)), Tensor("x", (3,)))),
        lambda: Tensor("x", (2**20, 2**20)),
        lambda: Tensor("x", (2,), Dtype.INT64, coded=True),
        lambda: Tensor("x", (-1,)),
    ):
        with pytest.raises(ProtocolError):
            wrong()
