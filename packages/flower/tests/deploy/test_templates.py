"""What other programs read: units, compose files and the image say what the commands here understand."""

from __future__ import annotations

import configparser
import fnmatch
import json
import os
import re
import shlex
import tomllib
import warnings
from pathlib import Path

import pytest
import typer
import yaml

from fedpareto.spec.draft import Draft
from fedpareto_flower.deploy.create import create

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Typer 0.20 imports what click 8.5 would rather not give.
    from fedpareto.cli import app

ROOT = Path(__file__).resolve().parents[4]


def understood(words):
    """Whether the command line has this command, and the command these options."""
    program, *words = words
    assert program == "fedpareto"
    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, (command.name, words)
    return command.name


def unit(path):
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(path, encoding="utf-8")
    return parser


@pytest.fixture
def remote(schema, tmp_path):
    """A deployment for other machines, in a folder with a name that needs care."""
    return create(tmp_path / "my 5% federation", schema, Draft(), [], 2, "learn.example.org", 9443)


@pytest.fixture
def units(remote):
    paths = (remote.folder / "systemd" / "fedpareto-server.service", remote.node(1) / "fedpareto-node.service")
    return [unit(path) for path in paths]


@pytest.fixture
def services(remote):
    found = {}
    for folder in (remote.folder, remote.node(1)):
        found |= yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"]
    return found


def test_units_start_commands_that_exist_in_the_folder_of_the_party(remote, units):
    started = []
    for one, place in zip(units, (remote.folder, remote.node(1)), strict=True):
        env, *words = shlex.split(one["Service"]["ExecStart"])
        assert env == "/usr/bin/env"
        started.append(understood(words))
        assert one["Service"]["WorkingDirectory"] == str(place).replace("%", "%%")
        assert shlex.split(one["Service"]["ReadWritePaths"]) == [str(place).replace("%", "%%")]
    assert started == ["resume", "up"]


def test_units_are_restarted_after_a_failure_and_not_after_a_mistake_or_a_stop(units):
    for one in units:
        service = one["Service"]
        assert (service["Restart"], service["RestartPreventExitStatus"]) == ("on-failure", "2")
        assert (service["SuccessExitStatus"], service["KillSignal"], service["KillMode"]) == ("143", "SIGTERM", "mixed")


def test_units_may_write_to_their_folder_and_gain_no_rights(units):
    for one in units:
        service = one["Service"]
        assert service["User"] != "root"
        assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")
        assert service["CapabilityBoundingSet"] == ""


def test_compose_files_check_the_health_of_what_they_start(services):
    assert set(services) == {"server", "node-1"}
    for name, started in (("server", "resume"), ("node-1", "up")):
        service = services[name]
        assert understood(service["command"]) == started
        kind, *words = service["healthcheck"]["test"]
        assert kind == "CMD"
        assert understood(words) == "status"
        assert words[1] == service["command"][1]
        folder = next(word for word in words if word.startswith("/"))
        assert folder in service["command"]
        assert f".:{folder}" in service["volumes"]
        assert service["restart"] == "on-failure"
        assert service["logging"]["options"] == {"max-size": "10m", "max-file": "5"}


def test_containers_own_nothing_but_their_folder(remote, services):
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == f"${{FEDPARETO_USER:-{os.getuid()}:{os.getgid()}}}"
    fixed = [volume.split(":") for volume in services["server"]["volumes"] if volume.endswith(":ro")]
    assert {inside for _, inside, _ in fixed} == {
        f"/deployment/{name}" for name in ("spec.yaml", "schema.json", "deployment.json")
    }
    assert all((remote.folder / outside).is_file() for outside, _, _ in fixed)
    assert services["node-1"]["volumes"][1].endswith(":/data/table.csv:ro")
    assert services["server"]["ports"] == ["9443:9443"]


def test_loopback_is_shared_with_the_machine(deployment):
    for folder, name in ((deployment.folder, "server"), (deployment.node(0), "node-0")):
        service = yaml.safe_load((folder / "compose.yaml").read_text(encoding="utf-8"))["services"][name]
        assert service["network_mode"] == "host"
        assert "ports" not in service


# -- the image -----------------------------------------------------------------------------------------------------


@pytest.fixture
def steps():
    """The instructions of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def test_the_image_copies_what_is_there_and_nothing_else_is_sent(steps):
    sources = {word for name, rest in steps if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in sources)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == sources
    assert not [source for source in sources if fnmatch.fnmatch(source, "*.key")]


def test_the_image_installs_packages_and_extras_that_exist(steps):
    (installed,) = [rest for name, rest in steps if name == "RUN" and "packages/" in rest]
    wanted = dict(re.findall(r"packages/(\w+)(?:\[([\w,]+)\])?", installed))
    assert {"fedpareto", "flower"} <= wanted.keys()
    for package, extras in wanted.items():
        text = (ROOT / "packages" / package / "pyproject.toml").read_text(encoding="utf-8")
        known = tomllib.loads(text)["project"].get("optional-dependencies", {})
        assert set(filter(None, extras.split(","))) <= set(known)


def test_the_image_runs_as_nobody_special_and_says_how_it_is(steps):
    assert dict(steps)["USER"] == "1000:1000"
    shell, option, script = json.loads(dict(steps)["HEALTHCHECK"].partition("CMD ")[2])
    assert (shell, option) == ("sh", "-c")
    checks = [part.split() for part in script.replace("then", ";").split(";") if part.split()[:1] == ["fedpareto"]]
    assert [understood(words) for words in checks] == ["status", "status"]


def test_the_page_names_the_image_that_the_compose_files_want(remote, services):
    page = (remote.folder / "README.md").read_text(encoding="utf-8")
    (image,) = {service["image"] for service in services.values()}
    assert f"docker build -t {image} ." in page


def test_a_party_that_gets_its_folder_alone_finds_in_it_what_to_do(remote):
    page = (remote.node(1) / "README.md").read_text(encoding="utf-8")
    assert f"{remote.host}:{remote.port}" in page
    typed = [shlex.split(part) for part in page.split("`")[1::2] if part.startswith("fedpareto ")]
    assert [understood(words) for words in typed] == ["check", "status", "predict", "serve"]
    assert all((remote.node(1) / name).exists() for name in ("start.sh", "fedpareto-node.service", "spec.yaml"))
