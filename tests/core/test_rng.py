from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedpareto.core.rng import Address, generator, generators, torch_generator

addresses = st.builds(
    Address,
    seed=st.integers(0, 2**63),
    client=st.integers(-1, 10**6),
    round=st.integers(0, 10**6),
    lane=st.integers(0, 1000),
)


@given(st.lists(addresses, min_size=1, max_size=6), st.sampled_from(["batches", "faults"]))
def test_a_stream_does_not_depend_on_who_else_draws(many, purpose):
    together = []
    for stream in generators(many, purpose):
        stream.random(3)  # An odd number of draws must leave nothing behind for the next client.
        stream.integers(0, 5, dtype="int32")
        together.append(stream.permutation(10).tolist())
    for address, found in zip(many, together, strict=True):
        alone = generator(address, purpose)
        alone.random(3)
        alone.integers(0, 5, dtype="int32")
        assert alone.permutation(10).tolist() == found


@given(addresses, addresses)
def test_different_addresses_have_different_streams(one, other):
    same = one == other
    assert (generator(one, "x").random(4).tolist() == generator(other, "x").random(4).tolist()) == same


@given(addresses)
def test_different_purposes_have_different_streams(address):
    assert generator(address, "a").random() != generator(address, "b").random()
    assert torch_generator(address, "a").initial_seed() != torch_generator(address, "b").initial_seed()
