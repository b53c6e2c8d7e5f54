"""Install the wheel in a new environment, with core dependencies only, and use it as a newcomer would.

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
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHORT = ["--clients", "4", "--rounds", "2", "--quiet"]
TABLE = "age,income,gender,hired\n" + "".join(
    f"{20 + row % 40},{1000 + 37 * row % 900},{'fm'[row % 2]},{int(row * 7 % 10 > 4)}\n" for row in range(160)
)
STEPS = [
    ["--version"],
    ["demo", "--seeds", "1"],
    ["run", "fedpref", *SHORT],
    [
        "run",
        "praffl",
        "--csv",
        "people.csv",
        "--label",
        "hired",
        "--sensitive",
        "gender",
        "--out",
        "runs/people",
        *SHORT,
    ],
    ["run", "fedavg", *SHORT],
    ["show", "runs/fedpref-synthetic"],
    ["compare", "runs/fedpref-synthetic", "runs/fedavg-synthetic", "--out", "runs/comparison"],
    [
        "predict",
        "runs/people",
        "--client",
        "0",
        "--preference",
        "0.7,0.3",
        "--input",
        "people.csv",
        "--out",
        "answers.csv",
    ],
    ["run", "fedavg", "--engine", "flower-local", *SHORT],
]
"""What is typed, in this order; the last one has to say in a line which extra it wants."""


def check_contents(wheel: Path) -> None:
    """The types' marker, the licence and the published numbers are in it, tests are not."""
    names = zipfile.ZipFile(wheel).namelist()
    wanted = {"py.typed": "fedpareto/py.typed", "the licence": "licenses/LICENSE", "a command": "entry_points.txt"}
    data = [path.relative_to(ROOT / "src").as_posix() for path in ROOT.glob("src/fedpareto/**/*.toml")]
    wanted |= dict(zip(data, data, strict=True))
    for what, ending in wanted.items():
        if not any(name.endswith(ending) for name in names):
            sys.exit(f"{wheel.name} lacks {what}")
    strangers = [name for name in names if not name.startswith(("fedpareto/", "fedpareto-"))]
    if strangers:
        sys.exit(f"{wheel.name} holds what is not the package: {', '.join(strangers[:5])}")


def install(wheel: Path, python: str, folder: Path, options: list[str]) -> Path:
    """A new environment with the wheel; its folder of commands."""
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", python, str(folder)], check=True)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([*uv, "pip", "install", "--python", str(folder), str(wheel), *options], check=True)
    return commands


def use(commands: Path, folder: Path) -> None:
    """Every step in an empty folder, without this checkout on the path."""
    (folder / "people.csv").write_text(TABLE, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for step in STEPS:
        print("$ fedpareto", *step, flush=True)
        done = subprocess.run(
            [commands / "fedpareto", *step], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        refused = step is STEPS[-1]
        output = (done.stdout + done.stderr).strip()
        if refused and not (done.returncode == 2 and "fedpareto[flower]" in output and "Traceback" not in output):
            sys.exit(f"this had to name the extra that is missing:\n{output}")
        if not refused and done.returncode:
            sys.exit(f"exit code {done.returncode}:\n{output}")
    answers = (folder / "answers.csv").read_text(encoding="utf-8").splitlines()
    if len(answers) != len(TABLE.splitlines()):
        sys.exit(f"predict wrote {len(answers)} lines for {len(TABLE.splitlines())}")


def main() -> None:
    """Build nothing, check everything: `make wheel-check` builds first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="python3", help="whose environment")
    known, options = parser.parse_known_args()
    (wheel,) = (ROOT / "dist").glob("*.whl")
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as scratch:
        commands = install(wheel, known.python, Path(scratch) / "environment", options)
        work = Path(scratch) / "work"
        work.mkdir()
        use(commands, work)
    print(f"{wheel.name} works on {known.python} with core dependencies only")


if __name__ == "__main__":
    main()
