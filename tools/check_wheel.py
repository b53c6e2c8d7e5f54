"""Install the core's wheel in a new environment, with core dependencies only, and use it as a newcomer would.

Then the same with the wheels and extras that `make demo` has. What is not installed has to say so in a line. Looks into
the wheels of all packages before that.

    python tools/check_wheel.py --python python3.12
    python tools/check_wheel.py --python python3.11 --resolution lowest-direct
    python tools/check_wheel.py --python python3.13 torch==2.6.0

What follows the interpreter goes to `uv pip install`; `--torch-backend cpu` spares the CUDA libraries on Linux.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
UV = [sys.executable, "-m", "uv"]
DATA = (".toml", ".json", ".js", ".css", ".html")
"""How the files end that are no code, but that the code reads."""
SHORT = ["--clients", "4", "--rounds", "2", "--quiet"]
TABLE = "age,income,gender,hired\n" + "".join(
    f"{20 + row % 40},{1000 + 37 * row % 900},{'fm'[row % 2]},{int(row * 7 % 10 > 4)}\n" for row in range(160)
)
PEOPLE = ["run", "praffl", "--csv", "people.csv", "--label", "hired", "--sensitive", "gender", "--out", "runs/people"]
PREDICT = ["predict", "runs/people", "--client", "0", "--preference", "0.7,0.3", "--input", "people.csv"]
ALONE = [
    (["--version"], None),
    (["algorithms"], None),
    (["run", "fedpref", *SHORT], None),
    (["run", "fedavg", "--problem", "convex", *SHORT], None),
    (["run", "fedavg", *SHORT], None),
    (["show", "runs/fedpref-synthetic"], None),
    ([*PEOPLE, *SHORT], "tables"),
    (PREDICT, "serve"),
    (["compare", "runs/fedpref-synthetic", "runs/fedavg-synthetic", "--out", "runs/comparison"], "page"),
    (["demo", "--seeds", "1"], "plots"),
    (["run", "fedavg", "--engine", "flower-local", *SHORT], "flower"),
]
"""What is typed where the core is alone, in this order, and the extra that a line has to name where it is missing."""
MORE = ("tables", "plots", "serve", "page")
"""The extras that are then added, as `make demo` has them; the last two are packages of ours."""
TOGETHER = [
    (["demo", "--seeds", "1"], None),
    ([*PEOPLE, *SHORT], None),
    ([*PREDICT, "--out", "answers.csv"], None),
    (["compare", "runs/fedpref-synthetic", "runs/fedavg-synthetic", "--out", "runs/comparison"], None),
    (["page", "--help"], None),
]
"""What is typed with these."""


def folder_of(wheel: Path) -> Path:
    """The sources of a wheel."""
    (found,) = ROOT.glob(f"packages/*/src/{wheel.name.partition('-')[0]}")
    return found


def check_contents(wheel: Path) -> None:
    """The types' marker, the licence, the entry points and all data are in it, tests are not."""
    names = zipfile.ZipFile(wheel).namelist()
    source = folder_of(wheel)
    data = [path.relative_to(source.parent).as_posix() for path in source.rglob("*") if path.suffix in DATA]
    for ending in (f"{source.name}/py.typed", "licenses/LICENSE", "entry_points.txt", *data):
        if not any(name.endswith(ending) for name in names):
            sys.exit(f"{wheel.name} lacks {ending}")
    strangers = [name for name in names if not name.startswith((f"{source.name}/", f"{source.name}-"))]
    if strangers:
        sys.exit(f"{wheel.name} holds what is not the package: {', '.join(strangers[:5])}")


def environment(python: str, folder: Path) -> Path:
    """A new, empty environment; its folder of commands."""
    subprocess.run([*UV, "venv", "--quiet", "--python", python, str(folder)], check=True)
    return folder / ("Scripts" if os.name == "nt" else "bin")


def install(what: Iterable[Path | str], folder: Path, options: Sequence[str]) -> None:
    """Add wheels with what they need."""
    subprocess.run([*UV, "pip", "install", "--python", str(folder), *map(str, what), *options], check=True)


def use(commands: Path, folder: Path, steps: Iterable[tuple[list[str], str | None]]) -> None:
    """Every step, without this checkout on the path."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for step, missing in steps:
        print("$ fedpareto", *step, flush=True)
        done = subprocess.run(
            [commands / "fedpareto", *step], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        output = (done.stdout + done.stderr).strip()
        if missing is None:
            if done.returncode:
                sys.exit(f"exit code {done.returncode}:\n{output}")
        elif done.returncode != 2 or "Traceback" in output or not names_missing(output, missing):
            sys.exit(f"this had to name what is missing, fedpareto[{missing}], in a line:\n{output}")


def names_missing(output: str, extra: str) -> bool:
    """Whether the last line says what to install: the extra, or our package of that name."""
    last = output.rpartition("\n")[2]
    return f"fedpareto[{extra}]" in last or f"fedpareto-{extra}" in last


def check_answers(folder: Path) -> None:
    """`predict` gave one for each row of the table."""
    answers = (folder / "answers.csv").read_text(encoding="utf-8").splitlines()
    if len(answers) != len(TABLE.splitlines()):
        sys.exit(f"predict wrote {len(answers)} lines for {len(TABLE.splitlines())}")


def main() -> None:
    """Build nothing, check everything: `make wheel-check` builds first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3", help="whose environment")
    known, options = parser.parse_known_args()
    for wheel in sorted(DIST.glob("*.whl")):
        check_contents(wheel)
    (core,) = DIST.glob("fedpareto-*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        folder, work = Path(scratch) / "environment", Path(scratch) / "work"
        work.mkdir()
        (work / "people.csv").write_text(TABLE, encoding="utf-8")
        commands = environment(known.python, folder)
        install([core], folder, options)
        use(commands, work, ALONE)
        print(f"{core.name} works on {known.python} with core dependencies only")
        ours = [wheel for extra in MORE for wheel in DIST.glob(f"fedpareto_{extra}-*.whl")]
        install([f"fedpareto[{','.join(MORE)}] @ {core.absolute().as_uri()}", *ours], folder, options)
        use(commands, work, TOGETHER)
        check_answers(work)
    print(f"{core.name} works on {known.python} with {', '.join(MORE)}")


if __name__ == "__main__":
    main()
