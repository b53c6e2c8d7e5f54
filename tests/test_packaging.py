"""Packages, lock file and documents agree with each other."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import Distribution

from fedpareto.config.version import VERSION

ROOT = Path(__file__).parents[1]
LOCK = runpy.run_path(str(ROOT / "tools/lock.py"))
FOLDERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
PROJECTS = {
    folder.name: tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"] for folder in FOLDERS
}
"""What each package says of itself, by its folder."""
WORKSPACE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = WORKSPACE["dependency-groups"]
CORE = PROJECTS["fedpareto"]
OURS = {project["name"] for project in PROJECTS.values()}
SUFFIXES = (".toml", ".json", ".js", ".css", ".html")
"""How files end that are no code, but that the code reads."""


def extras_of(project):
    return project.get("optional-dependencies", {})


def requirements_of(project):
    """All that a package asks for, with its extras."""
    entries = [*project["dependencies"], *(entry for extra in extras_of(project).values() for entry in extra)]
    return [Requirement(entry) for entry in entries]


@pytest.fixture(scope="module")
def lock():
    """The version of each package."""
    return LOCK["pins"]()


def wanted():
    """All that the packages and the groups ask for, without our own packages."""
    entries = [entry for project in PROJECTS.values() for entry in requirements_of(project)]
    entries += [Requirement(entry) for group in GROUPS.values() for entry in group]
    return sorted({entry for entry in entries if entry.name not in OURS}, key=str)


# -- the workspace -------------------------------------------------------------------------------------------------


def test_all_packages_have_the_version_of_the_code():
    assert len(PROJECTS) == 8
    assert {name: project["version"] for name, project in PROJECTS.items()} == dict.fromkeys(PROJECTS, VERSION)


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_package_asks_for_others_of_ours_in_its_own_version(folder):
    asked = [entry for entry in requirements_of(PROJECTS[folder]) if entry.name in OURS - {PROJECTS[folder]["name"]}]
    assert asked
    assert {str(entry.specifier) for entry in asked} == {f"=={VERSION}"}


@pytest.mark.parametrize("folder", PROJECTS)
def test_a_package_asks_others_of_ours_only_for_extras_that_they_have(folder):
    extras = {project["name"]: extras_of(project).keys() for project in PROJECTS.values()}
    asked = [entry for entry in requirements_of(PROJECTS[folder]) if entry.name in OURS]
    assert [str(entry) for entry in asked if not entry.extras <= extras[entry.name]] == []


def test_the_core_needs_few_packages_and_none_of_ours():
    assert len(CORE["dependencies"]) <= 9
    assert not {Requirement(entry).name for entry in CORE["dependencies"]} & OURS


def test_the_core_has_an_extra_for_every_other_package():
    asked = {entry.name for extra in extras_of(CORE).values() for entry in map(Requirement, extra)}
    assert asked >= OURS - {"fedpareto"}


def test_all_packages_have_the_licence_and_the_sources_under_their_names():
    licence = (ROOT / "LICENSE").read_bytes()
    for folder in FOLDERS:
        project = PROJECTS[folder.name]
        assert (folder / "LICENSE").read_bytes() == licence
        assert (project["license"], project["license-files"]) == (CORE["license"], ["LICENSE"])
        assert project["requires-python"] == CORE["requires-python"]
        name = project["name"].replace("-", "_")
        assert [path.name for path in folder.glob("src/*") if not path.name.endswith(".egg-info")] == [name]
        assert (folder / "src" / name / "py.typed").exists()
    assert {project["name"] for project in PROJECTS.values()} == WORKSPACE["tool"]["uv"]["sources"].keys()


def listed(variable):
    """The packages, each with its extras, of a variable of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (words,) = re.findall(rf"^{variable} := (.*)$", makefile, re.MULTILINE)
    entries = [Requirement(word) for word in words.split()]
    assert len({entry.name for entry in entries}) == len(entries)
    return {entry.name: entry.extras for entry in entries}


def test_make_install_has_everything_that_users_can_ask_for():
    """Every package, and every extra that brings more than packages of ours."""
    assert listed("EVERYTHING") == {
        folder: {extra for extra, wants in extras_of(project).items() if brings_others(wants)}
        for folder, project in PROJECTS.items()
    }


def brings_others(entries):
    """Whether these requirements are not only packages of ours without extras of theirs."""
    return any(entry.name not in OURS for entry in map(Requirement, entries))


def test_make_demo_has_no_more_than_running_takes():
    assert listed("RUNNING") == {"fedpareto": {"tables", "plots"}, "serve": set(), "page": set()}


# -- the lock file -------------------------------------------------------------------------------------------------


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


def test_the_lock_file_has_no_package_of_ours(lock):
    assert not lock.keys() & OURS


# -- the documents and the archives --------------------------------------------------------------------------------


def test_the_installation_page_names_every_extra_and_package():
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    table = page.partition("## Extras")[2].partition("## What resolves where")[0]
    assert [extra for extra in extras_of(CORE) if f"| `{extra}` | " not in table] == []
    assert [name for name in sorted(OURS - {"fedpareto"}) if f"`{name}`" not in table] == []
    resolving = page.partition("## What resolves where")[2]
    assert [extra for extra in [*extras_of(CORE), *GROUPS] if f"| `{extra}` | " not in resolving] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_wheel_and_the_sdist_hold_all_data(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    project = Distribution({"script_name": "setup.py"})
    project.parse_config_files()
    project.get_command_obj("egg_info").egg_base = str(tmp_path)
    build = project.get_command_obj("build_py")
    build.ensure_finalized()
    wheel = {f"{source}/{name}" for _, source, _, names in build.data_files for name in names}
    (sdist,) = tmp_path.glob("*/SOURCES.txt")
    data = {
        path.relative_to(folder).as_posix()
        for path in folder.glob("src/*/**/*")
        if path.suffix in SUFFIXES or path.name == "py.typed"
    }
    assert len(data) >= {"page": 40, "papers": 7, "space": 4}.get(folder.name, 1)
    assert data <= wheel
    assert data | {"LICENSE", "README.md"} <= set(sdist.read_text(encoding="utf-8").splitlines())


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == VERSION
    assert citation["license"] == CORE["license"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format demands


@pytest.mark.parametrize("form", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")), ids=lambda form: form.stem)
def test_an_issue_form_has_a_name_and_fields_with_labels(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert content["name"]
    assert content["description"]
    assert all(field["attributes"]["label"] for field in content["body"])
    assert len({field["id"] for field in content["body"]}) == len(content["body"])
