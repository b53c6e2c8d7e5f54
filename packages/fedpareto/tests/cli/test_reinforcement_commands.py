"""Environments on the command line: what runs without the extra `morl`, and what is said where something cannot."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedpareto.problems.morl.gym_pool import close_pool

OF_THE_EXTRA = ("gymnasium", "mo_gymnasium", "mujoco", "Box2D")
TINY = ("--clients", "2", "--rounds", "2", "--set", "steps=20", "--set", "learning_starts=4", "--set", "hidden=4")
QUICK = (*TINY, "--set", "threads=1", "--set", "chunk=2", "--quiet", "--out", "run")


@pytest.fixture(autouse=True)
def own_processes() -> Iterator[None]:
    """Processes that play environments have the surroundings of the one that starts them."""
    close_pool()
    yield
    close_pool()


@pytest.fixture
def without_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Its packages look as if they were not installed, to this process and to those it starts."""
    folder = tmp_path_factory.mktemp("hidden")
    for package in OF_THE_EXTRA:
        (folder / f"{package}.py").write_text(f"raise ModuleNotFoundError('not here', name='{package}')\n")
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    "problem", ["deep-sea-treasure", pytest.param("minecart-deterministic", marks=pytest.mark.takes_long)]
)
def test_tensor_environments_need_no_extra(
    problem: str, without_the_extra: None, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    answer = fedpareto("run", "fedpref", "--problem", problem, *QUICK)
    assert answer.code == 0, answer.err
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["status"] == "finished"
    assert not (tmp_path / "run" / "events.jsonl").exists(), "every client took part"


@pytest.mark.parametrize(
    ("problem", "id"),
    [
        ("mo-lunar-lander", "mo-lunar-lander-v3"),
        ("mo-lunar-lander-continuous", "mo-lunar-lander-continuous-v3"),
        ("mo-halfcheetah", "mo-halfcheetah-v4"),
        ("mo-gymnasium", "mo-mountaincar-v0"),
    ],
)
def test_the_others_say_what_to_install(
    problem: str, id: str, without_the_extra: None, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    answer = fedpareto("run", "fedpref", "--problem", problem, *QUICK)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"Error: {id} needs gymnasium, which is not installed: pip install 'fedpareto[morl]'\n"
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("fedcmoo", "fedcmoo needs a problem with losses on rows; DQN on 'deep-sea-treasure' has none\n"),
        ("praffl", "praffl needs a problem with losses on rows; DQN on 'deep-sea-treasure' has none\n"),
        ("fairfed", "fairfed needs a problem that compares groups of people, such as synthetic, adult or table\n"),
    ],
)
def test_an_algorithm_that_cannot_do_with_players_says_so_once(
    algorithm: str, words: str, fedpareto: Callable[..., Any]
) -> None:
    answer = fedpareto("run", algorithm, "--problem", "deep-sea-treasure", *QUICK)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"Error: {words}"), answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("problem", "setting", "words"),
    [
        ("mo-gymnasium", "id=mo-lunar-landr-v3", "unknown environment 'mo-lunar-landr-v3'; did you mean 'mo-lunar-la"),
        ("mo-gymnasium", "id=???", "unknown environment '???'; known: breakable-bottles-v0, "),
        ("mo-gymnasium", "id=CartPole-v1", "CartPole-v1 has a single reward, not one for each of several objectives"),
        ("mo-gymnasium", "id=fishwood-v0", "fishwood-v0 sets no limit to an episode; say after how many steps it ends"),
        ("mo-halfcheetah", "method=dqn", "method is dqn, but mo-halfcheetah has actions that are vectors of numbers; "),
        ("mo-lunar-lander", "method=ddpg", "method is ddpg, but mo-lunar-lander has a few actions to choose from; use"),
        ("deep-sea-treasure", "method=ddpg", "but deep-sea-treasure has a few actions to choose from; use method: dqn"),
        ("deep-sea-treasure", "map=round", "unknown value of problem deep-sea-treasure: map 'round'"),
        ("deep-sea-treasure", "discount=2", "--set discount=2: discount is 2; it is above 0 and at most 1"),
        ("deep-sea-treasure", "steps=0", "--set steps=0: steps is 0; it is at least 1"),
        ("deep-sea-treasure", "epochs=2", "--set epochs=2: unknown parameter 'epochs'"),
    ],
)
def test_a_mistake_is_one_line(
    problem: str, setting: str, words: str, fedpareto: Callable[..., Any], tmp_path: Path
) -> None:
    answer = fedpareto("run", "fedpref", "--problem", problem, *QUICK, "--set", setting)
    assert (answer.code, answer.out) == (2, "")
    assert words in answer.err, answer.err
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing is left behind"
