"""The runs behind a reproduction: ordinary run folders, so that what was stopped goes on where it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedpareto.errors import UserError
from fedpareto.experiments import runner
from fedpareto.experiments.progress import Shown, ShownNowhere
from fedpareto.experiments.runner import Observe, nothing_more
from fedpareto.experiments.spec import Spec
from fedpareto.experiments.store import RunFolder


def ensure(
    folder: Path,
    spec: Spec,
    stop: Callable[[], bool] = lambda: False,
    observe: Observe = nothing_more,
    shown: Shown | None = None,
    keep_models: bool = True,
) -> bool:
    """Makes sure that the folder holds this run, finished; whether anything had to be trained for it.

    `keep_models`: see runner.start.
    """
    shown = shown or ShownNowhere(spec, folder)
    if not (folder / "spec.yaml").exists():
        runner.start(spec, folder, shown.round, stop, shown.begin, observe, keep_models)
        return True
    before, now = (_flat(one.to_mapping()) for one in (RunFolder(folder).spec(), spec))
    for key in now | before:
        if before.get(key) != now.get(key):
            raise UserError(
                f"{folder} holds a run with {key}={before.get(key)}, not {now.get(key)}; choose another --out"
            )
    return runner.resume(folder, shown.round, stop, shown.begin, None, observe, keep_models) is not None


def _flat(mapping: Mapping[str, Any], begin: str = "") -> dict[str, Any]:
    """What is nested, by names such as learner.lr."""
    flat: dict[str, Any] = {}
    for name, value in mapping.items():
        flat |= _flat(value, f"{begin}{name}.") if isinstance(value, Mapping) else {f"{begin}{name}": value}
    return flat
