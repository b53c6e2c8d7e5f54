"""A run's figures for TensorBoard: one folder of events for each seed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from fedpareto.config.errors import UserError
from fedpareto.config.files import for_writing
from fedpareto.runs.callbacks import Ending
from fedpareto.runs.logged import About, Log

VERSION = "brain.Event:2"
"""The first record of a file of events."""


class TensorBoard(Log):
    """Events in `WHERE/NAME/seed-N`, or without a `WHERE` in the run's folder under `tensorboard/seed-N`."""

    def __init__(self, about: About, where: str = "") -> None:
        super().__init__(about)
        if find_spec("tensorboard") is None:
            raise UserError("logging to TensorBoard needs other packages; try: pip install 'fedpareto[tensorboard]'")
        if not where and about.folder is None:
            raise UserError("a run that is kept nowhere has no folder for TensorBoard; name one: tensorboard:DIR")
        self.folder = Path(where) / about.name if about.folder is None or where else about.folder / "tensorboard"
        self._files: dict[int, _Events] = {}

    def begin(self) -> None:
        """Begin new files, whose beginning tells readers to forget what older ones of the same run hold."""
        from tensorboard.compat.proto.event_pb2 import SessionLog
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb

        now, name = time.time(), self.about.name
        for seed in self.about.seeds:
            file = self._files[seed] = _Events(self.folder / f"seed-{seed}")
            file.add(now, file_version=VERSION)
            file.add(now, step=0, session_log=SessionLog(status=SessionLog.START))
            file.add(now, summary=hparams_pb({**self.about.parameters, "seed": seed}, trial_id=f"{name} {seed}"))
        self.flush()

    def figures(self, seed: int, round: int, at: float, values: Mapping[str, float]) -> None:
        """Write one event, a tag for each figure; the step is the round."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._files[seed].add(at, step=round, summary=Summary(value=found))

    def final(self, seed: int, round: int, values: Mapping[str, float]) -> None:
        self.figures(seed, round, time.time(), {f"final/{name}": value for name, value in values.items()})

    def flush(self) -> None:
        for file in self._files.values():
            file.flush()

    def end(self, how: Ending) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()


class _Events:
    """A file of events, the next in its folder: TensorBoard reads them in the order of their names."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("*.tfevents.*")))
        self._file: IO[bytes] = for_writing(folder / f"events.out.tfevents.{number:010d}.fedpareto", "xb")
        self._records = RecordWriter(self._file)

    def add(self, at: float, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        self._records.write(Event(wall_time=at, **content).SerializeToString())

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()
