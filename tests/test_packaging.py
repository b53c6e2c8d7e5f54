"""What is installed: the lock file agrees with pyproject.toml, and the documents with the lock file."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import Distribution

ROOT = Path(__file__).parents[1]
LOCK = runpy.run_path(str(ROOT / "tools/lock.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


@pytest.fixture(scope="module")
def lock():
    """The version of each package."""
    return LOCK["pins"]()


def wanted():
    """All that pyproject.toml asks for, without our own extras."""
    entries = map(Requirement, [*PROJECT["dependencies"], *(entry for extra in EXTRAS.values() for entry in extra)])
    return [entry for entry in entries if entry.name != "fedpareto"]


@pytest.mark.parametrize("entry", wanted(), ids=str)
def test_the_lock_file_has_a_version_in_the_range_of_pyproject(entry, lock):
    name = canonicalize_name(entry.name)
    assert name in lock, "run: make lock"
    assert entry.specifier.contains(lock[name], prereleases=True), "run: make lock"


def test_every_package_of_the_lock_has_one_version_and_hashes(lock):
    entries = LOCK["LOCK"].read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    assert len(entries) == len(lock)
    assert all("--hash=sha256:" in entry for entry in entries)
    assert {canonicalize_name(entry.partition("==")[0]) for entry in entries} == lock.keys()


def test_the_torch_of_the_index_without_cuda_is_one_of_the_lock(lock):
    assert Requirement(f"torch=={lock['torch']}").specifier.contains(lock["torch"] + "+cpu")


def test_the_development_extra_has_everything_that_users_can_ask_for():
    (all_of_them,) = [entry for entry in map(Requirement, EXTRAS["dev"]) if entry.name == "fedpareto"]
    assert all_of_them.extras == EXTRAS.keys() - {"dev", "docs", "bench"}


def test_the_installation_page_names_every_extra():
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    assert [extra for extra in EXTRAS if f"| `{extra}` | " not in page.partition("## What resolves where")[0]] == []


def test_the_wheel_and_the_sdist_hold_all_data(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    project = Distribution({"script_name": "setup.py"})
    project.parse_config_files()
    project.get_command_obj("egg_info").egg_base = str(tmp_path)
    build = project.get_command_obj("build_py")
    build.ensure_finalized()
    wheel = {f"{source}/{name}" for _, source, _, names in build.data_files for name in names}
    (sdist,) = tmp_path.glob("*/SOURCES.txt")
    data = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob("src/fedpareto/**/*.*")
        if path.suffix in (".toml", ".json", ".js", ".css")
    }
    assert len(data) >= 8
    assert data <= wheel
    assert data <= set(sdist.read_text(encoding="utf-8").splitlines())


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
