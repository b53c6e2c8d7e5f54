"""What a release is made of and by whom: licences, the bill of materials, signatures."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from cyclonedx.output.json import JsonV1Dot6
from license_expression import get_spdx_licensing
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SBOM = runpy.run_path(str(ROOT / "tools/sbom.py"))
RELEASE = runpy.run_path(str(ROOT / "tools/release.py"))
PINS = runpy.run_path(str(ROOT / "tools/lock.py"))["pins"]()
PAGE = (ROOT / "docs/licences.md").read_text(encoding="utf-8")
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "LLVM-exception",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
}
"""A notice is all they ask for."""
CLASSIFIERS = {
    "Apache Software License": {"Apache-2.0"},
    "BSD License": {"BSD-2-Clause", "BSD-3-Clause"},
    "GNU General Public License (GPL)": {"GPL-3.0-or-later"},
    "GNU Library or Lesser General Public License (LGPL)": {"LGPL-2.1-or-later"},
    "ISC License (ISCL)": {"ISC"},
    "MIT License": {"MIT"},
    "Mozilla Public License 2.0 (MPL 2.0)": {"MPL-2.0"},
    "Public Domain": {"CC0-1.0", "Unlicense"},
    "Python Software Foundation License": {"PSF-2.0"},
}
"""What a package may mean that says only this."""


SPDX = get_spdx_licensing()


def symbols(spdx):
    return set(SPDX.license_keys(spdx))


def rows(heading):
    """The licence of each package in the table under a heading."""
    (text,) = re.findall(rf"^## {heading}$(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    return {name: spdx for spdx, names in SBOM["ROW"].findall(text) for name in re.findall(r"[a-z0-9-]+", names)}


# -- licences ------------------------------------------------------------------------------------------------------


def test_every_package_of_the_lock_has_a_licence_that_is_allowed_or_explained():
    named, plain = rows("What to know"), rows("All packages")
    assert named.keys() | plain.keys() == PINS.keys(), "docs/licences.md and requirements.lock differ"
    assert not named.keys() & plain.keys()
    assert {name: spdx for name, spdx in plain.items() if not symbols(spdx) <= ALLOWED} == {}
    assert {name: spdx for name, spdx in named.items() if symbols(spdx) <= ALLOWED} == {}


def test_the_page_agrees_with_what_installed_packages_say_of_themselves():
    licences, compared = SBOM["licences"](), 0
    for one in metadata.distributions():
        name, about = canonicalize_name(one.metadata["Name"]), one.metadata
        said = [entry.rpartition(" :: ")[2] for entry in about.get_all("Classifier", []) if entry.startswith("License")]
        if PINS.get(name) != one.version.partition("+")[0]:
            continue
        if expression := about.get("License-Expression"):
            compared += 1
            assert symbols(expression) == symbols(licences[name]), name
        elif said:
            compared += 1
            assert symbols(licences[name]) <= set().union(*(CLASSIFIERS[entry] for entry in said)), name
    assert compared > 100


# -- the bill of materials -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bill():
    return JsonV1Dot6(SBOM["bill"](PINS, 0)).output_as_string(indent=2)


def test_the_bill_of_materials_follows_the_schema_and_is_complete(bill):
    assert SBOM["problems"](bill, PINS) == []
    document = json.loads(bill)
    parts = {part["name"]: part for part in document["components"]}
    assert parts.keys() == PINS.keys()
    hashes = SBOM["hashes"]()
    for name, part in parts.items():
        assert part["purl"] == f"pkg:pypi/{name}@{PINS[name]}"
        assert part["licenses"]
        (files,) = part["externalReferences"]
        assert [entry["content"] for entry in files["hashes"]] == hashes[name] != []
    assert {parts[name]["scope"] for name in ("torch", "moocore", "numpy")} == {"required"}
    optional = ("flwr", "cryptography", "nvidia-cudnn-cu13", "pandas", "matplotlib", "sgp4", "onnx", "ray")
    assert {parts[name]["scope"] for name in optional} == {"optional"}
    assert {parts[name]["scope"] for name in ("pytest", "codespell", "mkdocs", "jax")} == {"excluded"}
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in document["dependencies"]}
    assert parts["numpy"]["purl"] in needs[parts["pandas"]["purl"]]
    core = document["metadata"]["component"]
    ours = {part["name"]: part["purl"] for part in (core, *core["components"])}
    assert ours.keys() == SBOM["PROJECTS"].keys()
    assert ours["fedpareto"] in needs[ours["fedpareto-page"]]
    assert {parts[name]["purl"] for name in ("fastapi", "onnx")} <= set(needs[ours["fedpareto-serve"]])
    assert parts["nvidia-cudnn-cu13"]["purl"] in needs or "nvidia-cudnn-cu13" not in SBOM["installed"]()
    assert JsonV1Dot6(SBOM["bill"](PINS, 0)).output_as_string(indent=2) == bill, "the same twice"


def test_a_changed_bill_is_refused(bill):
    document = json.loads(bill)
    missing, older, renamed, *others = document["components"]
    strange = [{**older, "version": "0"}, {**renamed, "name": "stranger"}]
    document["components"] = [*strange, *others]
    document["metadata"]["component"]["properties"].clear()
    assert SBOM["problems"](json.dumps(document), PINS) == [
        *(f"{part['name']} is not as in requirements.lock" for part in (missing, older, renamed)),
        "stranger is not in requirements.lock",
        "made for another requirements.lock",
    ]
    (complaint,) = SBOM["problems"](json.dumps({**document, "specVersion": 7}), PINS)
    assert complaint.startswith("not CycloneDX 1.6")


# -- signatures ----------------------------------------------------------------------------------------------------

needs_openssh = pytest.mark.skipif(
    shutil.which("ssh-keygen") is None and "CI" not in os.environ, reason="ssh-keygen of OpenSSH is not installed"
)


def key_of(name, folder):
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", path]
    subprocess.run(words, check=True, capture_output=True)
    return path


@needs_openssh
def test_a_release_passes_as_it_was_signed_and_in_no_other_form(bill, tmp_path):
    ours, foreign = key_of("ours", tmp_path), key_of("foreign", tmp_path)
    signers = tmp_path / "signers"
    public = ours.with_suffix(".pub").read_text(encoding="utf-8")
    signers.write_text(f'release namespaces="{RELEASE["NAMESPACE"]}" {public}', encoding="utf-8")
    folder = tmp_path / "dist"
    folder.mkdir()
    projects = sorted(RELEASE["projects"]())
    assert len(projects) == 8
    archives = {f"{name}-1{ending}": name.encode() for name in projects for ending in ("-py3-none-any.whl", ".tar.gz")}
    content = {**archives, "fedpareto-1.cdx.json": bill.encode()}
    wheel = "fedpareto_space-1-py3-none-any.whl"

    def renewed(files=content, key=ours):
        for path in folder.iterdir():
            path.unlink()
        for name, value in files.items():
            (folder / name).write_bytes(value)
        RELEASE["sign"](folder, key)

    def checked():
        signer = RELEASE["check_signature"](folder, signers)
        names = RELEASE["check_hashes"](folder)
        RELEASE["check_kinds"](names)
        RELEASE["check_bill"](folder)
        return signer, names

    renewed()
    assert checked() == ("release", sorted(content))
    for spoil, complaint in [
        (lambda: (folder / wheel).write_bytes(b"other"), f"{wheel} is not the file that was signed"),
        ((folder / wheel).unlink, f"{wheel} is missing"),
        (lambda: (folder / "more.whl").write_bytes(b""), "more.whl is not in SHA256SUMS"),
        (lambda: (folder / "SHA256SUMS").write_text("", encoding="utf-8"), "does not fit"),
        ((folder / "SHA256SUMS.sig").unlink, "SHA256SUMS.sig is missing"),
        (lambda: renewed(key=foreign), "by nobody in signers"),
    ]:
        renewed()
        spoil()
        with pytest.raises(RELEASE["Refusal"], match=complaint):
            checked()
    for change, complaint in [
        ({"fedpareto-1.cdx.json": b"{}"}, r"fedpareto-1\.cdx\.json: not CycloneDX"),
        ({"fedpareto-1.cdx.json": None}, "one file"),
        ({"other.cdx.json": b"{}"}, "one file"),
        ({wheel: None}, r"one file \*\.whl of each package"),
        ({"fedpareto_space-1.tar.gz": None}, r"one file \*\.tar\.gz of each package"),
        ({"fedpareto_space-2-py3-none-any.whl": b""}, r"one file \*\.whl of each package"),
        ({wheel: None, "fedpareto_space-2-py3-none-any.whl": b""}, "not of one version"),
    ]:
        renewed({name: value for name, value in (content | change).items() if value is not None})
        with pytest.raises(RELEASE["Refusal"], match=complaint):
            checked()


@needs_openssh
def test_a_signature_for_another_purpose_is_none_for_a_release(tmp_path):
    key = key_of("ours", tmp_path)
    (tmp_path / "signers").write_text(
        f"release {key.with_suffix('.pub').read_text(encoding='utf-8')}", encoding="utf-8"
    )
    sums = tmp_path / "SHA256SUMS"
    sums.write_bytes(b"")
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", "git", sums], check=True, capture_output=True)
    with pytest.raises(RELEASE["Refusal"], match="does not fit"):
        RELEASE["check_signature"](tmp_path, tmp_path / "signers")


def test_no_private_key_is_in_the_repository():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    # Spelt in two parts: this file is one of those that are searched.
    mark = re.compile(rb"-----BEGIN [A-Z ]*" + rb"PRIVATE KEY-----\n[A-Za-z0-9+/=\n]{40}")
    paths = [ROOT / name for name in listed.split("\0") if name]
    assert len(paths) > 500
    assert [path.name for path in paths if path.is_file() and mark.search(path.read_bytes())] == []
