"""The Python API: run, sweep, resume, and load a run's models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from textwrap import fill
from typing import Any, Literal

from fedpareto.campaigns import grid
from fedpareto.campaigns import sweep as sweeps
from fedpareto.campaigns.grid import Source
from fedpareto.campaigns.parallel import on_ray
from fedpareto.campaigns.sweep import Campaign, page_of_summary
from fedpareto.campaigns.tuning import plan as plans
from fedpareto.campaigns.tuning import study
from fedpareto.campaigns.tuning.study import Outcome
from fedpareto.config import extras, plugins
from fedpareto.config import keys as known
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build
from fedpareto.contract import consent
from fedpareto.contract.algorithm import Algorithm
from fedpareto.contract.problem import Problem
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.fairness.sources import keep_frame
from fedpareto.runs import runner
from fedpareto.runs.callbacks import Callback
from fedpareto.runs.progress import OnRound, tallied
from fedpareto.runs.result import Result
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import NAMED_SECTIONS, SECTIONS


@extras.named()
def run(
    problem: str | Problem = NAMED_SECTIONS["problem"],
    algorithm: str | Algorithm[Any] = NAMED_SECTIONS["algorithm"],
    *,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    log_to: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
    **keys: Any,
) -> Result:
    """Runs one algorithm on one problem and returns the solutions of every client.

    `problem` and `algorithm` are names (`fedpareto problems`, `fedpareto algorithms`) or objects. Every other key of a
    spec is an argument: `rounds=30`, `seeds=3`. A section is a mapping of parameters, `learner={"lr": 0.1}`,
    `engine={"device": "cuda"}`, `faults={"dropout": 0.3}`; a word, `privacy="local"`, `policy="buffered"`; or an object
    of its class. With `out`, everything is kept in that folder and can be resumed;
    `log_to` are other tools that follow the run ("tensorboard", "mlflow:URI"); `callbacks` are your own objects that do
    so, and may end it (see Callback).

        result = fedpareto.run("convex", "fedpref", clients=20, preferences="equidistant")
    """
    given = {"problem": problem, "algorithm": algorithm, **keys}
    draft = Draft({name: value for name, value in given.items() if value is not None})
    consent.name_all({name: value for name, value in draft.values.items() if name in ("problem", "engine")})
    if isinstance(problem, Problem):
        consent.name_all(vars(problem))
    return runner.start(
        draft.finish(), None if out is None else Path(out), on_round, log_to=log_to, callbacks=callbacks
    )


def _with_keys() -> None:
    """Tells `help(run)` and editors every key of a spec."""
    own = signature(run).parameters.values()
    keys = {**known.usual(), **dict.fromkeys(SECTIONS[2:])}
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            *(one for one in own if one.kind is Parameter.POSITIONAL_OR_KEYWORD),
            *(Parameter(name, Parameter.KEYWORD_ONLY, default=value) for name, value in keys.items()),
            *(one for one in own if one.kind is Parameter.KEYWORD_ONLY),
        ],
        return_annotation=Result,
    )
    told = (f"{one.name}: {one.text} Default: {one.default}." for one in known.about())
    lines = [fill(line, 116, initial_indent="    ", subsequent_indent="        ") for line in told]
    run.__doc__ = "\n".join([str(run.__doc__).rstrip(), "", *lines, "    "])


_with_keys()


@extras.named()
def sweep(
    specs: Source | Sequence[Source],
    out: str | Path,
    *,
    jobs: int | Literal["ray"] = 1,
    address: str = "",
    quiet: bool = False,
) -> Campaign:
    """Runs a list of specs, or every point of a grid in a spec, as one campaign in the folder `out`.

    A spec is the path of a YAML file, or what such a file holds; its section `sweep` lists values by parameter, named
    as on the command line. `jobs` is how many run at a time, each in a process of its own; "ray" hands them to the Ray
    cluster at `address`, or to a Ray on this machine. The same call again continues what was stopped or killed. Runs
    that fail are in `Campaign.failed`, and the others go on.

        campaign = fedpareto.sweep({"problem": "convex", "sweep": {"lr": [0.1, 0.2], "seeds": 3}}, "runs/steps")
    """
    listed = [specs] if isinstance(specs, str | Path | Mapping) else list(specs)
    consent.name_all([source for source in listed if isinstance(source, Mapping)])
    plan = grid.plan(listed)
    if isinstance(jobs, str) and jobs != "ray":
        raise UserError(f"jobs is {jobs!r}; it is a number, or 'ray'")
    if isinstance(jobs, int) and jobs < 1:
        raise UserError(f"jobs is {jobs}; at least 1 is needed")
    where = on_ray(address, gpus=int(sweeps.on_gpu(plan))) if isinstance(jobs, str) else jobs
    return sweeps.run(plan, Path(out), where, tallied("runs", len(plan), quiet), lambda: False, page_of_summary())


@extras.named()
def tune(spec: Source, out: str | Path, *, grid: str = "", jobs: int = 1, quiet: bool = False) -> Outcome:
    """Searches over the parameters of a spec, as its section `tune` says, in the folder `out`.

    A spec is the path of a YAML file, or what such a file holds; `grid` is a published grid instead of its search, and
    `jobs` how many stacks of candidates are trained at a time. The same call again continues what was stopped or
    killed. `Outcome.front` are the best candidates, `Outcome.chosen` is one of them.

        outcome = fedpareto.tune({"problem": "convex", "tune": {"search": {"lr": [0.1, 0.2]}}}, "runs/tuned")
    """
    study.need_optuna()
    if jobs < 1:
        raise UserError(f"jobs is {jobs}; at least 1 is needed")
    if isinstance(spec, Mapping):
        consent.name_all(spec)
    tuning = plans.read(spec if isinstance(spec, Mapping) else Path(spec), grid=grid)
    return study.run(tuning, Path(out), jobs, tallied("trials", study.grid_size(tuning), quiet), lambda: False)


@extras.named()
def table(
    data: Any, label: str, sensitive: str | Sequence[str], *, positive: str | int | float = "", **parameters: Any
) -> Problem:
    """Your own table as a problem: a pandas or polars DataFrame, or the path of a CSV, a Parquet file or a folder.

    `sensitive` is a column or several; `positive` the value of the label that counts as 1, if its values do not make
    it clear; other parameters are those of the problem `table` (`fedpareto problems table`).

        problem = fedpareto.table(df, label="hired", sensitive="gender")
        result = fedpareto.run(problem, "fedpref", clients=5)
    """
    consent.name_all(parameters)
    values = {
        **parameters,
        "file": str(data) if isinstance(data, str | Path) else keep_frame(data),
        "label": label,
        "sensitive": [sensitive] if isinstance(sensitive, str) else list(sensitive),
        "positive": positive,
    }
    return build(OwnTable, values, "table")


@extras.named()
def resume(
    folder: str | Path,
    on_round: OnRound | None = None,
    *,
    frame: Any = None,
    log_to: str | Sequence[str] = (),
    callbacks: Sequence[Callback] = (),
) -> Result | None:
    """Continues a run that was stopped or killed, bit for bit; None if it was finished already.

    A run on a DataFrame needs the same `frame` again, unless this process still has it. `log_to` and `callbacks` are
    those of `run`.
    """
    if frame is not None:
        keep_frame(frame)
    return runner.resume(Path(folder), on_round, log_to=log_to, callbacks=callbacks)


@extras.named()
def load(path: str | Path) -> Any:
    """A finished run's folder, a file that `fedpareto export` wrote or a Flower node's folder, to use its models.

    model = fedpareto.load("runs/praffl-synthetic").conditioned(client=0)
    model(x, [0.7, 0.3])
    """
    return plugins.need("fedpareto.functions", "load", "using a run's models")(Path(path))
