"""Build the sdist of each package and, from it, the wheel: the same sources give the same bytes anywhere, on any day.

    python tools/build_dist.py                  # into dist/
    python tools/build_dist.py --out elsewhere

Nothing of the machine gets in: the sources are copied with fixed modes, every time is that of the last commit (or
`SOURCE_DATE_EPOCH`), owners are nobody, and entries are sorted. What does count is the version of setuptools, which
names itself in a wheel (`requirements.lock` has it), and that of the zlib in one's Python. Needs no network.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from build import ProjectBuilder, check_dependency
from pyproject_hooks import quiet_subprocess_runner

ROOT = Path(__file__).parents[1]
PACKAGES = "packages/*/pyproject.toml"
"""Where the packages are."""
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")
"""What an sdist is made of, in the folder of its package. Tests and documents are in the repository only."""
FILE, FOLDER = 0o644, 0o755
"""The modes of everything in it."""


def packages(root: Path = ROOT) -> list[str]:
    """The folders of the packages, from `root` on."""
    return sorted(path.parent.relative_to(root).as_posix() for path in root.glob(PACKAGES))


def sources(root: Path = ROOT) -> list[str]:
    """The files to build from, of all packages: those that git knows, or all, where this is no checkout."""
    parts = [f"{package}/{part}" for package in packages(root) for part in PARTS]
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z", *parts], cwd=root, capture_output=True, text=True, check=True)
        return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())
    found = [path for part in parts for path in (root / part, *(root / part).rglob("*")) if path.is_file()]
    names = [path.relative_to(root) for path in found]
    made = ("__pycache__", ".egg-info")
    return sorted(name.as_posix() for name in names if not any(part.endswith(made) for part in name.parts))


def epoch(root: Path = ROOT) -> int:
    """The second that stands for the time of the build."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if not (root / ".git").exists():
        sys.exit("this is no checkout: set SOURCE_DATE_EPOCH to the second of the commit that is built")
    last = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(last, cwd=root, capture_output=True, text=True, check=True).stdout)


def copy(root: Path, goal: Path) -> None:
    """The sources with fixed modes, and nothing else; of a link, such as a package's LICENSE, what it leads to."""
    for name in sources(root):
        place = goal / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, place)
        place.chmod(FILE)


def without_traces(archive: Path, second: int) -> bytes:
    """The sdist packed again: sorted, of nobody, with one time and two modes."""
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            fixed = tarfile.TarInfo(member.name)
            fixed.type, fixed.size, fixed.mtime = member.type, member.size, second
            fixed.mode = FOLDER if member.isdir() else FILE
            new.addfile(fixed, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=second)


def build(root: Path, out: Path) -> list[Path]:
    """Of each package the sdist, and the wheel that is built from what is in it."""
    second = epoch(root)
    os.environ["SOURCE_DATE_EPOCH"] = str(second)
    os.umask(0o022)
    out.mkdir(parents=True, exist_ok=True)
    archives = []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        copy(root, work / "tree")
        for package in packages(root):
            packed = Path(built("sdist", work / "tree" / package, work))
            sdist = out / packed.name
            sdist.write_bytes(without_traces(packed, second))
            with tarfile.open(sdist) as archive:
                archive.extractall(work, filter="data")
            wheel = Path(built("wheel", work / packed.name.removesuffix(".tar.gz"), out))
            archives += [sdist, wheel]
    return archives


def built(kind: str, tree: Path, out: Path) -> str:
    """One archive by the build backend of `tree`, with what is installed here."""
    project = ProjectBuilder(tree, runner=quiet_subprocess_runner)
    if missing := [chain for wanted in project.build_system_requires for chain in check_dependency(wanted)]:
        wanted = ", ".join(name for chain in missing for name in chain)
        sys.exit(f"the environment lacks {wanted}; make install brings it")
    return project.build(kind, out)


def main() -> None:
    """All archives, with the SHA-256 of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the sources")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where they go")
    options = parser.parse_args()
    for path in build(options.root, options.out):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name, sep="  ")


if __name__ == "__main__":
    main()
