"""The form of a new run: all that there is, and what a choice comes to, checked by the command line's own code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import httpx
import pytest
import yaml
from fastapi import FastAPI

from browsing import apart
from fedpareto.config.parameters import field_names
from fedpareto.config.source import field_docs
from fedpareto.contract import consent, registry
from fedpareto.spec import backends
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import PARTS, TOP_LEVEL
from fedpareto_page import form, form_worker
from fedpareto_page.worker import Worker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from typer.main import get_command

    from fedpareto.cli import app as commands


def spec_of(command: str) -> str:
    """The spec.yaml that a command line means, by the parser of `fedpareto run`."""
    program, name, *arguments = shlex.split(command)
    assert (program, name) == ("fedpareto", "run")
    flags = get_command(commands).commands["run"].make_context("run", arguments).params
    settings = flags.pop("settings")
    given = {
        key: value for key, value in flags.items() if key in {*TOP_LEVEL, *PARTS, "algorithm", "problem", "engine"}
    }
    return Draft().with_values(given).with_settings(settings or []).finish().to_yaml()


def told(values):
    """What the form is told, and the same as a command and as a file, each as a whole spec."""
    found = form_worker.check(values)
    assert found["error"] is None, found
    return found, form.command_of(found["words"], Path("runs/new"))


def test_every_algorithm_problem_engine_and_part_is_offered_with_all_its_parameters_and_their_prose():
    found = json.loads(json.dumps(form_worker.form(), allow_nan=False))
    for kind, classes in (
        ("algorithms", registry.algorithms()),
        ("problems", registry.problems()),
        ("engines", {name: backends.backend(name).options for name in backends.names()}),
    ):
        offered = {one["name"]: one for one in found[kind]}
        assert offered.keys() == classes.keys()
        for name, cls in classes.items():
            assert [one["name"] for one in offered[name]["parameters"]] == field_names(cls)
            said = field_docs(cls)
            assert all(one["meaning"] == said.get(one["name"], "") for one in offered[name]["parameters"])
            assert offered[name]["about"].endswith("."), "a whole sentence"
    assert {one["name"]: [p["name"] for p in one["parameters"]] for one in found["sections"]} == {
        name: field_names(cls) for name, cls in PARTS.items()
    }
    assert [one["name"] for one in found["spec"]] == list(TOP_LEVEL)
    assert all(one["meaning"] for one in found["spec"]), "every value of a spec is explained"
    (synthetic,) = (one for one in found["problems"] if one["name"] == "synthetic")
    problem = registry.problem_class("synthetic")()
    assert {one["name"]: one["default"] for one in synthetic["learner"]}["lr"] == problem.learner().lr
    assert synthetic["clients"] == problem.default_clients()
    kinds = next(one for one in found["sections"] if one["name"] == "attack")["parameters"][0]
    assert kinds["type"] == "choice"
    assert "sign-flip" in kinds["choices"]


EXAMPLES = [
    {"algorithm": "fedpref", "problem": "synthetic"},
    {
        "algorithm": "fedavg+ft",
        "problem": "convex",
        "rounds": "3e1",
        "seeds": "3",
        "clients": " 4 ",
        "learner.lr": "1e-2",
    },
    {"algorithm": "fedpref", "algorithm.top_ratio": "0.3", "preferences": "0.7,0.3", "seeds": "4,7", "quorum": "2"},
    {
        "algorithm.name": "local",
        "problem.name": "synthetic",
        "seeds": [4],
        "preferences": [[0.2, 0.8]] * 3,
        "clients": 3,
    },
    {"attack.kind": "sign-flip", "defence.rule": "median", "algorithm": "fedavg", "attack.clients": "1,2"},
    {"devices.kind": "tiers", "selection.kind": "oort", "selection.decay": "0.9", "hours": "2", "participation": "0.5"},
    {"algorithm": "fedbuff", "devices": "equal", "policy.buffer": "2", "measure_losses": "true", "engine": "local"},
    {"privacy.kind": "none", "engine": "ray", "engine.workers": "2", "faults.dropout": "0.2"},
]


@pytest.mark.parametrize("values", EXAMPLES, ids=str)
def test_the_file_and_the_command_mean_the_same_spec_as_the_form_to_the_byte(values, tmp_path):
    found, command = told(values)
    file = tmp_path / "spec.yaml"
    file.write_text(found["yaml"], encoding="utf-8")
    wanted = form_worker._draft(form_worker._in_order({k.removesuffix(".name"): v for k, v in values.items()})).finish()
    assert Draft.read(file).finish().to_yaml() == spec_of(command) == wanted.to_yaml()


def test_only_what_differs_from_the_defaults_is_written():
    usual = Draft({"algorithm": "fedpref", "problem": "synthetic"}).finish().to_mapping()
    flat = {
        f"{section}.{key}": value
        for section in usual
        if isinstance(usual[section], dict)
        for key, value in usual[section].items()
    }
    everything = {key: value for key, value in usual.items() if not isinstance(value, dict)} | flat
    found, command = told(everything | {"rounds": 7})
    assert found["yaml"] == "algorithm: fedpref\nproblem: synthetic\nrounds: 7\n"
    assert command == "fedpareto run fedpref --problem synthetic --rounds 7 --out runs/new"
    assert found["name"] == "fedpref-synthetic"


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"algorithm": "fedpreff"}, "algorithm", "unknown algorithm 'fedpreff'; did you mean 'fedpref'?"),
        ({"algorithm.name": "nothing-like-it"}, "algorithm", "unknown algorithm"),
        ({"rounds": "0"}, "rounds", "rounds is 0; it is at least 1 and at most 1,000,000,000"),
        ({"rounds": "many"}, "rounds", "rounds is 'many'; it should be a whole number"),
        ({"learner.lr": "fast"}, "learner.lr", "learner: lr is 'fast'; it should be a number"),
        ({"preferences": "0.7,0.7,0.7"}, "preferences", "preference"),
        ({"quorum": "99"}, "quorum", "quorum is 99, but there are only 10 clients"),
        ({"rouds": "3"}, "rouds", "did you mean 'rounds'?"),
        ({"attack.kind": "sign-flip", "attack.from_round": "50"}, "attack.from_round", "50"),
        ({"problem": "table"}, "problem", "the problem 'table' needs file"),
        ({"algorithm": "praffl", "problem": "deep-sea-treasure"}, "algorithm", "needs a problem with losses on rows"),
        ({"algorithm": "fairfed", "problem": "mnist"}, "algorithm", "needs a problem that compares groups of people"),
    ],
)
def test_what_is_wrong_is_told_in_the_command_lines_words_with_the_field_that_it_is_about(values, field, said):
    found = form_worker.check(values)
    assert said in found["error"]
    assert "⟨" not in found["error"], "the place is the field's, not the reader's"
    assert (found["field"], found["yaml"], found["words"]) == (field, None, None)


@pytest.mark.takes_long
def test_the_page_asks_a_process_of_its_own_and_never_loads_torch(tmp_path):
    code = "import sys, fedpareto_page.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    worker = Worker(form.TARGET)
    (tmp_path / "fedpref-synthetic").mkdir()
    api = FastAPI()
    api.include_router(form.routes(worker, tmp_path))
    try:
        found = [one.json() for one in apart(answers(api))]
    finally:
        worker.close()
    assert {"fedpref", "praffl"} <= {one["name"] for one in found[0]["algorithms"]}
    folder = str(tmp_path / "fedpref-synthetic-2")
    assert found[1]["command"] == shlex.join(["fedpareto", "run", "fedpref", "--rounds", "5", "--out", folder])
    assert (found[2]["field"], found[2]["command"]) == ("name", None)
    assert "a folder cannot be called '../elsewhere' here" in found[2]["error"]


@pytest.mark.parametrize("job", ["check", "outline"])
@pytest.mark.parametrize("value", [10**3999, str(10**3999), "0x" + "f" * 9000, "-" * 100_000 + "1", "a\0b", [10**3999]])
@pytest.mark.parametrize("key", ["clients", "seeds", "lr", "codec", "engine.threads", "problem", "algorithm.x"])
def test_what_is_no_value_of_any_run_is_one_line(key, value, job):
    found = form_worker.answer(job, {key: value})
    assert found["error"]
    assert "\n" not in found["error"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_part_s_kind_and_its_parameters_stand_together(order):
    values = {"devices": "file", "devices.file": "machines.csv", "algorithm": "fedavg"}
    found = form_worker.check(dict(list(values.items())[::order]), form_worker.outlined)
    assert found["error"] is None
    assert yaml.safe_load(found["yaml"])["devices"] == {"kind": "file", "file": "machines.csv"}


@pytest.mark.parametrize(
    "values",
    [
        {"problem": "compas", "partition": "column:race"},
        {"problem": "table", "file": "people.csv", "label": "hired", "partition": "column:branch"},
        {"problem": "silo", "schema": "schema.json"},
    ],
)
def test_a_page_that_only_watches_reads_no_data(values, monkeypatch, tmp_path):
    for name, value in consent.strict(blind=True).items():
        monkeypatch.setenv(name, value)
    consent.allow_files()
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    found = form_worker.check({"algorithm": "fedavg", **values}, form_worker.outlined)
    assert "a page that only watches reads no data" in found["error"]


async def answers(api):
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://here") as client:
        return [
            await client.get("/api/form"),
            await client.post("/api/check", json={"values": {"rounds": "5"}}),
            await client.post("/api/check", json={"values": {}, "name": "../elsewhere"}),
        ]
