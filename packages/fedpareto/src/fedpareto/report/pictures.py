"""The figures of a comparison as files for papers: PNG and PDF."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fedpareto.record.run_record import Record
from fedpareto.report import client_figures, figures
from fedpareto.report.axes import Over

FRONTS, CLIENTS = "fronts", "clients"
KINDS = ("png", "pdf")


def rendered(records: Sequence[Record], is_some: bool, over: Over) -> dict[str, bytes]:
    """Return the files of all figures by name; without those of single runs if these are some runs among many."""
    return {
        f"{name}.{kind}": figures.render(figure, kind)
        for name, figure in _drawn(records, is_some, over)
        for kind in KINDS
    }


def main_picture(records: Sequence[Record]) -> str:
    return f"{CLIENTS if records[0].single else FRONTS}.png"


def _drawn(records: Sequence[Record], is_some: bool, over: Over) -> Iterator[tuple[str, Figure]]:
    if records[0].single:
        yield CLIENTS, client_figures.clients_at_the_end(records)
    else:
        yield FRONTS, figures.fronts(records)
        yield "hypervolume", figures.hypervolume_curves(records, over)
    if any(record.clients > 1 for record in records):
        yield "clients-curves", client_figures.clients_curves(records, over)
    if any(len(record.share_improved()[0]) for record in records):
        yield "share-improved", client_figures.share_improved_curves(records, over)
    if is_some:
        return
    for record, name in zip(records, file_names(records), strict=True):
        seed = record.started[0]
        if record.clusters(seed):
            yield f"clusters-{name}", figures.cluster_evolution(record, seed)
        if record.similarity(seed):
            yield f"similarity-{name}", figures.similarity_matrices(record, seed)


def file_names(records: Sequence[Record]) -> list[str]:
    """The labels as file names, without characters that are special to a shell or a file system."""
    used: Counter[str] = Counter()
    names = []
    for record in records:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", record.label).strip("-.")[:80] or "run"
        # Some file systems ignore case.
        used[name.lower()] += 1
        names.append(name if used[name.lower()] == 1 else f"{name}-{used[name.lower()]}")
    return names
