from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.contract import registry
from fedpareto.contract.algorithm import State
from fedpareto.contract.federation import Federation
from fedpareto.engines.local import LocalEngine
from fedpareto.engines.machine import Choices
from fedpareto.problems.convex import Convex
from fedpareto.record.checkpoint import Checkpoint
from fedpareto.testing.conformance import small_problem
from little_work import few_of

PROBLEM = Convex()


def names() -> list[str]:
    """Every algorithm, and its fine-tuning variant where clients reply with a model that they could keep; one that is
    safe.
    """
    setting = Federation.create(PROBLEM, 2).setting(PROBLEM, rounds=1)
    found = []
    for name in registry.algorithms():
        shapes = registry.make_algorithm(name, {}).reply_shapes(setting)
        tunable = "fine_tune" in shapes or "model" in shapes.get("train", {})
        found += [name, f"{name}+ft"] if tunable else [name]
    return [*found, "fedpref+safe"]


def engine_of(name: str) -> LocalEngine:
    algorithm = registry.make_algorithm(name, {})
    problem = small_problem(algorithm)
    federation = Federation.create(problem, 5, seed=3)
    setting = federation.setting(problem, rounds=3)
    return LocalEngine(algorithm, problem, problem.learner(), [federation], [setting], choices=Choices(1, 5))


def advance(engine: LocalEngine, state: Any, rounds: int) -> Any:
    while state.round < rounds:
        state = engine.algorithm.tell(state, engine.run(engine.algorithm.ask(state)).replies)
    return state


def parts(value: Any) -> Iterator[Any]:
    """Everything in a state, in a form that can be compared."""
    if isinstance(value, Tensor | np.ndarray):
        yield type(value), value.dtype, value.shape, value.tolist()
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield field.name, list(parts(getattr(value, field.name)))
    elif isinstance(value, list | tuple):
        yield type(value), [list(parts(item)) for item in value]
    elif isinstance(value, dict):
        yield [(key, list(parts(item))) for key, item in value.items()]
    else:
        yield type(value), value


def in_order(private: Any) -> Any:
    """Private states sorted by client and by name: their order means nothing."""
    return {key: dict(sorted(private[key].items())) for key in sorted(private)}


def through_file(checkpoint: Checkpoint, folder: Path) -> Checkpoint:
    checkpoint.save(folder / "checkpoint.safetensors")
    return Checkpoint.load(folder / "checkpoint.safetensors")


@pytest.mark.parametrize("name", few_of(names()))
def test_every_algorithms_state_comes_back_whole_and_continues_to_the_same_bits(name: str, tmp_path: Path) -> None:
    engine, restored = engine_of(name), []
    state = engine.algorithm.begin(engine.settings[0])
    for rounds in (0, 2, 3):
        state = advance(engine, state, rounds)
        saved = Checkpoint()
        saved.put_state(state, "state")
        saved.put_private(engine.private)
        loaded = through_file(saved, tmp_path)

        fresh = engine_of(name)
        restored.append((fresh, loaded.get_state(fresh.algorithm.begin(fresh.settings[0]), "state")))
        fresh.private = loaded.get_private(fresh.device)
        assert list(parts(restored[-1][1])) == list(parts(state))
        assert list(parts(in_order(fresh.private))) == list(parts(in_order(engine.private)))
    mine = engine.models(0, engine.algorithm.solutions(state))
    for fresh, begun in restored:
        theirs = fresh.models(0, fresh.algorithm.solutions(advance(fresh, begun, 3)))
        assert all(torch.equal(mine[client], theirs[client]) for client in range(5))


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any shape, also empty and without dimensions; a view with gaps or turned round as often as not."""
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    seed = draw(st.integers(0, 2**32))
    tensor = (torch.randn([2 * n for n in shape], generator=torch.Generator().manual_seed(seed)) * 100).to(
        draw(st.sampled_from(DTYPES))
    )
    for dimension in range(tensor.dim()):
        tensor = tensor.narrow(dimension, 0, shape[dimension])
    return tensor.transpose(0, -1) if tensor.dim() and draw(st.booleans()) else tensor


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers(), st.text()), inner, max_size=3)
    ),
    max_leaves=8,
)


@dataclass(frozen=True)
class Part:
    weight: Tensor
    count: int


@dataclass(frozen=True)
class AnyState(State):
    anything: Any = None
    tensors: dict[str, Tensor] = dataclasses.field(default_factory=dict)
    chain: tuple[Part, ...] | None = None


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(min_size=1, max_size=5), tensors(), max_size=4), plain, st.lists(tensors(), max_size=3))
def test_any_state_of_tensors_and_plain_values_survives_a_file(
    tmp_path_factory: pytest.TempPathFactory, named: dict[str, Tensor], anything: Any, chain: list[Tensor]
) -> None:
    setting = Federation.create(PROBLEM, 2).setting(PROBLEM, rounds=1)
    links = tuple(Part(tensor, number) for number, tensor in enumerate(chain)) or None
    state = AnyState(setting, round=7, anything=anything, tensors=named, chain=links)
    saved = Checkpoint()
    saved.put_state(state, "state")
    loaded = through_file(saved, tmp_path_factory.mktemp("state"))
    restored = loaded.get_state(AnyState(setting), "state")
    assert list(parts(restored)) == list(parts(state))


def test_a_state_that_holds_anything_else_is_refused_by_name() -> None:
    setting = Federation.create(PROBLEM, 2).setting(PROBLEM, rounds=1)
    with pytest.raises(TypeError, match=r"not set \(state\.anything\.1\)"):
        Checkpoint().put_state(AnyState(setting, anything=[1, {2}]), "state")


def test_a_state_of_another_version_is_refused(tmp_path: Path) -> None:
    setting = Federation.create(PROBLEM, 2).setting(PROBLEM, rounds=1)
    saved = Checkpoint()
    saved.put_state(AnyState(setting), "state")
    with pytest.raises(UserError, match="another version"):
        saved.get_state(State(setting), "state")


def test_equal_checkpoints_are_equal_files(tmp_path: Path) -> None:
    files = []
    for number in range(6):  # The order of several entries of metadata would be a matter of chance.
        path = tmp_path / f"{number}"
        Checkpoint({"b": torch.ones(3), "a": torch.zeros(2)}, {"y": 1, "x": [2]}).save(path)
        files.append(path.read_bytes())
    assert len(set(files)) == 1


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoint.safetensors"
    Checkpoint({"model": torch.arange(6.0), "none": torch.empty(0), "on": torch.tensor(True)}, {"round": 3}).save(path)
    return path


def test_a_flipped_byte_anywhere_is_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    before = Checkpoint.load(saved)
    noticed = 0
    for place in range(len(whole)):
        for flip in (0x01, 0xFF):
            changed = bytearray(whole)
            changed[place] ^= flip
            saved.write_bytes(changed)
            try:
                after = Checkpoint.load(saved)
            except DamagedFile:
                noticed += 1
            else:  # White space in the header, say; what was read is what was written.
                assert list(parts([after.tensors, after.values])) == list(parts([before.tensors, before.values]))
    assert noticed > 0.95 * 2 * len(whole)


def test_a_file_cut_anywhere_is_noticed(saved: Path) -> None:
    whole = saved.read_bytes()
    for length in range(len(whole)):
        saved.write_bytes(whole[:length])
        with pytest.raises(DamagedFile, match=r"checkpoint\.safetensors"):
            Checkpoint.load(saved)


def test_a_safetensors_file_of_something_else_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"model": torch.ones(3)}, tmp_path / "other")
    save_file({"model": torch.ones(3)}, tmp_path / "metadata", {"fedpareto": "[1]"})
    for name in ("other", "metadata"):
        with pytest.raises(DamagedFile):
            Checkpoint.load(tmp_path / name)
