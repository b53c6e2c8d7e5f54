from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedpareto.tensors.rng import Address, generator, torch_generator

addresses = st.builds(
    Address,
    seed=st.integers(0, 2**63),
    client=st.integers(-1, 10**6),
    round=st.integers(0, 10**6),
    lane=st.integers(0, 1000),
)


@given(addresses, addresses)
def test_different_addresses_have_different_streams(one, other):
    same = one == other
    assert (generator(one, "x").random(4).tolist() == generator(other, "x").random(4).tolist()) == same


@given(addresses)
def test_different_purposes_have_different_streams(address):
    assert generator(address, "a").random() != generator(address, "b").random()
    assert torch_generator(address, "a").initial_seed() != torch_generator(address, "b").initial_seed()
