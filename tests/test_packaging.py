"""What is installed: the lock file agrees with pyproject.toml, and the documents with the lock file."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.version import Version

ROOT = Path(__file__).parents[1]
LOCK = runpy.run_path(str(ROOT / "tools/lock.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def lock():
    return LOCK["read"]()


def test_the_lock_file_is_that_of_pyproject():
    check = [sys.executable, "-m", "uv", "lock", "--check", "--offline", "--no-cache", "--no-python-downloads"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("UV_")
    }  # a mirror's, perhaps
    done = subprocess.run(check, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"run: make lock\n{done.stderr}"


def test_every_file_of_the_lock_has_a_hash(lock):
    for name in lock.keys() - {"fedpareto"}:
        files = [*lock[name].get("wheels", []), *([lock[name]["sdist"]] if "sdist" in lock[name] else [])]
        assert files, name
        assert all(file["hash"].startswith("sha256:") for file in files), name


def test_pip_gets_the_versions_of_the_lock(lock):
    pins = {pin.name: pin for pin in map(Requirement, LOCK["pins"](lock))}
    assert pins.keys() == lock.keys() - {"fedpareto"}
    assert all(pins[name].specifier.contains(Version(lock[name]["version"])) for name in pins)
    assert pins["torch"].specifier.contains(lock["torch"]["version"] + "+cpu")  # that of the index without CUDA


def test_what_is_installed_follows_the_markers_of_the_machine(lock):
    on_linux = LOCK["needed"](lock, None, "3.12", "Linux x86-64")
    on_mac = LOCK["needed"](lock, None, "3.12", "macOS ARM")
    assert on_linux - on_mac
    assert all(name.startswith(("nvidia-", "cuda-", "triton")) for name in on_linux - on_mac)
    assert {Requirement(entry).name for entry in PROJECT["dependencies"]} <= on_mac
    assert not {"ray", "flwr", "mujoco", "stable-baselines3", "fastapi"} & on_linux


@pytest.mark.parametrize(
    ("tag", "python", "machine", "fit"),
    [
        (Tag("py3", "none", "any"), "3.14", "Windows", True),
        (Tag("cp312", "cp312", "manylinux_2_28_x86_64"), "3.12", "Linux x86-64", True),
        (Tag("cp312", "cp312", "manylinux_2_28_x86_64"), "3.13", "Linux x86-64", False),
        (Tag("cp312", "cp312", "manylinux_2_28_x86_64"), "3.12", "Linux ARM", False),
        (Tag("cp39", "abi3", "macosx_11_0_arm64"), "3.14", "macOS ARM", True),
        (Tag("cp313", "abi3", "win_amd64"), "3.12", "Windows", False),
        (Tag("cp314", "cp314t", "win_amd64"), "3.14", "Windows", False),
    ],
)
def test_a_wheel_fits_by_its_tag(tag, python, machine, fit):
    assert LOCK["fits"](tag, python, machine) is fit


def test_the_development_extra_has_everything_that_users_can_ask_for(lock):
    (all_of_them,) = [entry for entry in map(Requirement, EXTRAS["dev"]) if entry.name == "fedpareto"]
    assert all_of_them.extras == EXTRAS.keys() - {"dev", "docs"}


def test_the_installation_page_says_what_resolves_where(lock):
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    assert "\n".join(LOCK["table"](lock)) in page, "python tools/lock.py wheels"


def test_the_installation_page_names_every_extra_and_the_version_of_torch(lock):
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if f"| `{extra}` | " not in page.partition("## What resolves where")[0]] == []
    assert f"torch=={lock['torch']['version']} " in page


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format demands


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.stem)
def test_an_issue_form_has_a_name_and_fields_with_labels(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert content["name"]
    assert content["description"]
    assert all(field["attributes"]["label"] for field in content["body"])
    assert len({field["id"] for field in content["body"]}) == len(content["body"])
