"""A tuning as a study of Optuna: proposed in generations, trained in stacks, kept in a file for its dashboard."""

from __future__ import annotations

import json
import logging
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpareto.campaigns.folder import held
from fedpareto.campaigns.parallel import KILLED, Jobs, Pieces, Stop, side_by_side
from fedpareto.campaigns.tuning import trials
from fedpareto.campaigns.tuning.measures import Measured
from fedpareto.campaigns.tuning.plan import Tuning
from fedpareto.campaigns.tuning.trials import Ended, Piece, shape
from fedpareto.config.errors import UserError, in_words
from fedpareto.config.files import json_text, write_atomically
from fedpareto.config.interrupts import Stopped
from fedpareto.moo.dominance import is_nondominated
from fedpareto.runs.progress import Tally
from fedpareto.spec.spec import Spec, first_difference

if TYPE_CHECKING:
    import optuna

FILE, RECORD, CHOSEN, PICTURE = "study.db", "tuning.json", "chosen.yaml", "front.png"
NAME = "fedpareto"
ABOUT, NOTED = "tuning", "measured"
"""Attributes of the study, and of each of its trials."""
BYTES, SECONDS, REASON = "bytes of all seeds", "seconds of training", "reason"
"""Keys in a trial's attribute, beside the values of its measures."""
GP_AT_ONCE = 4
"""Candidates that a Gaussian process proposes at once: each one is fitted without the answers to the others."""
BEFORE_PRUNING = 5
"""Finished candidates before any is given up."""


@dataclass(frozen=True)
class Tried:
    """One candidate."""

    number: int
    parameters: Mapping[str, Any]
    """Values by key of the spec."""
    state: str
    """"complete", "pruned" or "failed"."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Values by the name of the measure."""
    feasible: bool = True
    """True if the candidate meets the constraints."""
    bytes: float = 0.0
    """Bytes of its messages, all seeds together."""
    seconds: float = 0.0
    reason: str = ""

    @property
    def counts(self) -> bool:
        """True if the candidate may be on the front."""
        return self.state == "complete" and self.feasible


@dataclass(frozen=True)
class Outcome:
    """A whole tuning."""

    folder: Path
    objectives: Mapping[str, bool]
    """True by name if the objective is maximised."""
    tried: tuple[Tried, ...]
    weights: tuple[float, ...]

    @property
    def front(self) -> list[Tried]:
        """The candidates that no other one dominates, ascending by the first objective."""
        known = [one for one in self.tried if one.counts]
        if not known:
            return []
        points = self._points(known)
        best = np.flatnonzero(is_nondominated(points, list(self.objectives.values())))
        return [known[place] for place in best[np.lexsort(points[best].T[::-1])]]

    @property
    def chosen(self) -> Tried | None:
        """ "This one": the candidate on the front that is nearest to the ideal point.

        The ideal point has the best value of every objective on the front; distances are Euclidean, in shares of the
        front's range, each objective times its weight. Of equal ones the first that was tried.
        """
        front = self.front
        if not front:
            return None
        signs = np.where(list(self.objectives.values()), -1.0, 1.0)
        losses = self._points(front) * signs
        low, width = losses.min(axis=0), np.ptp(losses, axis=0)
        shares = (losses - low) / np.where(width > 0, width, 1.0)
        distances = np.linalg.norm(shares * np.asarray(self.weights), axis=1)
        return min(zip(distances.tolist(), front, strict=True), key=lambda pair: (pair[0], pair[1].number))[1]

    def _points(self, some: Sequence[Tried]) -> np.ndarray:
        return np.array([[one.values[name] for name in self.objectives] for one in some], dtype=float)

    @property
    def bytes(self) -> float:
        """Bytes that the whole search sent, candidates that were given up or failed included."""
        return sum(one.bytes for one in self.tried)

    def counted(self, state: str) -> int:
        return sum(one.state == state for one in self.tried)

    @property
    def sentence(self) -> str:
        """A summary of the search."""
        bad = "".join(f", {count} {state}" for state in ("pruned", "failed") if (count := self.counted(state)))
        unfit = sum(one.state == "complete" and not one.feasible for one in self.tried)
        unfit_words = f", {unfit} beyond the constraints" if unfit else ""
        return (
            f"{len(self.tried)} trials{bad}{unfit_words}; the search itself sent {self.bytes:,.0f} bytes and took "
            f"{sum(one.seconds for one in self.tried):,.0f} s of training"
        )

    def to_plain(self) -> dict[str, Any]:
        chosen = self.chosen
        return {
            "folder": str(self.folder),
            "objectives": dict(self.objectives),
            "weights": list(self.weights),
            "front": [one.number for one in self.front],
            "chosen": None if chosen is None else chosen.number,
            "cost": {
                "trials": len(self.tried),
                "pruned": self.counted("pruned"),
                "failed": self.counted("failed"),
                "bytes": self.bytes,
                "seconds": sum(one.seconds for one in self.tried),
            },
            "trials": [asdict(one) for one in self.tried],
        }


def need_optuna() -> None:
    if find_spec("optuna") is None:
        raise UserError("a tuning needs Optuna; try: pip install 'fedpareto[tune]'")


def run(tuning: Tuning, out: Path, jobs: Jobs, tally: Tally, stop: Stop) -> Outcome:
    """Try what the folder does not hold yet; then write the record, the choice as a spec, and the picture."""
    need_optuna()
    with held(out, stop) as asked:
        search = Search(tuning, out, jobs, tally, asked)
        try:
            search.go_on()
        except Stopped:
            raise Stopped(f"stopped after {tally.done} of {tally.total} trials") from None
        finally:
            tally.end()
            outcome = search.outcome()
            write_atomically(out / RECORD, json_text(outcome.to_plain(), indent=1) + "\n")
        if (chosen := outcome.chosen) is not None:
            from fedpareto.report.tuning_figure import drawn

            write_atomically(out / CHOSEN, tuning.space.spec(chosen.parameters).to_yaml())
            write_atomically(out / PICTURE, drawn(outcome.to_plain()))
        return outcome


def grid_size(tuning: Tuning) -> int:
    """Return the number of trials; a grid has as many as points."""
    return len(list(tuning.space.grid())) if tuning.settings.sampler == "grid" else tuning.settings.trials


class _Connection(sqlite3.Connection):
    """A connection that writes ahead: a finished trial survives a kill, and no write of many waits for the disk."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.execute("PRAGMA journal_mode=WAL")
        self.execute("PRAGMA synchronous=NORMAL")


class Search:
    """The study in its folder."""

    def __init__(self, tuning: Tuning, out: Path, jobs: Jobs, tally: Tally, stop: Stop) -> None:
        self.tuning, self.out, self.jobs, self.tally, self.stop = tuning, out, jobs, tally, stop
        self.optuna = _quiet()
        self.study = self._opened()

    def _opened(self) -> optuna.Study:
        url, own = f"sqlite:///{(self.out / FILE).absolute()}", {"connect_args": {"factory": _Connection}}
        directions = ["maximize" if one.maximise else "minimize" for one in self.tuning.objectives]
        pruner = self.optuna.pruners.NopPruner()
        if self.tuning.settings.prune_every:
            pruner = self.optuna.pruners.MedianPruner(n_startup_trials=BEFORE_PRUNING)
        try:
            storage = self.optuna.storages.RDBStorage(url, engine_kwargs=own)
            study = self.optuna.create_study(
                storage=storage, study_name=NAME, directions=directions, pruner=pruner, load_if_exists=True
            )
        except Exception as problem:  # Not a database, or a study with other directions.
            raise UserError(
                f"{self.out / FILE} is no study of this tuning ({in_words(problem)}); name another --out"
            ) from None
        about = json.dumps(self.tuning.to_plain(), sort_keys=True, default=str)
        before = study.user_attrs.get(ABOUT)
        if before is None:
            study.set_metric_names([one.name for one in self.tuning.objectives])
            study.set_user_attr(ABOUT, about)
        elif before != about:
            different = first_difference(json.loads(before), json.loads(about))
            raise UserError(f"{self.out} holds another tuning, with {different}; name another --out")
        return study

    def _sampler(self, seed: int) -> Any:
        settings, samplers = self.tuning.settings, self.optuna.samplers
        size = settings.population
        known: dict[str, Callable[[], Any]] = {
            "nsga2": lambda: samplers.NSGAIISampler(population_size=size, seed=seed),
            "nsga3": lambda: samplers.NSGAIIISampler(population_size=size, seed=seed),
            "tpe": lambda: samplers.TPESampler(seed=seed, multivariate=True),
            "gp": lambda: samplers.GPSampler(seed=seed),
        }
        return known.get(settings.sampler, lambda: samplers.RandomSampler(seed=seed))()

    def _left_over(self) -> list[optuna.Trial]:
        """Return candidates whose process was killed; one that was only half proposed is proposed once more."""
        states, found = self.optuna.trial.TrialState, []
        for one in self.study.get_trials(deepcopy=False, states=(states.RUNNING,)):
            known = one.system_attrs.get("fixed_params", {}) | one.params
            try:
                self.tuning.space.suggested(self.optuna.trial.FixedTrial(known))
            except ValueError:
                self.study.tell(one.number, state=states.FAIL)
            else:
                found.append(self.optuna.Trial(self.study, one._trial_id))
        return found

    def _asked(self, place: int) -> optuna.Trial:
        """Ask for a new candidate. What a sampler draws follows from its place, so a kill changes nothing."""
        (seed,) = np.random.SeedSequence((self.tuning.settings.seed, place)).generate_state(1)
        self.study.sampler = self._sampler(int(seed))
        trial = self.study.ask()
        self.tuning.space.suggested(trial)
        return trial

    # -- going on --------------------------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Try candidates until there are as many as planned."""
        for _ in self._done():
            self.tally.one_more()
        if self.tuning.settings.sampler == "grid":
            self._plan_grid()
        left = self._left_over()
        while (count := min(self.tally.total, self._next_full()) - self.tally.done) > 0:
            if self.stop():
                raise Stopped("stopped between two generations")
            places = range(self.tally.done + len(left), self.tally.done + count)
            self._generation([*left, *map(self._asked, places)])
            left = []

    def _done(self) -> list[Any]:
        """List the trials that ended, and not by a kill."""
        state = self.optuna.trial.TrialState
        ended = self.study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED, state.FAIL))
        return [one for one in ended if NOTED in one.user_attrs]

    def _next_full(self) -> int:
        """Number of trials after this generation: one that a kill has cut short is completed first."""
        settings = self.tuning.settings
        size = GP_AT_ONCE if settings.sampler == "gp" else settings.population
        return (self.tally.done // size + 1) * size

    def _plan_grid(self) -> None:
        """Plan the points of the grid that were neither tried nor planned."""
        state = self.optuna.trial.TrialState
        waiting = self.study.get_trials(deepcopy=False, states=(state.WAITING, state.RUNNING))
        known = {_text(one.params) for one in self._done()}
        known |= {_text(one.system_attrs.get("fixed_params", {})) for one in waiting}
        for point in self.tuning.space.grid():
            if _text(point) not in known:
                self.study.enqueue_trial(point)

    def _generation(self, asked: Sequence[optuna.Trial]) -> None:
        """Train candidates that were proposed together; tell the study of each as soon as it is known."""
        ready: list[tuple[optuna.Trial, Spec, dict[str, Any]]] = []
        for trial in asked:
            values = self.tuning.space.suggested(trial)
            try:
                ready.append((trial, self.tuning.space.spec(values), self.tuning.space.draft(values).values))
            except UserError as problem:  # Each value was good on its own.
                self._tell(trial, Ended({}, reason=str(problem)))
        stacks = list(self._stacks(ready))
        if self.tuning.settings.prune_every:
            for some in stacks:
                self._with_pruning(some)
            return
        names = self.tuning.judged_by
        pieces = [Piece(tuple(values for _, _, values in some), names) for some in stacks]
        work = Pieces(trials.do, pieces, self.out, lost=lambda reason: [Ended({}, reason=reason)])
        for number, ended in side_by_side(work, self.jobs, self.stop):
            some = [trial for trial, _, _ in stacks[number]]
            for place, trial in enumerate(some):
                self._tell(trial, ended[place] if len(ended) == len(some) else Ended({}, reason=KILLED))

    def _stacks(self, ready: Sequence[tuple[Any, Spec, Any]]) -> Iterator[list[tuple[Any, Spec, Any]]]:
        """Yield stacks of candidates of one shape, of a limited size; the number of processes has no say in it."""
        alike: dict[str, list[tuple[Any, Spec, Any]]] = {}
        for one in ready:
            found = shape(one[1])
            alike.setdefault(f"alone {one[0].number}" if found is None else found, []).append(one)
        size = self.tuning.settings.stack
        for some in alike.values():
            yield from (some[begin : begin + size] for begin in range(0, len(some), size))

    def _with_pruning(self, some: Sequence[tuple[Any, Spec, Any]]) -> None:
        """Train a stack in this process, which has the study at hand."""
        (objective,) = self.tuning.objectives

        def look(number: int, rounds: int, found: Measured) -> bool:
            some[number][0].report(objective.of(found), rounds)
            return bool(some[number][0].should_prune())

        specs = [spec for _, spec, _ in some]
        ended = trials.run_all(specs, self.tuning.judged_by, self.stop, look, self.tuning.settings.prune_every)
        for (trial, _, _), one in zip(some, ended, strict=True):
            self._tell(trial, one)

    def _tell(self, trial: optuna.Trial, ended: Ended) -> None:
        state = self.optuna.trial.TrialState
        cost = {BYTES: ended.bytes, SECONDS: round(ended.seconds, 3)}
        trial.set_user_attr(NOTED, cost | ended.values | ({} if ended.values else {REASON: ended.reason}))
        if not ended.values:
            self.study.tell(trial, state=state.FAIL)
        elif ended.pruned:
            self.study.tell(trial, state=state.PRUNED)
        else:
            for measure, limits in self.tuning.constraints:
                for name, excess in _excess(ended.values[measure.name], limits):
                    trial.set_constraint(f"{measure.name} {name}", excess)
            self.study.tell(trial, [ended.values[one.name] for one in self.tuning.objectives])
        self.tally.one_more(failed=not ended.values)

    # -- the end ---------------------------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        directions = {one.name: one.maximise for one in self.tuning.objectives}
        tried = tuple(self._tried(place, one) for place, one in enumerate(self._done()))
        return Outcome(self.out, directions, tried, tuple(self.tuning.weights()))

    def _tried(self, place: int, one: Any) -> Tried:
        # Its place, and not Optuna's number: that counts what a kill has cut short, too.
        noted = dict(one.user_attrs[NOTED])
        values = {name: float(noted[name]) for name in self.tuning.judged_by if name in noted}
        feasible = all(
            excess <= 0
            for measure, limits in self.tuning.constraints
            if measure.name in values
            for _, excess in _excess(values[measure.name], limits)
        )
        state = {"COMPLETE": "complete", "PRUNED": "pruned"}.get(one.state.name, "failed")
        parameters = self.tuning.space.suggested(self.optuna.trial.FixedTrial(one.params))
        cost = float(noted.get(BYTES, 0.0)), float(noted.get(SECONDS, 0.0))
        return Tried(place, parameters, state, values, feasible, *cost, reason=str(noted.get(REASON, "")))


def _excess(value: float, limits: Any) -> Iterator[tuple[str, float]]:
    """Yield by how much a value breaks each limit; not at all from 0 down."""
    if "least" in limits:
        yield "least", limits["least"] - value
    if "most" in limits:
        yield "most", value - limits["most"]


def _text(parameters: Any) -> str:
    return json.dumps(parameters, sort_keys=True, default=str)


def _quiet() -> Any:
    """Import Optuna without its own messages; parts of it are marked as experimental."""
    import optuna

    logging.getLogger("optuna").setLevel(logging.ERROR)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", "The reported value is ignored")  # Of a candidate that is trained once more.
    return optuna
