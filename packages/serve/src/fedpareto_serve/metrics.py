"""Metrics in the text format of Prometheus: of all processes, whichever serves the request.

Every process counts in a row of its own of one shared table, so that no lock is needed; the rows are added on request.
What can be counted is known from the start: an unknown path or status is counted as "other".

The multi-process mode of prometheus_client needs a folder of files, and took 45 µs a request where this takes 4.
"""

from __future__ import annotations

import multiprocessing
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
PATHS = ("/predict", "/front", "/health", "/ready", "/metrics", "/docs", "/openapi.json", OTHER)
STATUSES = ("200", "401", "404", "405", "413", "415", "422", "500", "503", OTHER)
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1024.0, 10_000.0)
"""Upper bounds of the histograms' buckets: seconds of a request, and requests or rows of a batch."""


ROW = np.dtype(
    [
        ("requests", "f8", (len(PATHS), len(STATUSES))),
        ("seconds", "f8", (len(PATHS), len(SECONDS) + 2)),
        ("batch_requests", "f8", len(SIZES) + 2),
        ("batch_rows", "f8", len(SIZES) + 2),
        ("rows", "f8", (1,)),
        ("in_flight", "f8", (1,)),
    ]
)
"""A process's row. A histogram is its buckets, one for all that is larger, and the sum."""


def shared(workers: int) -> Any:
    """A table that processes share; see Counters."""
    return multiprocessing.RawArray("b", workers * ROW.itemsize)


class Counters:
    """One process's row of the table, and the sum of all rows."""

    def __init__(self, table: Any = None, worker: int = 0) -> None:
        self._rows = np.frombuffer(shared(1) if table is None else table, dtype=ROW)
        self._own = {str(name): self._rows[name][worker] for name in ROW.names or ()}
        self._own["in_flight"][0] = 0  # Left by an earlier process that died.

    def begin(self) -> None:
        self._own["in_flight"][0] += 1

    def end(self, path: str, status: int, seconds: float, rows: int) -> None:
        """Count a request that was answered, with its number of predicted rows."""
        place, code = PATHS.index(path if path in PATHS else OTHER), str(status)
        self._own["requests"][place, STATUSES.index(code if code in STATUSES else OTHER)] += 1
        _observe(self._own["seconds"][place], SECONDS, seconds)
        self._own["rows"][0] += rows
        self._own["in_flight"][0] -= 1

    def batch(self, requests: int, rows: int) -> None:
        """Count a batch that went through the network: its numbers of requests and rows."""
        _observe(self._own["batch_requests"], SIZES, requests)
        _observe(self._own["batch_rows"], SIZES, rows)

    def text(self, info: Mapping[str, str]) -> str:
        """Text for Prometheus; `info` says what is served."""
        return "\n".join([*self._lines(info), ""])

    def _lines(self, info: Mapping[str, str]) -> Iterator[str]:
        total = {name: self._rows[name].sum(0) for name in self._own}
        yield from _head("fedpareto_info", "gauge", "What is served.")
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in info.items())
        yield f"fedpareto_info{{{labels}}} 1"
        yield from _head("fedpareto_workers", "gauge", "Processes that answer.")
        yield f"fedpareto_workers {len(self._rows)}"
        yield from _head("fedpareto_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"fedpareto_requests_in_flight {_number(total['in_flight'][0])}"
        yield from _head("fedpareto_requests_total", "counter", "Requests by path and status.")
        counts = total["requests"]
        for place, column in np.argwhere(counts):
            labels = f'path="{PATHS[place]}",status="{STATUSES[column]}"'
            yield f"fedpareto_requests_total{{{labels}}} {_number(counts[place, column])}"
        name = "fedpareto_request_duration_seconds"
        yield from _head(name, "histogram", "Time to the end of the answer.")
        for place in np.flatnonzero(counts.any(axis=1)):
            yield from _histogram(total["seconds"][place], SECONDS, name, f'path="{PATHS[place]}"')
        yield from _head("fedpareto_rows_total", "counter", "Rows predicted.")
        yield f"fedpareto_rows_total {_number(total['rows'][0])}"
        for what in ("requests", "rows"):
            yield from _head(
                f"fedpareto_batch_{what}", "histogram", f"{what.title()} that went through the network together."
            )
            yield from _histogram(total[f"batch_{what}"], SIZES, f"fedpareto_batch_{what}")


def _observe(histogram: np.ndarray, bounds: Sequence[float], value: float) -> None:
    histogram[bisect_left(bounds, value)] += 1
    histogram[-1] += value


def _histogram(histogram: np.ndarray, bounds: Sequence[float], name: str, labels: str = "") -> Iterator[str]:
    """Lines of a histogram, in which each bucket holds the smaller ones too."""
    cumulative, before = np.cumsum(histogram[:-1]), f"{labels}," if labels else ""
    for bound, count in zip((*map(_number, bounds), "+Inf"), cumulative, strict=True):
        yield f'{name}_bucket{{{before}le="{bound}"}} {_number(count)}'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {_number(histogram[-1])}"
    yield f"{name}_count{braces} {_number(cumulative[-1])}"


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
