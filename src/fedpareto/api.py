"""The Python API: run, sweep, resume, and load a run's models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedpareto.core import consent
from fedpareto.core.algorithm import Algorithm
from fedpareto.core.learner import Learner
from fedpareto.core.parameters import build, to_plain
from fedpareto.core.problem import Problem
from fedpareto.engines.faults import Faults
from fedpareto.engines.options import EngineOptions, LocalOptions
from fedpareto.errors import UserError
from fedpareto.experiments import grid, runner, steps
from fedpareto.experiments import sweep as sweeps
from fedpareto.experiments.draft import Draft
from fedpareto.experiments.grid import Source
from fedpareto.experiments.parallel import OnRay
from fedpareto.experiments.progress import OnRound, tallied
from fedpareto.experiments.result import Result
from fedpareto.experiments.spec import NAMED_SECTIONS, ROUNDS, WORDS, Spec
from fedpareto.experiments.spec_values import top_level, usual_policy
from fedpareto.experiments.sweep import Campaign
from fedpareto.fleet.devices import Devices
from fedpareto.fleet.policy import Policy
from fedpareto.fleet.selection import Selection
from fedpareto.problems.fairness.benchmarks import OwnTable
from fedpareto.problems.fairness.sources import keep_frame
from fedpareto.serving import runs
from fedpareto.serving.runs import Source as ModelSource
from fedpareto.trust.attacks import Attack
from fedpareto.trust.defences import Defence
from fedpareto.trust.privacy import Privacy
from fedpareto.trust.secure_sum import SecureSum
from fedpareto.tuning.front import Outcome

T = TypeVar("T")

EXAMPLES = {
    "learner": {"lr": 0.1},
    "engine": {"device": "cuda"},
    "faults": {"dropout": 0.3},
    "privacy": {"kind": "local"},
    "secure_sum": {"kind": "masked"},
    "attack": {"kind": "sign-flip"},
    "defence": {"rule": "median"},
    "devices": {"kind": "tiers"},
    "policy": {"kind": "buffered"},
    "selection": {"kind": "oort"},
}
"""What parts of a spec may look like, for messages."""


def run(
    problem: str | Problem = NAMED_SECTIONS["problem"],
    algorithm: str | Algorithm[Any] = NAMED_SECTIONS["algorithm"],
    *,
    clients: int | None = None,
    rounds: int = ROUNDS,
    seeds: int | Sequence[int] = 1,
    preferences: Any = "dirichlet",
    participation: float = 1.0,
    quorum: float = 0.0,
    evaluate_every: int = 1,
    stop_after: int = 0,
    stop_margin: float = 0.0,
    step: Literal["validated", "fixed"] | None = None,
    measure_losses: bool = False,
    measure_contribution: bool = False,
    normalisation: Literal["averaged", "private-statistics", "private"] = "averaged",
    codec: str = "float32",
    server_codec: str = "float32",
    learner: Learner | Mapping[str, Any] | None = None,
    engine: EngineOptions | Mapping[str, Any] | str | None = None,
    faults: Faults | Mapping[str, Any] | None = None,
    privacy: Privacy | Mapping[str, Any] | str | None = None,
    secure_sum: SecureSum | Mapping[str, Any] | str | None = None,
    attack: Attack | Mapping[str, Any] | str | None = None,
    defence: Defence | Mapping[str, Any] | str | None = None,
    devices: Devices | Mapping[str, Any] | str | None = None,
    policy: Policy | Mapping[str, Any] | str | None = None,
    selection: Selection | Mapping[str, Any] | str | None = None,
    out: str | Path | None = None,
    on_round: OnRound | None = None,
    log_to: str | Sequence[str] = (),
) -> Result:
    """Runs one algorithm on one problem and returns the solutions of every client.

    `problem` and `algorithm` are names (`fedpareto problems`, `fedpareto algorithms`) or objects; `seeds` is how many
    (0, 1, …) or which; `preferences` is a distribution ("dirichlet", "equidistant", "gaussian"), one vector for all
    clients, one for each, or by name ({"north": [0.9, 0.1], "*": [0.5, 0.5]}); `learner` changes how clients train
    ({"lr": 0.1}), `engine` where ({"device": "cuda"}), `faults` injects failures ({"dropout": 0.3}), `privacy` adds
    noise ({"kind": "local"}), `secure_sum` hides all but the sum from the server ({"kind": "masked"}), `attack`
    makes some clients malicious ({"kind": "sign-flip"}) and `defence` is the server's rule ({"rule": "median"});
    `devices` are what clients run on ({"kind": "tiers"}), `policy` says for whom a round waits ({"kind":
    "buffered"}) and `selection` who is asked ({"kind": "oort"}); a word alone is the engine's name, the rule of a
    defence ("median") or the kind of any of the others. `stop_after` stops a seed after this many rounds without
    improvement on validation rows, with its best models. `step` says whether step sizes are chosen on validation
    rows ("validated") or are the learner's ("fixed"). `Result.share_improved` needs `measure_losses`, and
    `Result.contributions` `measure_contribution`.
    `normalisation` says whether clients keep statistics ("private-statistics") or the whole of normalisation layers
    ("private") for themselves. `codec` makes replies shorter ("int8-delta"), `server_codec` what clients are sent. With
    `out`, everything is kept in that folder and can be resumed; `log_to` are other tools that follow the run
    ("tensorboard", "mlflow:URI").

        result = fedpareto.run("convex", "fedpref", clients=20, preferences="equidistant")
    """
    task: Problem = _named(Problem, problem, "problem")
    if not isinstance(problem, str):
        consent.name_all(vars(task))
    values = {
        "clients": task.default_clients() if clients is None else clients,
        "rounds": rounds,
        "seeds": seeds,
        "preferences": preferences,
        "participation": participation,
        "quorum": quorum,
        "evaluate_every": evaluate_every,
        "stop_after": stop_after,
        "stop_margin": stop_margin,
        "measure_losses": measure_losses,
        "measure_contribution": measure_contribution,
        "normalisation": normalisation,
        "codec": codec,
        "server_codec": server_codec,
    }
    used: Algorithm[Any] = _named(Algorithm, algorithm, "algorithm")
    trained: Learner = _part(Learner, task.learner(), learner, "learner")
    where, secret = _engine(engine), _part(Privacy, Privacy(), privacy, "privacy")
    set_by_hand = ["lr"] if isinstance(learner, Learner) else learner or ()
    values["step"] = steps.usual(used, task, trained, where, secret, set_by_hand) if step is None else step
    hidden = _part(SecureSum, SecureSum(), secure_sum, "secure_sum")
    spec = Spec(
        algorithm=used,
        problem=task,
        learner=trained,
        engine=where,
        faults=_part(Faults, Faults(), faults, "faults"),
        privacy=secret,
        secure_sum=hidden,
        attack=_part(Attack, Attack(), attack, "attack"),
        defence=_part(Defence, Defence(), defence, "defence"),
        devices=_part(Devices, Devices(), devices, "devices"),
        policy=_part(Policy, usual_policy(used, hidden) if policy is None else Policy(), policy, "policy"),
        selection=_part(Selection, Selection(), selection, "selection"),
        **{key: top_level(key, value) for key, value in values.items()},
    )
    return runner.start(spec, None if out is None else Path(out), on_round, log_to=log_to)


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
    from fedpareto.page.comparison import write_summary

    listed = [specs] if isinstance(specs, str | Path | Mapping) else list(specs)
    consent.name_all([source for source in listed if isinstance(source, Mapping)])
    plan = grid.plan(listed)
    if isinstance(jobs, str) and jobs != "ray":
        raise UserError(f"jobs is {jobs!r}; it is a number, or 'ray'")
    if isinstance(jobs, int) and jobs < 1:
        raise UserError(f"jobs is {jobs}; at least 1 is needed")
    where = OnRay(address, gpus=int(sweeps.on_gpu(plan))) if isinstance(jobs, str) else jobs
    return sweeps.run(plan, Path(out), where, tallied("runs", len(plan), quiet), lambda: False, write_summary)


def tune(spec: Source, out: str | Path, *, grid: str = "", jobs: int = 1, quiet: bool = False) -> Outcome:
    """Searches over the parameters of a spec, as its section `tune` says, in the folder `out`.

    A spec is the path of a YAML file, or what such a file holds; `grid` is a published grid instead of its search, and
    `jobs` how many stacks of candidates are trained at a time. The same call again continues what was stopped or
    killed. `Outcome.front` are the best candidates, `Outcome.chosen` is one of them.

        outcome = fedpareto.tune({"problem": "convex", "tune": {"search": {"lr": [0.1, 0.2]}}}, "runs/tuned")
    """
    from fedpareto.tuning import plan, study

    study.need_optuna()
    if jobs < 1:
        raise UserError(f"jobs is {jobs}; at least 1 is needed")
    if isinstance(spec, Mapping):
        consent.name_all(spec)
    tuning = plan.read(spec if isinstance(spec, Mapping) else Path(spec), grid=grid)
    return study.run(tuning, Path(out), jobs, tallied("trials", study.grid_size(tuning), quiet), lambda: False)


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


def resume(
    folder: str | Path, on_round: OnRound | None = None, *, frame: Any = None, log_to: str | Sequence[str] = ()
) -> Result | None:
    """Continues a run that was stopped or killed, bit for bit; None if it was finished already.

    A run on a DataFrame needs the same `frame` again, unless this process still has it. `log_to`: see run.
    """
    if frame is not None:
        keep_frame(frame)
    return runner.resume(Path(folder), on_round, log_to=log_to)


def load(path: str | Path) -> ModelSource:
    """A finished run's folder, a file that `fedpareto export` wrote or a Flower node's folder, to use its models.

    model = fedpareto.load("runs/praffl-synthetic").conditioned(client=0)
    model(x, [0.7, 0.3])
    """
    return runs.load(Path(path))


def _named(kind: type[Any], given: Any, section: str) -> Any:
    """An object as it is, or the one of a name."""
    if isinstance(given, str):
        return getattr(Draft({section: given}).finish(), section)
    if isinstance(given, kind):
        return given
    raise UserError(f"{section} is {given!r}; it should be a name, such as '{NAMED_SECTIONS[section]}', or an object")


def _engine(given: Any) -> EngineOptions:
    """The engine of a name, of parameters with or without a name, or an object."""
    if given is None or isinstance(given, str | Mapping):
        return Draft({"engine": dict(given) if isinstance(given, Mapping) else given}).finish().engine
    return _part(EngineOptions, LocalOptions(), given, "engine")


def _part(kind: type[Any], default: T, given: Any, section: str) -> T:
    """A part of a spec: the default, an object instead of it, or the default with some parameters changed."""
    if given is None:
        return default
    if isinstance(given, str) and section in WORDS:
        given = {WORDS[section]: given}
    if isinstance(given, Mapping):
        return build(type(default), to_plain(default) | dict(given), section)
    if isinstance(given, kind):
        part: T = given
        return part
    word = "a word, " if section in (*WORDS, *NAMED_SECTIONS) else ""
    raise UserError(
        f"{section} is {given!r}; it should be {word}parameters by name, such as {EXAMPLES[section]}, or an object of "
        f"the class {kind.__name__}"
    )
