"""Build the sdist and, from it, the wheel, so that the same sources give the same bytes anywhere and on any day.

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

from build import ProjectBuilder
from pyproject_hooks import quiet_subprocess_runner

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "src")
"""What an sdist is made of."""
FILE, FOLDER = 0o644, 0o755
"""The modes of everything in it."""


def sources(root: Path = ROOT) -> list[str]:
    """The files to build from: those that git knows, or all, where this is no checkout."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z", *PARTS], cwd=root, capture_output=True, text=True, check=True)
        return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())
    found = [path for part in PARTS for path in (root / part, *(root / part).rglob("*")) if path.is_file()]
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
    """The sources with fixed modes, and nothing else."""
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
    """The sdist, and the wheel that is built from what is in it."""
    second = epoch(root)
    os.environ["SOURCE_DATE_EPOCH"] = str(second)
    os.umask(0o022)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        copy(root, work / "tree")
        packed = Path(built("sdist", work / "tree", work))
        sdist = out / packed.name
        sdist.write_bytes(without_traces(packed, second))
        with tarfile.open(sdist) as archive:
            archive.extractall(work, filter="data")
        wheel = Path(built("wheel", work / packed.name.removesuffix(".tar.gz"), out))
    return [sdist, wheel]


def built(kind: str, tree: Path, out: Path) -> str:
    """One archive by the build backend of `tree`, with what is installed here."""
    project = ProjectBuilder(tree, runner=quiet_subprocess_runner)
    if missing := project.check_dependencies(kind):
        wanted = ", ".join(name for chain in missing for name in chain)
        sys.exit(f"the environment lacks {wanted}; make install brings it")
    return project.build(kind, out)


def main() -> None:
    """Both archives, with the SHA-256 of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="the sources")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where both go")
    options = parser.parse_args()
    for path in build(options.root, options.out):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.name, sep="  ")


if __name__ == "__main__":
    main()
