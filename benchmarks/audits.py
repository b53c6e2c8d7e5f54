"""What `fedpareto audit` finds for three algorithms on a table and on images: the tables of docs/audit.md.

    python benchmarks/audits.py --size small --jobs 2 --out runs/audits
    python benchmarks/audits.py --size full --jobs 16 --out runs/audits

Needs the files of `adult` and `mnist` in the data folder. What is done is kept in the folder of each audit: the same
command goes on with the rest.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from fedpareto.campaigns.parallel import ONE_TO_A_CORE
from fedpareto.spec.draft import Draft
from fedpareto_audit import audit
from fedpareto_audit.world import Effort

ALGORITHMS: dict[str, dict[str, Any]] = {
    "fedavg": {"name": "fedavg", "weighting": "equal"},
    "fedpref": {"name": "fedpref"},
    "praffl": {"name": "praffl", "body_epochs": 2, "head_epochs": 2, "sampled": 16},
}
IMAGES = {"name": "multi-mnist", "network": "mlp"}
SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "adult": ({"name": "adult"}, {"rounds": 3, "clients": 6}, {}),
        "mnist": ({**IMAGES, "samples": 1200, "test_samples": 2000}, {"rounds": 3, "clients": 6}, {"epochs": 5}),
        "effort": Effort(shadows=16, references=2, rows=50, victims=6, batches=(1, 8)),
    },
    "full": {
        "adult": ({"name": "adult"}, {"rounds": 10, "clients": 10}, {}),
        "mnist": ({**IMAGES, "samples": 4000, "test_samples": 8000}, {"rounds": 10, "clients": 10}, {"epochs": 5}),
        "effort": Effort(shadows=48, references=4, rows=200, victims=10, batches=(1, 8, 32)),
    },
}
SEEDS = [10, 11, 12]
"""Others than those on which the attacks were developed."""
PROTECTIONS = ("noise=0.01", "noise=0.1", "noise=1", "secure-sum")


def one(algorithm: str, problem: str, size: str, seeds: int, jobs: int, out: Path) -> dict[str, Any]:
    """The record of one audit, from its folder if it is there."""
    folder = out / f"{algorithm}-{problem}"
    if (folder / audit.FILE).exists():
        return dict(json.loads((folder / audit.FILE).read_text(encoding="utf-8")))
    data, top, learner = SIZES[size][problem]
    values = {"algorithm": ALGORITHMS[algorithm], "problem": data, **top, "learner": learner, "seeds": SEEDS[:seeds]}
    draft = Draft(values).with_engine(ONE_TO_A_CORE)
    ready = audit.Audit(
        draft, protections=tuple(map(audit.Protection.parse, PROTECTIONS)), effort=SIZES[size]["effort"]
    )
    return audit.run(ready, folder, jobs, lambda: print(".", end="", flush=True), lambda: False)


def table(record: dict[str, Any]) -> str:
    """As Markdown."""
    names = record["protections"]
    lines = [f"| | guess | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    useful = {"name": record["usefulness"]["name"], "values": record["usefulness"]["values"]}
    for measure in (*record["measures"], useful):
        found = [measure["values"].get(name) for name in names]
        cells = ["–" if one is None else f"{one['mean']:.3f} ± {one['deviation']:.3f}" for one in found]
        guess = f"{measure['guess']:.3f}" if "guess" in measure else ""
        lines.append(f"| {measure['name']} | {guess} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """All six."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many of them")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/audits"))
    parser.add_argument("--algorithms", nargs="*", default=list(ALGORITHMS))
    parser.add_argument("--problems", nargs="*", default=["adult", "mnist"])
    given = parser.parse_args()
    for problem in given.problems:
        for algorithm in given.algorithms:
            start = time.perf_counter()
            record = one(algorithm, problem, given.size, given.seeds, given.jobs, given.out)
            print(f"\n## {algorithm} on {problem} ({time.perf_counter() - start:.0f} s)\n\n{table(record)}")
            for name, why in {**record["refused"], **record["unfit"]}.items():
                print(f"\n{name}: {why}")
            print("\n" + "\n".join(record["advice"]), flush=True)


if __name__ == "__main__":
    main()
