from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import yaml

from fedpareto.config.errors import UserError
from fedpareto.config.parameters import field_names
from fedpareto.contract import registry
from fedpareto.problems.convex import Convex
from fedpareto.spec.draft import Draft, load
from fedpareto.spec.spec import SECTIONS, Spec

PAIRS = [*((name, "convex") for name in registry.algorithms()), *(("local", name) for name in registry.problems())]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return path


FLAGS = {
    "algorithm": "fedprox+ft",
    "problem": "convex",
    "clients": 7,
    "rounds": 3,
    "seeds": "4,7",
    "preferences": "0.7,0.3",
    "participation": 0.5,
    "quorum": 2.0,
    "engine": "local",
}
SETTINGS = ["mu=0.3", "goals=2", "learner.lr=1e-3", "threads=1", "faults.dropout=0.25", "optimiser=adam"]
FILE = """
algorithm:
  name: fedprox+ft
  mu: 0.3
problem: {name: convex, goals: 2}
clients: 7
rounds: 3
seeds: [4, 7]
preferences: 0.7,0.3
participation: 0.5
quorum: 2
learner:
  lr: 1e-3
  optimiser: adam
engine:
  threads: 1
faults: {dropout: 0.25}
"""


def test_a_file_and_the_same_flags_are_the_same_spec(tmp_path: Path) -> None:
    from_flags = Draft().with_values(FLAGS).with_settings(SETTINGS).finish()
    assert load(written(tmp_path, FILE)) == from_flags
    assert from_flags.seeds == (4, 7)
    assert from_flags.learner.lr == 1e-3  # type: ignore[attr-defined]


def test_what_a_spec_writes_it_reads_back(tmp_path: Path) -> None:
    spec = load(written(tmp_path, FILE))
    assert load(written(tmp_path, spec.to_yaml())) == spec


@pytest.mark.parametrize(("algorithm", "problem"), PAIRS)
def test_the_defaults_of_every_algorithm_and_problem_read_back(algorithm: str, problem: str, tmp_path: Path) -> None:
    spec = Draft({"algorithm": algorithm, "problem": problem}).finish()
    assert load(written(tmp_path, spec.to_yaml())) == spec


def test_infinite_and_tiny_parameters_read_back(tmp_path: Path) -> None:
    spec = Draft().with_settings(["similarity_bound=-inf", "lr=1e-12"]).finish()
    assert load(written(tmp_path, spec.to_yaml())) == spec


def test_flags_override_the_file(tmp_path: Path) -> None:
    draft = Draft.read(written(tmp_path, FILE)).with_values({"rounds": 9, "seeds": "2", "problem": None})
    spec = draft.with_settings(["lr=0.5", "mu=0.9"]).finish()
    assert (spec.rounds, spec.seeds, spec.clients) == (9, (0, 1), 7)
    assert spec.to_mapping()["learner"]["lr"] == 0.5
    assert spec.to_mapping()["algorithm"]["mu"] == 0.9


def test_a_flag_with_the_same_name_keeps_the_files_parameters_and_another_drops_them(tmp_path: Path) -> None:
    draft = Draft.read(written(tmp_path, FILE))
    same = draft.with_values({"algorithm": "fedprox+ft", "engine": "local"}).finish()
    assert same.to_mapping()["algorithm"]["mu"] == 0.3
    assert same.engine.threads == 1
    assert draft.with_values({"algorithm": "fedavg"}).finish().algorithm.name == "fedavg"


@pytest.mark.parametrize(
    ("given", "means"),
    [(3, (0, 1, 2)), ("3", (0, 1, 2)), ("4,7", (4, 7)), ("5,", (5,)), ([5], (5,)), ((1, 0), (1, 0)), (1, (0,))],
)
def test_seeds_are_how_many_or_which(given: Any, means: tuple[int, ...], tmp_path: Path) -> None:
    assert Draft({"seeds": given}).finish().seeds == means
    text = yaml.safe_dump({"seeds": list(given) if isinstance(given, tuple) else given})
    assert load(written(tmp_path, text)).seeds == means


def other_value(hint: Any, value: Any) -> Any:
    """Another valid value of a parameter."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return (*value, 3)
    if isinstance(value, int | float):
        return value + 1 if isinstance(value, int) else value / 2 + 0.125
    return "cuda:1" if value == "cpu" else "4GB"


def as_text(value: Any) -> str:
    """A value as it is written after --set key=."""
    return str(list(value)) if isinstance(value, tuple) else str(value)


SECTIONS_OF = [
    ("fedpref", "convex", ("algorithm", "problem", "learner", "engine", "faults")),
    ("fedprox", "synthetic", ("algorithm", "problem")),
]


def parameters() -> list[Any]:
    cases = []
    for algorithm, problem, sections in SECTIONS_OF:
        spec = Draft({"algorithm": algorithm, "problem": problem}).finish()
        for section in sections:
            part = getattr(spec, section)
            hints = get_type_hints(type(part))
            for name in field_names(part):
                value = other_value(hints[name], getattr(part, name))
                cases.append(pytest.param(algorithm, problem, section, name, value, id=f"{problem}-{section}.{name}"))
    return cases


@pytest.mark.parametrize(("algorithm", "problem", "section", "name", "value"), parameters())
def test_every_parameter_can_be_set_bare_and_dotted(
    algorithm: str, problem: str, section: str, name: str, value: Any
) -> None:
    draft = Draft({"algorithm": algorithm, "problem": problem})
    bare, dotted = (draft.with_settings([f"{key}={as_text(value)}"]).finish() for key in (name, f"{section}.{name}"))
    assert bare == dotted
    assert getattr(getattr(bare, section), name) == value


@pytest.mark.parametrize(("algorithm", "problem"), PAIRS)
def test_every_default_of_every_algorithm_and_problem_can_be_set_as_it_is(algorithm: str, problem: str) -> None:
    draft = Draft({"algorithm": algorithm, "problem": problem, "step": "fixed"})
    spec = draft.finish()
    settings = [
        f"{section}.{name}={as_text(getattr(getattr(spec, section), name))}"
        for section in SECTIONS
        for name in field_names(getattr(spec, section))
    ]
    assert settings
    assert draft.with_settings(settings).finish() == spec


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("clients", "4", 4),
        ("rounds", "4", 4),
        ("seeds", "4,7", (4, 7)),
        ("preferences", "[[0.5, 0.5], [0.25, 0.75]]", [[0.5, 0.5], [0.25, 0.75]]),
        ("participation", "0.5", 0.5),
        ("quorum", "1", 1.0),
    ],
)
def test_every_top_level_value_can_be_set(key: str, text: str, value: Any) -> None:
    draft = Draft({"problem": "convex", "clients": 2})
    assert getattr(draft.with_settings([f"{key}={text}"]).finish(), key) == value


def test_a_whole_section_can_be_named_by_set() -> None:
    spec = Draft().with_settings(["algorithm=fedprox", "mu=0.5", "problem=convex"]).finish()
    assert (spec.algorithm.name, spec.problem.name) == ("fedprox", "convex")


def test_a_bare_name_of_two_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass(frozen=True)
    class Quick(Convex):
        name = "quick"
        lr: float = 0.3

    monkeypatch.setitem(registry.problems(), "quick", Quick)
    draft = Draft({"problem": "quick"})
    with pytest.raises(UserError, match=r"--set lr=1: several parts have a 'lr'; write problem\.lr or learner\.lr"):
        draft.with_settings(["lr=1"])
    assert draft.with_settings(["problem.lr=1"]).finish().problem.lr == 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("rounds: [1\n", 2, "expected ',' or ']'"),
        ("rounds: 5\n\tclients: 3\n", 2, "cannot start any token"),
        ("rounds: 5\n\x00", 2, "special characters are not allowed"),
        ("- 1\n- 2\n", 1, "a spec is a list of 'key: value' lines"),
        ("", 1, "a spec is a list of 'key: value' lines"),
        ("[" * 5000, 1, "nested too deeply"),
        ("preferences:\n- &a [1]\n- [*a, *a]\n", 3, "write the value again where '*a' is: a spec has no aliases"),
        ("a: &a {x: 1}\nb: {x: *a}\n", 2, "a spec has no aliases"),
        ("rounds: 2020-13-45\n", 1, "'2020-13-45' cannot be read as timestamp"),
        ("rounds: !!int ''\n", 1, "'' cannot be read as int"),
        ("rounds: !!timestamp x\n", 1, "'x' cannot be read as timestamp"),
        ("defence: {rule: krum, attackers: .inf}\n", 1, "attackers is inf; it is a share below 0.5 or a whole number"),
        ("rounds: !!bool x\n", 1, "'x' cannot be read as bool"),
        ("rounds: " + "9" * 5000, 1, "cannot be read as int"),
        ("rounds: 0x" + "f" * 5000, 1, "a number with so many digits is too large"),
        ("clients: 100000000000\n", 1, "clients is 100,000,000,000; it is at least 1 and at most 10,000,000"),
        ("seeds: 100000000000\n", 1, "seeds is 100,000,000,000; at most 100,000 can be handled"),
        ("rounds: 3\nrouns: 5\n", 2, "unknown key 'rouns'; did you mean 'rounds'?"),
        ("rounds: 3\nclients: 4\nrounds: 5\n", 3, "'rounds' is given a second time"),
        ("1: 2\n", 1, "unknown key '1'"),
        ("clients: many\n", 1, "clients is 'many'; it should be a whole number"),
        ("clients: 2.5\n", 1, "clients is 2.5; it should be a whole number"),
        ("rounds: 5\nclients: 0\n", 2, "clients is 0; it is at least 1 and at most 10,000,000"),
        ("rounds: -1\n", 1, "rounds is -1; it is at least 1 and at most 1,000,000,000"),
        ("rounds: true\n", 1, "rounds is True; it should be a whole number"),
        ("rounds:\n", 1, "rounds is None; it should be a whole number"),
        ("seeds: many\n", 1, "seeds is 'many'; write how many, such as 3, or which, such as 4,7"),
        ("seeds: [1, 1]\n", 1, "seeds is [1, 1]; each seed may be listed once"),
        ("seeds: [1, -1]\n", 1, "seeds is [1, -1]; a seed is not negative"),
        ("seeds: []\n", 1, "seeds is []; at least one seed is needed"),
        ("seeds: [1, x]\n", 1, "seeds is 'x'; it should be a whole number"),
        ("participation: .nan\n", 1, "participation is nan; it is a share above 0 and at most 1"),
        ("quorum: .nan\n", 1, "quorum is nan; it is a share below 1 or a whole number of clients"),
        ("quorum: .inf\n", 1, "quorum is inf; it is a share below 1 or a whole number of clients"),
        ("quorum: 2.5\n", 1, "quorum is 2.5; it is a share below 1 or a whole number of clients"),
        ("clients: 3\nquorum: 4\n", 2, "quorum is 4, but there are only 3 clients"),
        ("rounds: 1\npreferences: [0.7, 0.7]\n", 2, "weights sum to 1.4"),
        ("algorithm: fedprf\n", 1, "unknown algorithm 'fedprf'; did you mean 'fedpref'?"),
        ("algorithm:\n  name: fedpref\n  top_ration: 0.1\n", 3, "'top_ration'; did you mean 'top_ratio'?"),
        ("algorithm:\n  name: fedpref\n  patience: 0\n", 3, "patience is 0"),
        ("algorithm: [fedpref]\n", 1, "algorithm is ['fedpref']; it should be its name, or a group of 'key: value'"),
        ("algorithm:\n  name: 5\n", 2, "algorithm: name is 5; it should be a text"),
        ("problem: convx\n", 1, "unknown problem 'convx'; did you mean 'convex'?"),
        ("problem: {name: convex}\nlearner:\n  lr: 0.1\n  epochs: 0\n", 4, "epochs"),
        ("learner: fast\n", 1, "learner is 'fast'; it should be a group of 'key: value' lines"),
        ("learner:\n  lr: fast\n", 2, "learner: lr is 'fast'; it should be a number"),
        ("learner:\n  1: 2\n", 2, "unknown parameter of learner '1'"),
        ("engine: lokal\n", 1, "unknown engine 'lokal'; did you mean 'local'?"),
        ("engine:\n  memory: 4 bananas\n", 2, "memory is '4 bananas'; write a number with a unit"),
        ("faults:\n  corrupt: 2\n", 2, "corrupt is 2; it is at least 0 and at most 1"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_file_line_and_key(text: str, line: int, words: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)


def test_a_bad_set_is_blamed_on_the_flag_and_not_on_the_file(tmp_path: Path) -> None:
    draft = Draft.read(written(tmp_path, FILE))
    with pytest.raises(UserError, match=r"^--set lr=fast: learner: lr is 'fast'; it should be a number$"):
        draft.with_settings(["lr=fast"]).finish()
    with pytest.raises(UserError, match=r"^--set rounds=0: rounds is 0; it is at least 1 and at most 1,000,000,000$"):
        draft.with_settings(["rounds=0"]).finish()


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"rounds: 5\n\xff\xfe")
    with pytest.raises(UserError, match="line 2: not UTF-8 text"):
        load(path)


def test_an_error_does_not_steer_the_terminal_by_what_a_file_holds(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text('algorithm: "\\e]0;title\\a\\e[2J\\x9b31m\\u202egpj"\n')
    with pytest.raises(UserError) as refused:
        Draft.read(tmp_path / "spec.yaml").finish()
    assert r"'\x1b]0;title\x07\x1b[2J\x9b31m\u202egpj'" in str(refused.value)


@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\U00110000", "\\x", "\\uZZZZ"])
def test_a_letter_that_is_none_is_refused(escape: str, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(f'algorithm: "{escape}"\n')
    with pytest.raises(UserError, match=r"spec\.yaml, line 1"):
        Draft.read(tmp_path / "spec.yaml")


def test_arrays_of_preferences_can_be_written(tmp_path: Path) -> None:
    spec = Draft({"problem": "convex", "clients": 2, "preferences": np.full((2, 2), 0.5)}).finish()
    assert load(written(tmp_path, spec.to_yaml())) == spec


def test_a_parameter_that_no_file_can_hold_is_refused_when_writing() -> None:
    @dataclasses.dataclass(frozen=True)
    class Odd(Convex):
        name = "odd"
        thing: Any = None

    ready = Draft({"problem": "convex"}).finish()
    spec = dataclasses.replace(ready, problem=Odd(thing=np.zeros(2)))
    assert isinstance(spec, Spec)
    with pytest.raises(UserError, match="cannot be written to a file"):
        spec.to_yaml()


def test_a_list_that_is_set_twice_is_refused_with_the_list_that_may_be_meant():
    for key in ("drop", "problem.drop"):
        with pytest.raises(UserError, match=r"drop is set twice; .* --set (problem\.)?drop=race,gender"):
            Draft({"problem": "adult"}).with_settings([f"{key}=race", f"{key}=gender"])


def test_of_a_single_value_the_last_that_is_set_counts():
    assert Draft({"problem": "adult"}).with_settings(["lr=0.1", "alpha=0.2", "lr=0.3"]).finish().learner.lr == 0.3
