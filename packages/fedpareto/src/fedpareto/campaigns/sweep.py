"""Many runs as one campaign: a folder with an ordinary run folder for each, resumed run by run, and what came out.

Runs of the same algorithm, problem and parameters under several seeds are one stack; the others follow each other in
the same processes, which have imported torch once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpareto.campaigns import grid
from fedpareto.campaigns.folder import Ledger, held
from fedpareto.campaigns.grid import Planned
from fedpareto.campaigns.parallel import PATIENCE, Jobs, Pieces, Stop, side_by_side
from fedpareto.config import plugins
from fedpareto.config.errors import DamagedFile, UserError, in_words, reading
from fedpareto.config.files import read_object
from fedpareto.config.interrupts import RunStopped, Stopped
from fedpareto.record.store import RunFolder
from fedpareto.runs.progress import Tally
from fedpareto.runs.runner import ensure, must_hold
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import NAMED_SECTIONS

if TYPE_CHECKING:
    from fedpareto.report.campaign import Summary

FILE, PAGE = "sweep.json", "comparison"


def page_of_summary() -> Callable[[Any, Path], Path] | None:
    """Return the function that writes the page of a campaign, if that package is installed."""
    if not plugins.have("fedpareto.pages", "summary"):
        return None
    found: Callable[[Any, Path], Path] = plugins.need("fedpareto.pages", "summary", "the page")
    return found


@dataclass(frozen=True)
class Ran:
    """One run of a campaign."""

    name: str
    settings: dict[str, Any]
    """Settings that differ between runs."""
    folder: Path
    status: str = "waiting"
    """"waiting", "finished", "failed", or "stopped" by a request for this run alone."""
    reason: str = ""
    """Reason of a failure, or round of a stop."""

    def to_plain(self) -> dict[str, Any]:
        return {"name": self.name, "settings": self.settings, "status": self.status, "reason": self.reason}


@dataclass(frozen=True)
class Campaign:
    """The result of a sweep."""

    folder: Path
    runs: tuple[Ran, ...]
    """Runs in the order of the list or the grid."""
    summaries: tuple[Summary, ...] = field(default=(), repr=False)
    """The table of the finished runs; several where they cannot be compared, such as on different problems."""
    pages: tuple[Path, ...] = ()
    """The page of each table, with figures."""

    @property
    def failed(self) -> list[Ran]:
        return [run for run in self.runs if run.status == "failed"]

    @property
    def stopped(self) -> list[Ran]:
        """The runs that a user stopped while the others went on."""
        return [run for run in self.runs if run.status == "stopped"]

    def to_plain(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "runs": [run.to_plain() for run in self.runs],
            "pages": [str(page) for page in self.pages],
            "tables": [summary.to_plain() for summary in self.summaries],
        }


def run(
    plan: Sequence[Planned],
    out: Path,
    jobs: Jobs,
    tally: Tally,
    stop: Stop,
    write_page: Callable[[Summary, Path], Path] | None = None,
) -> Campaign:
    """Do the runs that the folder does not hold yet; then make the tables of all finished runs, and their pages if one
    can.
    """
    if not isinstance(jobs, int) and (others := other_engines(plan)):
        raise UserError(f"--jobs ray gives each run to one worker, but the engine {others[0]} has workers of its own")
    with held(out, stop) as asked:
        record = Record(out, plan)
        missing = [one for one in plan if record.runs[one.name].status != "finished"]
        for _ in range(len(plan) - len(missing)):
            tally.one_more()
        pieces = Pieces(
            _do, [(one.name, one.values) for one in missing], out, itemgetter(0), lambda reason: ("failed", reason)
        )
        try:
            for number, (status, reason) in side_by_side(pieces, jobs, asked):
                record.ended(missing[number].name, status, reason)
                tally.one_more(failed=status == "failed")
        except Stopped:
            raise Stopped(f"stopped after {tally.done} of {len(plan)} runs") from None
        finally:
            tally.end()
            record.write()
        return _summed_up(Campaign(out, tuple(record.runs.values())), write_page)


def other_engines(plan: Sequence[Planned]) -> list[str]:
    """List the engines that start processes of their own."""
    return sorted({one.spec.engine.name for one in plan} - {NAMED_SECTIONS["engine"]})


def on_gpu(plan: Sequence[Planned]) -> bool:
    return any(one.spec.engine.device.startswith("cuda") for one in plan)


def _do(out: Path, piece: tuple[str, dict[str, Any]], stop: Stop) -> tuple[str, str]:
    """Do one run, or its rest; return its status, and the reason if it is not finished."""
    name, values = piece
    _wait_for(RunFolder(out / name), stop)
    try:
        ensure(out / name, Draft(values).finish(), stop)
    except RunStopped as stopped:  # This one, not the others.
        return "stopped", str(stopped)
    except (Stopped, KeyboardInterrupt):
        raise
    except UserError as problem:
        return "failed", str(problem)
    except Exception as problem:  # Whatever goes wrong in one run is no reason to give up the others.
        return "failed", f"{type(problem).__name__}: {in_words(problem)}"
    return "finished", ""


def _wait_for(folder: RunFolder, stop: Stop) -> None:
    """Wait until no process works on a run: a killed campaign may have left one, which ends after its round."""
    while folder.busy():
        if stop():
            raise Stopped("stopped before it began")
        time.sleep(PATIENCE)


class Record(Ledger):
    """The file of a sweep: its runs, and what came of each."""

    def __init__(self, out: Path, plan: Sequence[Planned]) -> None:
        super().__init__(out / FILE)
        self._must_be_ours({one.name for one in plan})
        self.runs = {one.name: Ran(one.name, dict(one.settings), out / one.name) for one in plan}
        for one in plan:
            if (out / one.name / "spec.yaml").exists():
                must_hold(out / one.name, one.spec)
                status = RunFolder(out / one.name).read_json("status.json") or {}
                if status.get("status") == "finished":
                    self.runs[one.name] = replace(self.runs[one.name], status="finished")
        self.write()

    def _must_be_ours(self, names: set[str]) -> None:
        """Raise UserError if the record has no run of this list, which may have more runs than before, or fewer."""
        if not self.path.exists():
            return
        try:
            with reading(str(self.path)):
                before = [str(one["name"]) for one in read_object(self.path)["runs"]]
        except UserError as problem:
            raise DamagedFile(f"{problem}; it is no record of a sweep: name another --out") from None
        if before and not names & set(before):
            raise UserError(f"{self.path.parent} holds another sweep ({before[0]}, …); name another --out")

    def ended(self, name: str, status: str, reason: str) -> None:
        self.runs[name] = replace(self.runs[name], status=status, reason=reason)
        self.changed()

    def record(self) -> dict[str, Any]:
        return {"runs": [run.to_plain() for run in self.runs.values()]}


def _summed_up(campaign: Campaign, write_page: Callable[[Summary, Path], Path] | None) -> Campaign:
    """Add a table and a page for the finished runs that can be compared with each other."""
    from fedpareto.report import campaign as report

    groups = list(_comparable(campaign))
    summaries, pages = [], []
    for number, (problem, runs, records) in enumerate(groups):
        varied = ({key: grid.in_words(value) for key, value in run.settings.items()} for run in runs)
        summary = report.summary(records, [one or {"run": run.name} for one, run in zip(varied, runs, strict=True)])
        page = PAGE if len(groups) == 1 else f"{PAGE}-{number + 1}-{problem}"
        summaries.append(summary)
        if write_page is not None:
            pages.append(write_page(summary, campaign.folder / page))
    return replace(campaign, summaries=tuple(summaries), pages=tuple(pages))


def _comparable(campaign: Campaign) -> Iterator[tuple[str, list[Ran], list[Any]]]:
    """The finished runs by problem and objectives."""
    from fedpareto.record import reading as runs_of

    done = [(run, runs_of.load(run.folder)) for run in campaign.runs if run.status == "finished"]

    def kind(pair: tuple[Ran, Any]) -> tuple[str, str]:
        record = pair[1]
        return record.problem, repr((record.objectives, record.held_out))

    for (problem, _), group in groupby(sorted(done, key=kind), key=kind):
        runs, records = zip(*group, strict=True)
        yield problem, list(runs), list(records)
