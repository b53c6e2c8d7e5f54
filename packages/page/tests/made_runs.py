"""Run folders as a run writes them, of made-up numbers: as many and as large as one likes, at once or as they grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedpareto.moo.indicators import all_indicators, hypervolume, own_utilities
from fedpareto.moo.preferences import equidistant
from fedpareto.record.columns import in_folder
from fedpareto.record.parsing import FORMAT

SPLITS = ("train", "test", "own-test")
GOALS = ("accuracy", "demographic-parity", "calibration", "privacy")
ALGORITHMS = ("fedpref", "fedavg", "fedprox", "local", "cfl", "ditto", "apfl", "fedrep")


class MadeRun:
    """One run that is written round by round."""

    def __init__(
        self,
        folder: Path,
        algorithm: str = "fedpref",
        *,
        seeds: tuple[int, ...] = (0,),
        clients: int = 10,
        goals: int = 2,
        rounds: int = 20,
        similar: bool = True,
        private: bool = False,
        splits: tuple[str, ...] = SPLITS,
        extra: dict[str, Any] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.seeds, self.clients, self.rounds, self.similar = folder, seeds, clients, rounds, similar
        self.splits, self.private = splits, private
        self.preferences = equidistant(clients, goals) if goals > 1 else np.ones((clients, 1))
        self.columns = in_folder(folder, clients, splits, goals)
        self.maximise, self.reference = [True] * goals, [0.0] * goals
        self.done = 0
        self._draw = np.random.default_rng([len(algorithm), len(folder.name), clients])
        run = {
            "format": FORMAT,
            "began": "2026-01-02T03:04:05+00:00",
            "algorithm": algorithm,
            "problem": "synthetic",
            "seeds": list(seeds),
            "clients": clients,
            "rounds": rounds,
            "objectives": [
                {"name": name, "maximise": True, "reference": 0.0, "fairness": j > 0}
                for j, name in enumerate(GOALS[:goals])
            ],
            "outputs": [],
            "splits": list(splits),
            "tested": [],
            "names": [],
            "known_front": None,
            "layout": {"weight": [4]},
            "versions": {"fedpareto": "0.1.0"},
            "choices": {"threads": 1, "chunk": 10},
        } | (extra or {})
        wishes = "private" if private else "equidistant"
        spec = f"algorithm:\n  name: {algorithm}\nproblem:\n  name: synthetic\nclients: {clients}\nrounds: {rounds}\n"
        (folder / "spec.yaml").write_text(f"{spec}preferences: {wishes}\nquorum: 0.0\n", encoding="utf-8")
        self._dump("run.json", run)
        self.status("running")

    # -- rounds ----------------------------------------------------------------------------------------------------

    def go_on(self, rounds: int = 1) -> None:
        """Appends the lines of the next rounds, all in one piece."""
        self.append("".join(json.dumps(row) + "\n" for _ in range(rounds) for row in self.next_rows()))

    def append(self, text: str, name: str = "metrics.jsonl") -> None:
        """Appends anything to a file."""
        with (self.folder / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def next_rows(self) -> list[dict[str, Any]]:
        """The rows of the next round; the values of its clients are written."""
        rows = [self._row(seed, self.done) for seed in self.seeds]
        self.done += 1
        return rows

    def _row(self, seed: int, r: int) -> dict[str, Any]:
        n, progress = self.clients, 1 - 0.5 ** (1 + 8 * r / self.rounds)
        points = progress * (0.3 + 0.6 * self.preferences)[None] + self._draw.normal(0, 0.01, (3, n, 1))
        sent = points[: len(self.splits)].astype(np.float32).astype(float)
        trained = np.clip(sent * 1.02, 0, 1).astype(np.float32).astype(float)
        blocks = {"sent": self.columns.put(np.moveaxis(sent, 0, 1))}
        row: dict[str, Any] = {"seed": seed, "round": r}
        if self.similar:
            gaps = np.abs(self.preferences[:, None] - self.preferences[None]).sum(-1)
            row["clusters"] = [list(range(n))] if r < self.rounds / 2 else [list(range(n // 2)), list(range(n // 2, n))]
            row["similarity"] = np.round(np.clip(1 - gaps * progress, -1, 1), 4).tolist()
        if r < self.rounds:
            blocks["trained"] = self.columns.put(np.moveaxis(trained, 0, 1))
            blocks["traffic"] = self.columns.put(np.full((n, 2), 9220))
            row |= {"trained": self._means(trained), "trained_hypervolume": self._hypervolume(trained)}
        if r == 0 and not self.private:
            blocks["preferences"] = self.columns.put(self.preferences)
        return row | {
            "sent": self._means(sent),
            "hypervolume": self._hypervolume(sent),
            "replies": n if r < self.rounds else 0,
            "failures": 0,
            "bytes_down": 9220 * n,
            "bytes_up": 9220 * n,
            "seconds": float(self._draw.uniform(0.01, 0.05)),
            "at": 1767323045.0 + 2 * r,
            "columns": blocks,
        }

    def _means(self, points: np.ndarray) -> dict[str, list[float]]:
        return {split: points[i].mean(axis=0).tolist() for i, split in enumerate(self.splits)}

    def _hypervolume(self, points: np.ndarray) -> float:
        held_out = points[min(1, len(points) - 1)]
        return float(hypervolume(held_out, self.reference, self.maximise))

    def cut(self, rounds: int) -> None:
        """What a resumed run does first: drops all that came after a round."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return
        lines = path.read_bytes().splitlines(keepends=True)[: rounds * len(self.seeds)]
        end = max((self.columns.reaches(json.loads(line)) for line in lines), default=0)
        with path.open("rb+") as file:
            file.truncate(len(b"".join(lines)))
        with (self.folder / "columns.bin").open("rb+") as file:
            file.truncate(end)
        self.done = rounds

    # -- the end ---------------------------------------------------------------------------------------------------

    def status(self, name: str) -> None:
        """Writes the run's status."""
        process = {"process": {"pid": 1, "host": "here"}} if name == "running" else {}
        self._dump("status.json", {"status": name, "round": self.done, "seconds": 1.5, "message": ""} | process)

    def finish(self) -> Path:
        """All rounds that are missing, the solutions, and the status."""
        self.go_on(self.rounds + 1 - self.done)
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-len(self.seeds) :]
        found = [self._solution(json.loads(line)) for line in lines]
        self._dump("solutions.json", found)
        self.status("finished")
        return self.folder

    def _solution(self, row: dict[str, Any]) -> dict[str, Any]:
        sent = self.columns.evaluated(row, "sent")
        assert sent is not None
        held_out = sent[self.splits[min(1, len(self.splits) - 1)]]
        wishes = None if self.private else self.preferences
        indicators = all_indicators(held_out, self.reference, self.maximise, None, wishes)
        if wishes is not None:
            indicators["own_utility"] = float(own_utilities(held_out, wishes, self.maximise).mean())
        return {
            "seed": row["seed"],
            "round": row["round"],
            "clients": list(range(self.clients)),
            "preferences": None if wishes is None else wishes.tolist(),
            "objectives": {split: sent[split].tolist() for split in self.splits},
            "indicators": indicators,
        }

    def _dump(self, name: str, value: object) -> None:
        temporary = self.folder / f".{name}.part"
        temporary.write_text(json.dumps(value), encoding="utf-8")
        temporary.replace(self.folder / name)


def many_runs(root: Path, runs: int = 20, rounds: int = 1000, clients: int = 10) -> list[Path]:
    """The page's reference load, or a smaller one: finished runs with one seed each."""
    names = [ALGORITHMS[i % len(ALGORITHMS)] for i in range(runs)]
    return [
        MadeRun(
            root / f"{name}-{i:02}", name, rounds=rounds, clients=clients, similar=name in ("fedpref", "cfl")
        ).finish()
        for i, name in enumerate(names)
    ]
