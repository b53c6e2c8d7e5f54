"""One folder that answers "which run is better, and why": the page as a file, its table, and figures for papers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fedpareto.config.errors import UserError
from fedpareto.config.files import write_atomically
from fedpareto.record.reading import load
from fedpareto.record.run_record import Record
from fedpareto.report.across import across_clients
from fedpareto.report.axes import chosen_of
from fedpareto.report.by_device import by_device
from fedpareto.report.campaign import Summary
from fedpareto.report.comparison import comparison
from fedpareto.report.likeness import comparable
from fedpareto_page.saved import saved
from fedpareto_page.watch import Shelf


def write_comparison(
    folders: Sequence[Path],
    out: Path,
    rank: int = 1,
    converged: bool = False,
    drawn: Sequence[Path] = (),
    over: str | None = None,
    figures: bool = False,
) -> Path:
    """Write the comparison of the run folders into `out`; the path of its `index.html`.

    Beside the page are `table.md` and `table.json`, and with `figures` PNG and PDF of every figure. Every file appears
    whole or not at all. `rank` and `converged` keep outliers out of the fronts: see Record.without_outliers.
    Of many runs only those in `drawn` are on the page; the tables have all. `over` is what curves are drawn over:
    see axes.axis_of.
    """
    distinct = list({Path(folder).resolve(): Path(folder) for folder in folders}.values())
    records = [_seen(load(folder), rank, converged) for folder in distinct]
    runs = comparable(records)
    axis = chosen_of(runs, over)
    out = Path(out)
    try:  # Before the work, which takes seconds that a wrong folder would waste.
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror or error}") from None
    chosen = [folder for folder, record in zip(distinct, runs, strict=True) if not drawn or record.folder in drawn]
    files = _tables(runs, over)
    if figures:
        from fedpareto.report.pictures import rendered

        files |= rendered([record for record in runs if not drawn or record.folder in drawn], bool(drawn), axis)
    files["index.html"] = _page(chosen, rank, converged, over)
    for name, content in files.items():
        write_atomically(out / name, content)
    return out / "index.html"


def write_summary(summary: Summary, out: Path) -> Path:
    """The page of the runs of a campaign, with the best of them on it; its path."""
    return write_comparison([record.folder for record in summary.records], out, drawn=summary.best)


def _seen(record: Record, rank: int, converged: bool) -> Record:
    return record.without_outliers(rank, converged) if rank > 1 or converged else record


def _tables(runs: Sequence[Record], over: str | None) -> dict[str, bytes]:
    table, of_clients, of_devices = comparison(runs, over), across_clients(runs), by_device(runs)
    plain = table.to_plain() | {
        "across_clients": [one.to_plain() for one in of_clients],
        "by_device": [one.to_plain() for one in of_devices],
    }
    return {
        "table.md": "\n".join(one.to_markdown() for one in (table, *of_clients, *of_devices)).encode(),
        "table.json": (json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(),
    }


def _page(folders: Sequence[Path], rank: int, converged: bool, over: str | None) -> bytes:
    shelf = Shelf(folders)
    while shelf.poll() or shelf.reading:
        continue
    ids = [shelf.id_of(Path(folder).resolve()) for folder in folders]
    for id in ids:
        shelf.run(id).seen_as = lambda record: _seen(record, rank, converged)
    return saved(shelf, ids, f"/fronts?over={over}" if over else "/fronts")
