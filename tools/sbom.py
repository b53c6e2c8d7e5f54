"""Write the bill of materials of a release, in CycloneDX 1.6: every package of requirements.lock, and who needs it.

    python tools/sbom.py                       # dist/fedpareto-VERSION.cdx.json
    python tools/sbom.py --check FILE          # is it sound, and of this lock file?

Names, versions and SHA-256 of all files are those of `requirements.lock`, licences those of `docs/licences.md`. Our own
packages are the parts of what it is about, fedpareto. Which package needs which is read from our `pyproject.toml` files
and from what is installed here; of others, such as those for another system, it is not told.
The same checkout and environment give the same file: its time is that of the last commit.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import runpy
import sys
import tomllib
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
CORE = "fedpareto"


def project_of(path: Path) -> dict[str, Any]:
    """What a `pyproject.toml` says."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


PROJECTS = {
    found["name"]: found
    for found in (project_of(path)["project"] for path in sorted(ROOT.glob("packages/*/pyproject.toml")))
}
"""Our packages by name."""
VERSION = PROJECTS[CORE]["version"]
GROUPS = project_of(ROOT / "pyproject.toml")["dependency-groups"]
"""What those who work on fedpareto need; nobody needs it to use fedpareto."""
ROW = re.compile(r"^\| ([^|]+) \| ((?:`[a-z0-9-]+`(?:, )?)+) \|", re.MULTILINE)
"""A licence, and packages that are under it."""
SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"), ("win32", "AMD64")]
PLATFORMS = {"linux": ("Linux", "posix"), "darwin": ("Darwin", "posix"), "win32": ("Windows", "nt")}

Wanted = tuple[str, str]
"""A package, and one of its extras or none."""


def licences() -> dict[str, str]:
    """What each package is under, as SPDX writes it, by the tables of docs/licences.md."""
    page = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
    return {name: spdx.strip() for spdx, names in ROW.findall(page) for name in re.findall(r"[a-z0-9-]+", names)}


def hashes() -> dict[str, list[str]]:
    """The SHA-256 of every file of each package."""
    lines = LOCK.read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return {line.partition("==")[0]: sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", line)) for line in lines}


# -- who needs whom ------------------------------------------------------------------------------------------------


def environments() -> list[dict[str, str]]:
    """What markers may say on the systems and Pythons of the lock file."""
    return [
        {
            "sys_platform": system,
            "platform_machine": machine,
            "platform_system": PLATFORMS[system][0],
            "os_name": PLATFORMS[system][1],
            "python_version": python,
            "python_full_version": f"{python}.9",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }
        for (system, machine), python in product(SYSTEMS, ("3.11", "3.12", "3.13", "3.14"))
    ]


@functools.cache
def installed() -> frozenset[str]:
    """The packages of this environment."""
    return frozenset(canonicalize_name(one.metadata["Name"]) for one in metadata.distributions())


@functools.cache
def needs(package: str, extra: str) -> frozenset[Wanted]:
    """What a package wants on any of these systems, with this extra; nothing where it is not installed."""
    if package in PROJECTS:
        ours = PROJECTS[package]
        lines = ours["optional-dependencies"][extra] if extra else ours["dependencies"]
    else:
        lines = metadata.requires(package) or [] if package in installed() else []
    return wanted(lines, extra)


def wanted(lines: Iterable[str], extra: str = "") -> frozenset[Wanted]:
    """What these requirements ask for on any of these systems, with this extra."""
    found = set()
    for entry in map(Requirement, lines):
        places = [{**place, "extra": extra} for place in environments()]
        if entry.marker is None or any(entry.marker.evaluate(place) for place in places):
            found |= {(canonicalize_name(entry.name), option) for option in ("", *entry.extras)}
    return frozenset(found)


def choices(package: str) -> list[Wanted]:
    """One of our packages without and with each of its extras."""
    return [(package, extra) for extra in ("", *PROJECTS[package].get("optional-dependencies", ()))]


def reached(begin: Iterable[Wanted]) -> set[str]:
    """The packages that come with these, and with those that come with them."""
    seen: set[Wanted] = set()
    waiting = list(begin)
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += needs(*one)
    return {name for name, _ in seen}


def scope(name: str, of_all: set[str], of_users: set[str], of_us: set[str]) -> ComponentScope:
    """Whether the core always needs it, an extra or another package of ours does, or only we who make them.

    What is not known may be needed.
    """
    if name in of_all:
        return ComponentScope.REQUIRED
    return ComponentScope.EXCLUDED if name in of_us - of_users else ComponentScope.OPTIONAL


# -- the document --------------------------------------------------------------------------------------------------


def component(name: str, version: str, spdx: str, **others: object) -> Component:
    """One package of the Python index."""
    purl = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        purl=purl,
        bom_ref=purl.to_string(),
        licenses=[LicenseFactory().make_from_string(spdx)],
        **others,  # type: ignore[arg-type]
    )


def bill(pins: Mapping[str, str], second: int) -> Bom:
    """The whole document."""
    lock_digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    ours = {
        name: component(name, found["version"], found["license"], type=ComponentType.LIBRARY)
        for name, found in PROJECTS.items()
    }
    core = ours[CORE]
    core.properties.add(Property(name="fedpareto:requirements.lock:sha256", value=lock_digest))
    core.components.update(part for part in ours.values() if part is not core)
    of_all = reached(needs(CORE, ""))
    of_users = reached(choice for package in PROJECTS for choice in choices(package))
    of_us = reached(entry for group in GROUPS.values() for entry in wanted(group))
    spdx, files = licences(), hashes()
    parts = {
        name: component(
            name,
            version,
            spdx[name],
            type=ComponentType.LIBRARY,
            scope=scope(name, of_all, of_users, of_us),
            external_references=[
                ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION,
                    url=XsUri(f"pkg:pypi/{name}@{version}"),
                    hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in files[name]],
                )
            ],
        )
        for name, version in pins.items()
    }
    bom = Bom(components=parts.values(), serial_number=uuid.uuid5(uuid.NAMESPACE_OID, lock_digest + VERSION))
    bom.metadata.component = core
    bom.metadata.timestamp = datetime.fromtimestamp(second, UTC)
    known = parts | ours
    for package, part in ours.items():
        others = {name for choice in choices(package) for name, _ in needs(*choice)} - {package}
        bom.register_dependency(part, {known[name] for name in others if name in known})
    for name in parts.keys() & installed():
        bom.register_dependency(parts[name], {parts[other] for other, _ in needs(name, "") if other in parts})
    return bom


def problems(text: str, pins: Mapping[str, str]) -> list[str]:
    """What is wrong with a document; nothing, if it follows the schema and is of this lock file."""
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        return [f"not CycloneDX 1.6: {str(wrong).splitlines()[0]}"]
    document = json.loads(text)
    listed = {part["name"]: part["version"] for part in document["components"]}
    known = {entry["value"] for entry in document["metadata"]["component"]["properties"]}
    found = [f"{name} is not as in requirements.lock" for name in sorted(pins) if listed.get(name) != pins[name]]
    found += [f"{name} is not in requirements.lock" for name in sorted(listed.keys() - pins.keys())]
    if hashlib.sha256(LOCK.read_bytes()).hexdigest() not in known:
        found.append("made for another requirements.lock")
    return found


def main() -> None:
    """Write it, or check one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / f"{CORE}-{VERSION}.cdx.json")
    parser.add_argument("--check", type=Path, help="a document that is there")
    options = parser.parse_args()
    pins = runpy.run_path(str(ROOT / "tools/lock.py"))["pins"]()
    if options.check is None:
        second = runpy.run_path(str(ROOT / "tools/build_dist.py"))["epoch"]()
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(JsonV1Dot6(bill(pins, second)).output_as_string(indent=2) + "\n", encoding="utf-8")
    path = options.check or options.out
    if wrong := problems(path.read_text(encoding="utf-8"), pins):
        sys.exit(f"{path.name}: {'; '.join(wrong[:5])}")
    print(f"{path.name}: {len(pins)} packages, follows the schema of CycloneDX 1.6")


if __name__ == "__main__":
    main()
