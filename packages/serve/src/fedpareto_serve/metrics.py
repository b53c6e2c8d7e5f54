"""Metrics in the text format of Prometheus: of all processes, whichever serves the request.

Every process counts in a row of its own of one shared table, so that no lock is needed; the rows are added on request.
What can be counted is known from the start: an unknown path or status is counted as "other".
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


class Histogram:
    """Position of a histogram in a row: its buckets, one for all that is larger, and the sum."""

    def __init__(self, start: int, bounds: Sequence[float]) -> None:
        self.start, self.bounds = start, tuple(bounds)
        self.width = len(bounds) + 2

    def observe(self, row: np.ndarray, value: float) -> None:
        """Counts a value."""
        row[self.start + bisect_left(self.bounds, value)] += 1
        row[self.start + self.width - 1] += value

    def lines(self, row: np.ndarray, name: str, labels: str = "") -> Iterator[str]:
        """As Prometheus reads it: each bucket holds the smaller ones too."""
        cumulative = np.cumsum(row[self.start : self.start + self.width - 1])
        before = f"{labels}," if labels else ""
        for bound, count in zip((*map(_number, self.bounds), "+Inf"), cumulative, strict=True):
            yield f'{name}_bucket{{{before}le="{bound}"}} {_number(count)}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {_number(row[self.start + self.width - 1])}"
        yield f"{name}_count{braces} {_number(cumulative[-1])}"


REQUESTS = 0
"""Position of each metric in a row: first requests by path and status, then the others one after the other."""
DURATIONS = [Histogram(len(PATHS) * len(STATUSES) + place * (len(SECONDS) + 2), SECONDS) for place in range(len(PATHS))]
BATCH_REQUESTS = Histogram(DURATIONS[-1].start + DURATIONS[-1].width, SIZES)
BATCH_ROWS = Histogram(BATCH_REQUESTS.start + BATCH_REQUESTS.width, SIZES)
ROWS = BATCH_ROWS.start + BATCH_ROWS.width
IN_FLIGHT = ROWS + 1
WIDTH = IN_FLIGHT + 1


def shared(workers: int) -> Any:
    """A table that processes share; see Counters."""
    return multiprocessing.RawArray("d", workers * WIDTH)


class Counters:
    """One process's row of the table, and the sum of all rows."""

    def __init__(self, table: Any = None, worker: int = 0) -> None:
        table = shared(1) if table is None else table
        self._rows = np.frombuffer(table, dtype=np.float64).reshape(-1, WIDTH)
        self._own = self._rows[worker]
        self._own[IN_FLIGHT] = 0  # Left by an earlier process that died.

    def begin(self) -> None:
        """A request has arrived."""
        self._own[IN_FLIGHT] += 1

    def end(self, path: str, status: int, seconds: float, rows: int) -> None:
        """A request was answered, with its number of predicted rows."""
        place = PATHS.index(path if path in PATHS else OTHER)
        code = str(status)
        column = STATUSES.index(code if code in STATUSES else OTHER)
        self._own[REQUESTS + place * len(STATUSES) + column] += 1
        DURATIONS[place].observe(self._own, seconds)
        self._own[ROWS] += rows
        self._own[IN_FLIGHT] -= 1

    def batch(self, requests: int, rows: int) -> None:
        """A batch went through the network: its numbers of requests and rows."""
        BATCH_REQUESTS.observe(self._own, requests)
        BATCH_ROWS.observe(self._own, rows)

    def text(self, info: Mapping[str, str]) -> str:
        """What Prometheus reads; `info` says what is served."""
        return "\n".join([*self._lines(self._rows.sum(0), info), ""])

    def _lines(self, total: np.ndarray, info: Mapping[str, str]) -> Iterator[str]:
        yield from _head("fedpareto_info", "gauge", "What is served.")
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in info.items())
        yield f"fedpareto_info{{{labels}}} 1"
        yield from _head("fedpareto_workers", "gauge", "Processes that answer.")
        yield f"fedpareto_workers {len(self._rows)}"
        yield from _head("fedpareto_requests_in_flight", "gauge", "Requests that are being answered.")
        yield f"fedpareto_requests_in_flight {_number(total[IN_FLIGHT])}"
        yield from _head("fedpareto_requests_total", "counter", "Requests by path and status.")
        counts = total[REQUESTS : REQUESTS + len(PATHS) * len(STATUSES)].reshape(len(PATHS), len(STATUSES))
        for place, column in np.argwhere(counts):
            labels = f'path="{PATHS[place]}",status="{STATUSES[column]}"'
            yield f"fedpareto_requests_total{{{labels}}} {_number(counts[place, column])}"
        yield from _head("fedpareto_request_duration_seconds", "histogram", "Time to the end of the answer.")
        for place, histogram in enumerate(DURATIONS):
            if counts[place].any():
                yield from histogram.lines(total, "fedpareto_request_duration_seconds", f'path="{PATHS[place]}"')
        yield from _head("fedpareto_rows_total", "counter", "Rows predicted.")
        yield f"fedpareto_rows_total {_number(total[ROWS])}"
        yield from _head("fedpareto_batch_requests", "histogram", "Requests that went through the network together.")
        yield from BATCH_REQUESTS.lines(total, "fedpareto_batch_requests")
        yield from _head("fedpareto_batch_rows", "histogram", "Rows that went through the network together.")
        yield from BATCH_ROWS.lines(total, "fedpareto_batch_rows")


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
