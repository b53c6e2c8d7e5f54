"""Begins a run, or goes on with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedpareto.config.errors import UserError
from fedpareto.record.store import RunFolder, describe
from fedpareto.runs import logged, resuming
from fedpareto.runs.callbacks import Callback
from fedpareto.runs.loop import Experiment, Observe, nothing_more
from fedpareto.runs.progress import OnBegin, OnRound, Shown, ShownNowhere
from fedpareto.runs.result import Result
from fedpareto.spec import backends
from fedpareto.spec.settings import first_setting
from fedpareto.spec.spec import Spec, first_difference


def start(
    spec: Spec,
    out: Path | None = None,
    on_round: OnRound | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_begin: OnBegin = lambda done: None,
    observe: Observe = nothing_more,
    keep_models: bool = True,
    log_to: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Result:
    """A new run; with `out` everything is kept in that folder; `log_to` and `callbacks` follow it.

    Without `keep_models` the clients' models are neither saved nor returned: many clients that share one network would
    have many copies of it.
    """
    # This comes before anything is read, measured or written: an algorithm refuses problems that it cannot handle.
    spec.algorithm.begin(first_setting(spec))
    others = [*callbacks, *logged.opened(log_to, spec, out)]
    if out is None:
        with backends.opened(spec) as engine:
            return Experiment(spec, engine, None, observe, keep_models).run(on_round, stop, others)
    with RunFolder.create(out, spec) as folder, ExitStack() as stack:
        try:
            experiment = _in_folder(spec, folder, stack, observe, keep_models)
        except BaseException:
            folder.discard()
            raise
        on_begin(experiment.round)
        return experiment.run(on_round, stop, others)


def resume(
    path: Path,
    on_round: OnRound | None = None,
    stop: Callable[[], bool] = lambda: False,
    on_begin: OnBegin = lambda done: None,
    spec: Spec | None = None,
    observe: Observe = nothing_more,
    keep_models: bool = True,
    log_to: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Result | None:
    """Continues a run from its last checkpoint, bit for bit; None if it was finished already.

    With `spec`, under that one, which may differ from the run's own in what is `resuming.CHANGEABLE`.
    `keep_models`, `log_to` and `callbacks`: see start.
    """
    with RunFolder.open(path) as folder, ExitStack() as stack:
        if (folder.read_json("status.json") or {}).get("status") == "finished":
            return None
        before = folder.spec()
        others = [*callbacks, *logged.opened(log_to, spec or before, path)]
        experiment = _in_folder(spec or before, folder, stack, observe, keep_models)
        resuming.note_changes(folder, experiment.round, before, experiment.spec)
        on_begin(experiment.round)
        return experiment.run(on_round, stop, others)


def ensure(
    folder: Path,
    spec: Spec,
    stop: Callable[[], bool] = lambda: False,
    observe: Observe = nothing_more,
    shown: Shown | None = None,
    keep_models: bool = True,
) -> bool:
    """Makes sure that the folder holds this run, finished; returns whether anything had to be trained.

    `keep_models`: see start.
    """
    shown = shown or ShownNowhere(spec, folder)
    if not (folder / "spec.yaml").exists():
        start(spec, folder, shown.round, stop, shown.begin, observe, keep_models)
        return True
    must_hold(folder, spec)
    return resume(folder, shown.round, stop, shown.begin, None, observe, keep_models) is not None


def must_hold(folder: Path, spec: Spec) -> None:
    """Raises UserError if a folder holds another run than this."""
    if (folder / "spec.yaml").read_bytes() == spec.to_yaml().encode():
        return  # Reading YAML takes much longer than writing it.
    different = first_difference(RunFolder(folder).spec().to_mapping(), spec.to_mapping())
    if different:
        raise UserError(f"{folder} holds a run with {different}; choose another --out")


def _in_folder(spec: Spec, folder: RunFolder, stack: ExitStack, observe: Observe, keep_models: bool) -> Experiment:
    """An experiment in its folder, new or where its last checkpoint left it; `stack` ends its engine."""
    record = folder.read_json("run.json")
    chosen = None if record is None else resuming.chosen(record, folder)
    engine = stack.enter_context(backends.opened(spec, folder.path, chosen))
    experiment = Experiment(spec, engine, folder, observe, keep_models)
    if record is None:
        if (mission := experiment.dispatch.about()) is not None:
            folder.write_json("mission.json", mission)
        about = describe(spec, engine.split_names, engine.chosen, experiment.tested)
        folder.write_json("run.json", about)  # Last: a run that has it is not described again.
    experiment.restore(folder)
    experiment.checkpoint()
    return experiment
