"""The documents keep their word: their code and commands run, their links lead somewhere, their tables are complete."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
import tomllib
import types
import warnings
from pathlib import Path
from urllib.parse import unquote

import pytest

import fedpareto
import processes
from fedpareto.clock.devices import Devices
from fedpareto.clock.policy import Policy
from fedpareto.clock.selection import Selection
from fedpareto.config.keys import about
from fedpareto.contract.privacy import Privacy
from fedpareto.contract.registry import algorithms, problems
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import LocalOptions
from fedpareto.learners.ddpg import DDPG
from fedpareto.learners.dqn import DQN
from fedpareto.learners.supervised import Supervised
from fedpareto.problems import data
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence
from fedpareto_ray.options import RayOptions
from fedpareto_space.links.channel import Channel
from fedpareto_space.links.managed import Managed
from fedpareto_space.missions.options import MissionOptions
from little_work import LITTLE_WORK

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    import typer

    from fedpareto.cli import app, main

ROOT = Path(__file__).parents[1]
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("packages/*/*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
}
TUTORIALS = [name for name in DOCUMENTS if name.startswith("docs/tutorial-")]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
FENCE = re.compile(r"^```(?P<language>\w*)(?P<title>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| `?(.*?)`? \|", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
COMMANDS = typer.main.get_command(app)
KEYS = {one.name for one in about()}
QUICK = ["--quiet", "--rounds", "2", "--set", "threads=1", "--set", "chunk=64"]
"""What makes a run short; the last word on an option counts."""
LONG = ("demo", "sweep", "tune", "reproduce", "matrix", "audit")
LITTLE_TRAINING = {"deep-sea-treasure": {"steps": 50}, "praffl": LITTLE_WORK["praffl"]}
"""What else, for those that train for long in a round."""
MOST_BYTES_OF_A_PICTURE = 150_000


def blocks(document, *languages):
    """The fenced blocks in these languages, each with its first line's number."""
    text = DOCUMENTS[document]
    for match in FENCE.finditer(text):
        if match["language"] in languages:
            yield text[: match.start("body")].count("\n"), match["body"]


def commands(document):
    """The words of every `fedpareto …` line, without prompt and comment."""
    for _, body in blocks(document, "bash", "console"):
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            if words[:1] == ["fedpareto"]:
                yield words[1:]


def section(document, heading):
    """The text under a heading of the second level."""
    (body,) = re.findall(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", DOCUMENTS[document], re.MULTILINE | re.DOTALL)
    return body


def defaults(cls):
    """Every parameter with its default, as a table shows it."""
    return {field.name: str(field.default) or "empty" for field in dataclasses.fields(cls)}


def documents_with(*languages):
    return [name for name in DOCUMENTS if any(blocks(name, *languages))]


MACHINES = ("docs/cluster.md",)
"""Whose commands start machines of Ray."""
LEARNING = ("docs/reinforcement-learning.md", "docs/space-models.md")
"""Whose code learns until it has found a front, or exports what was learnt."""
TURNING = "dial"
"""The notebook that trains a model for any preference."""
MANY = ("docs/algorithms.md", "docs/problems.md", "docs/space-missions.md")
"""With so many commands, some on published data sets, that they take seconds of the processor."""


def marked(documents, long):
    """Those that take long."""
    return [pytest.param(name, marks=[pytest.mark.takes_long] * (name in long)) for name in documents]


# -- what is in a block runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document", marked([name for name in documents_with("python") if name not in TUTORIALS], LEARNING)
)
def test_python_blocks_run_one_after_the_other(document, tmp_path, monkeypatch):
    """In one namespace, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    module = types.ModuleType("typed_by_a_reader")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for line, code in blocks(document, "python"):
        # The empty lines give an error the document's own line numbers.
        exec(compile("\n" * line + code, document, "exec", dont_inherit=True), module.__dict__)


class Absent(BaseException):
    """A command wants a published data set that is not here; nobody below is to catch it."""


def shortened(words):
    """The words of a command; those of a run or a mission end with what makes it short."""
    if words[:2] == ["space", "simulate"]:
        return [*words, *QUICK[:1], "--set", "rounds=2", *QUICK[3:]]
    if words[0] != "run":
        return words
    settings = [f"{key}={value}" for name in words for key, value in LITTLE_TRAINING.get(name, {}).items()]
    return [*words, *QUICK, *(part for setting in settings for part in ("--set", setting))]


def parse(words):
    """The command's arguments are read, and no more."""
    command, *arguments = words
    group = COMMANDS.commands[command]
    if command in ("data", "server", "node", "space"):
        command, *arguments = arguments
        group = group.commands[command]
    group.make_context(command, arguments)


@pytest.mark.parametrize(
    "document", marked([name for name in DOCUMENTS if any(commands(name)) and name not in TUTORIALS], MACHINES + MANY)
)
def test_commands_run_one_after_the_other(document, tmp_path, monkeypatch, capsys, published):
    """With two rounds instead of many, and without measuring. Those that take long are parsed, so are `server` and
    `node`, which wait for each other (tests/deploy runs them), `serve` and `page`, without end, and those of the
    gallery, whose pictures are kept.

    So are commands on data sets that are not here: the test then counts as skipped, after all others were tried.
    """

    def absent(dataset, *arguments):
        raise Absent(dataset.name)

    monkeypatch.setattr(data, "fetch", absent)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    for _, body in blocks(document, "yaml"):
        Path(body.splitlines()[0].removeprefix("# ")).write_text(body, encoding="utf-8")
    missing = []
    for words in commands(document):
        if words[0] in (*LONG, "server", "node", "serve", "page") or document == "docs/gallery.md":
            parse(words)
            continue
        monkeypatch.setattr(sys, "argv", ["fedpareto", *shortened(words)])
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        except Absent as absence:
            missing.append(str(absence))
            parse(words)
        else:
            may_fail = bool(missing)  # It may be about what a command before it would have made.
            assert ended.value.code == 0 or may_fail, f"{shlex.join(words)}: {capsys.readouterr().err}"
    for name in missing:
        published(name)


@pytest.mark.takes_long
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda name: Path(name).stem)
def test_a_reader_can_do_what_the_tutorial_says(tutorial, tmp_path):
    """Every file, every command and every block of Python, in this order, in an empty folder; with three rounds where
    people train better or need the time to read.
    """
    from fedpareto_flower.engine.launch import free_ports

    copy = tmp_path / "tutorial.md"
    ports = dict(zip(("8443", "8000"), map(str, free_ports(2)), strict=True))  # others may be busy with these
    shorter = re.sub(r"\b(rounds[ :=]+)\d\d+\b", r"\g<1>3", DOCUMENTS[tutorial])
    copy.write_text(re.sub("|".join(ports), lambda port: ports[port[0]], shorter), encoding="utf-8")
    desk = tmp_path / "desk"
    desk.mkdir()
    done = processes.run(
        [sys.executable, Path(__file__).parent / "reader.py", copy],
        cwd=desk,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, ROOT.glob("packages/*/src")))},
    )
    logs = "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in desk.glob("job-*.log"))
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{logs[-3000:]}"


@pytest.mark.parametrize(
    "notebook",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.takes_long] * (path.stem == TURNING)) for path in NOTEBOOKS],
)
def test_notebooks_run_from_the_first_cell_to_the_last(notebook, tmp_path, monkeypatch):
    """As a script; `make docs` runs them in a kernel. What is committed has no outputs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    session = {"__name__": "typed_by_a_reader"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"], start=1):
        if cell["cell_type"] == "code":
            assert not cell["outputs"]
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), session)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out, "an example shows something"
    assert f"python examples/{example.name}" in example.read_text(encoding="utf-8"), "it says how to run it"


# -- what is named exists ------------------------------------------------------------------------------------------


def anchors(text):
    """The places in a document that a link can point to, as GitHub and most site generators name them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_relative_links_lead_somewhere(document):
    for target in LINK.findall(FENCE.sub("", DOCUMENTS[document])):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        place = ((ROOT / document).parent / unquote(path)).resolve() if path else ROOT / document
        assert place.exists(), f"{document} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(place.read_text(encoding="utf-8")), f"{document}: {target} has no such heading"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_no_document_names_a_path_of_one_machine(document):
    assert not re.findall(r"(?<![\w.])/(?:work|tmp|home|root|usr|Users)/\S*", DOCUMENTS[document])


def test_pictures_are_small_and_shown():
    pictures = list((ROOT / "docs" / "pictures").iterdir())
    assert pictures
    for picture in pictures:
        assert picture.read_bytes().startswith(b"\x89PNG"), f"{picture.name} is no PNG"
        assert picture.stat().st_size <= MOST_BYTES_OF_A_PICTURE, f"{picture.name} is too large"
        assert any(f"pictures/{picture.name})" in text for text in DOCUMENTS.values()), f"{picture.name} is not shown"


def test_every_document_is_on_the_map():
    for document in DOCUMENTS:
        page = Path(document)
        if page.parent.name == "docs" and page.stem != "index":
            assert f"]({page.name})" in DOCUMENTS["docs/index.md"], f"docs/index.md does not name {page.name}"
    for notebook in NOTEBOOKS:
        assert f"](notebooks/{notebook.name})" in DOCUMENTS["docs/index.md"]


def test_every_extra_is_named():
    extras = tomllib.loads((ROOT / "packages/fedpareto/pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert set(re.findall(r"^\| `([\w-]+)` \|", section("README.md", "Extras"), re.MULTILINE)) == set(extras)


# -- what exists is named ------------------------------------------------------------------------------------------


OWN_ALGORITHMS = [name for name, cls in algorithms().items() if cls.__module__.startswith("fedpareto.")]
OWN_PROBLEMS = [name for name, cls in problems().items() if cls.__module__.startswith("fedpareto.")]


@pytest.mark.parametrize("name", OWN_ALGORITHMS)
def test_every_algorithm_is_documented_with_its_hyper_parameters_and_labels(name):
    cls, text = algorithms()[name], section("docs/algorithms.md", f"`{name}`")
    assert dict(ROW.findall(text)) == defaults(cls)
    labels = cls.taxonomy
    assert f"Taxonomy: {labels.place}; {labels.method}; {labels.objectives} objectives." in text
    assert f"`{name}`" in section("docs/algorithms.md", "What there is")


@pytest.mark.parametrize("name", OWN_PROBLEMS)
def test_every_problem_is_documented_with_its_parameters_and_objectives(name):
    cls, text = problems()[name], section("docs/problems.md", f"`{name}`")
    assert dict(ROW.findall(text)) == defaults(cls)
    for objective in cls().objectives:
        assert f"`{objective.name}`" in text or objective.name == "distance 2", "`distance 1` … `distance m` will do"
    assert f"`{name}`" in section("docs/problems.md", "What there is")


@pytest.mark.parametrize(
    ("document", "heading", "cls"),
    [
        ("docs/algorithms.md", "How clients train", Supervised),
        ("docs/reinforcement-learning.md", "DQN", DQN),
        ("docs/reinforcement-learning.md", "DDPG", DDPG),
        ("docs/engine.md", "Chunks", LocalOptions),
        ("docs/cluster.md", "Options", RayOptions),
        ("docs/running.md", "Participation, quorum, faults", Faults),
        ("docs/privacy.md", "Parameters", Privacy),
        ("docs/secure-sum.md", "Parameters", SecureSum),
        ("docs/attacks.md", "Attacks", Attack),
        ("docs/attacks.md", "Defences", Defence),
        ("docs/time.md", "Devices", Devices),
        ("docs/time.md", "Who is asked", Selection),
        ("docs/time.md", "For whom a round waits", Policy),
        ("docs/space-links.md", "Channels", Channel),
        ("docs/space-links.md", "Managed parameters", Managed),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_other_parameter_is_documented(document, heading, cls):
    assert dict(ROW.findall(section(document, heading))) == defaults(cls)


def test_every_option_of_a_mission_is_documented_beside_those_of_the_local_engine():
    own = {name: value for name, value in defaults(MissionOptions).items() if name not in defaults(LocalOptions)}
    assert dict(ROW.findall(section("docs/space-missions.md", "Options"))) == own


def test_every_command_and_every_flag_of_run_is_documented():
    shown = {words[0] for document in DOCUMENTS for words in commands(document)}
    assert shown == set(COMMANDS.commands)
    flags = {option for parameter in COMMANDS.commands["run"].params for option in parameter.opts}
    flags -= {f"--no-{name.replace('_', '-')}" for name in KEYS}
    for flag in flags:
        key = flag.removeprefix("--").replace("-", "_")
        name = key if key in KEYS else flag if flag.startswith("-") else flag.upper()
        assert len(name) == 2 or f"`{name}" in section("docs/running.md", "From the command line"), f"{name} is missing"


def test_every_file_and_field_of_a_run_folder_is_documented(tmp_path):
    folder = tmp_path / "run"
    engine, faults = {"chunk": 10, "threads": 1}, {"dropout": 0.5}
    fedpareto.run("convex", "fedpref", rounds=2, engine=engine, faults=faults, out=folder)
    text = section("docs/running.md", "The run folder")
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        assert f"`{path.name}`" in text
        if path.suffix == ".json":
            value = json.loads(path.read_text(encoding="utf-8"))
            fields = set(value[0] if isinstance(value, list) else value)
        elif path.suffix == ".jsonl":
            fields = {field for line in path.read_text(encoding="utf-8").splitlines() for field in json.loads(line)}
        else:
            continue
        assert not [field for field in fields if f"`{field}`" not in text], f"fields of {path.name} are missing"


def test_every_check_of_the_conformance_suite_is_explained():
    from fedpareto.testing.conformance import ALGORITHM_CHECKS, PLAY_CHECKS, PROBLEM_CHECKS

    explained = DOCUMENTS["docs/develop/add-an-algorithm.md"] + DOCUMENTS["docs/develop/add-a-problem.md"]
    for check in (*ALGORITHM_CHECKS, *PROBLEM_CHECKS, *PLAY_CHECKS):
        assert f"| `{check.__name__}` |" in explained
