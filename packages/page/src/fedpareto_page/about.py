"""Everything about one run that does not grow line by line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpareto.config.files import quoted
from fedpareto_page.entries import finite
from fedpareto_page.run import Run


def about(run: Run, label: str, deployment: str | None = None) -> dict[str, Any]:
    """What a run is."""
    record = run.latest
    return {
        "id": run.id,
        "name": run.name,
        "label": label,
        "spec": run.following.spec.value,
        "versions": record.versions,
        "choices": record.choices,
        "outputs": [{"name": one.name, "classes": list(one.classes), "words": one.in_words} for one in record.outputs],
        "names": list(record.names),
        "tiers": list(record.tiers),
        "attack": record.attack,
        "attackers": [list(of_seed) for of_seed in record.attackers],
        "attack_from": run.spec.get("attack.from_round") if record.attack else None,
        "defence": record.defence,
        "warnings": record.warnings if record.lines else [],
        "early_stop": record.early_stop if record.lines else "",
        "known_front": None if record.known_front is None else plain(record.known_front),
        "references": {name: _by_seed(found) for name, found in record.references.items()} if record.lines else {},
        "changes": [dict(one) for one in record.changes],
        "files": _files(run),
        "commands": commands(run, deployment),
    }


def _by_seed(found: Mapping[int, np.ndarray]) -> dict[str, Any]:
    return {str(seed): plain(points) for seed, points in found.items()}


def plain(points: np.ndarray) -> list[list[float | None]]:
    """Rows of numbers; null where one is not finite."""
    return [[finite(value) for value in row] for row in points.tolist()]


def _files(run: Run) -> list[dict[str, Any]]:
    found = sorted(path for path in run.folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [{"name": path.name, "bytes": path.stat().st_size} for path in found]


def commands(run: Run, deployment: str | None) -> dict[str, str | None]:
    """What to type to do with this run what the page shows."""
    folder, is_over = quoted(run.folder), run.status.name == "finished"
    parent = quoted(run.folder.parent)
    if deployment is not None:
        resume, stop = f"fedpareto server resume {parent}", f"fedpareto server stop {parent}"
    else:
        resume, stop = f"fedpareto resume {folder}", f"fedpareto stop {folder}"
    return {
        "show": f"fedpareto show {folder}",
        "resume": None if is_over or run.busy else resume,
        "repeat": f"fedpareto run --spec {quoted(run.folder / 'spec.yaml')} --out NEW",
        "stop": stop if run.busy else None,
        "predict": _predict(run, folder) if run.is_servable else None,
        "look": f"fedpareto space look {folder}" if (run.folder / "mission.json").is_file() else None,
        "page": f"fedpareto page {folder}",
    }


def _predict(run: Run, folder: str) -> str:
    alike = ",".join([f"{1 / len(run.about.objectives):.3g}"] * len(run.about.objectives))
    return f"fedpareto predict {folder} --preference {alike} --input ROWS.csv"
