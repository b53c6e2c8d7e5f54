"""Sign the files of a release, and check what somebody signed.

    python tools/release.py sign --key ~/.ssh/fedpareto-release   # writes dist/SHA256SUMS and its signature
    python tools/release.py check dist --signers release-signers  # signature, hashes, bill of materials
    python tools/release.py check dist --signers release-signers --rebuild

Signatures are OpenSSH's (`ssh-keygen -Y`), over the list of hashes; `--rebuild` builds the archives of this checkout
again and compares them to the last byte. Neither needs a network. No private key is ever read here: ssh-keygen does
that, or an agent or a hardware key that it asks.
"""

from __future__ import annotations

import argparse
import hashlib
import runpy
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
NAMESPACE = "fedpareto-release"
"""What the signature is for: one that was made for anything else does not pass."""
SIGNERS = ROOT / "release-signers"


class Refusal(Exception):
    """Why the files are not a release."""


def digest(path: Path) -> str:
    """SHA-256 as text."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_of(folder: Path) -> list[Path]:
    """What is signed: all but the list itself and its signature."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name not in (SUMS, SIGNATURE))


def keygen(*words: str | Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Let ssh-keygen do something about signatures."""
    try:
        return subprocess.run(["ssh-keygen", "-Y", *words], input=given, capture_output=True, check=False)
    except FileNotFoundError:
        raise Refusal("ssh-keygen is not installed; it is part of OpenSSH") from None


def sign(folder: Path, key: Path) -> None:
    """Write the list of hashes, and the signature over it by a key of which ssh-keygen has the private half."""
    sums = folder / SUMS
    lines = [f"{digest(path)}  {path.name}\n" for path in files_of(folder)]
    sums.write_text("".join(lines), encoding="utf-8", newline="\n")
    (folder / SIGNATURE).unlink(missing_ok=True)
    done = keygen("sign", "-f", key, "-n", NAMESPACE, sums)
    if done.returncode:
        raise Refusal(f"not signed: {done.stderr.decode(errors='replace').strip()}")


def check_signature(folder: Path, signers: Path) -> str:
    """Who signed the list: one of `signers`, a file as ssh-keygen describes it under ALLOWED SIGNERS."""
    for path in (folder / SUMS, folder / SIGNATURE, signers):
        if not path.is_file():
            raise Refusal(f"{path.name} is missing")
    found = keygen("find-principals", "-s", folder / SIGNATURE, "-f", signers)
    names = found.stdout.decode(errors="replace").split()
    if found.returncode or not names:
        raise Refusal(f"{SIGNATURE} is by nobody in {signers.name}")
    words = ("verify", "-f", signers, "-I", names[0], "-n", NAMESPACE, "-s", folder / SIGNATURE)
    if keygen(*words, given=(folder / SUMS).read_bytes()).returncode:
        raise Refusal(f"{SIGNATURE} does not fit {SUMS}")
    return names[0]


def check_hashes(folder: Path) -> list[str]:
    """The names of the files: exactly those of the list, each with its hash."""
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {name: value for value, _, name in (line.partition("  ") for line in lines)}
    present = {path.name: digest(path) for path in files_of(folder)}
    for name in sorted(listed.keys() | present.keys()):
        if name not in present:
            raise Refusal(f"{name} is missing")
        if name not in listed:
            raise Refusal(f"{name} is not in {SUMS}")
        if present[name] != listed[name]:
            raise Refusal(f"{name} is not the file that was signed")
    return sorted(listed)


def projects() -> set[str]:
    """The names of our packages, as their archives begin."""
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("packages/*/pyproject.toml")]
    return {tomllib.loads(text)["project"]["name"].replace("-", "_") for text in texts}


def check_kinds(names: Sequence[str]) -> None:
    """A release is a wheel and an sdist of each package, all of one version, and a bill of materials."""
    versions = set()
    for ending in (".whl", ".tar.gz"):
        archives = [name.removesuffix(ending).split("-") for name in names if name.endswith(ending)]
        if sorted(parts[0] for parts in archives) != sorted(projects()):
            raise Refusal(f"there has to be one file *{ending} of each package")
        versions |= {parts[1] for parts in archives if len(parts) > 1}
    if len(versions) != 1:
        raise Refusal("the archives are not of one version")
    if sum(name.endswith(".cdx.json") for name in names) != 1:
        raise Refusal("there has to be one file *.cdx.json")


def check_bill(folder: Path) -> None:
    """It follows its schema, and is of the lock file here."""
    tool, pins = runpy.run_path(str(ROOT / "tools/sbom.py")), runpy.run_path(str(ROOT / "tools/lock.py"))["pins"]()
    (path,) = folder.glob("*.cdx.json")
    if wrong := tool["problems"](path.read_text(encoding="utf-8"), pins):
        raise Refusal(f"{path.name}: {'; '.join(wrong[:5])}")


def check_rebuilt(folder: Path) -> None:
    """What is built here is what was signed."""
    with tempfile.TemporaryDirectory() as scratch:
        for path in runpy.run_path(str(ROOT / "tools/build_dist.py"))["build"](ROOT, Path(scratch)):
            if not (folder / path.name).is_file() or digest(folder / path.name) != digest(path):
                raise Refusal(f"{path.name} is not what this checkout gives")


def main() -> None:
    """Sign or check, with one line at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("sign", "check"))
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist")
    parser.add_argument("--key", type=Path, help="of sign: the private key, or the public one of a key in an agent")
    parser.add_argument("--signers", type=Path, default=SIGNERS, help="of check: who may sign")
    parser.add_argument("--rebuild", action="store_true", help="of check: build again and compare")
    options = parser.parse_args()
    try:
        if options.what == "sign":
            if options.key is None:
                raise Refusal("--key is missing")
            sign(options.folder, options.key)
            print(f"{options.folder / SIGNATURE}: signed")
            return
        signer = check_signature(options.folder, options.signers)
        names = check_hashes(options.folder)
        check_kinds(names)
        check_bill(options.folder)
        if options.rebuild:
            check_rebuilt(options.folder)
    except Refusal as refusal:
        sys.exit(f"{options.folder}: {refusal}")
    print(f"{options.folder}: {', '.join(names)}: as signed by {signer}{', and as built here' * options.rebuild}")


if __name__ == "__main__":
    main()
