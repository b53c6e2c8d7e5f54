"""What codecs cost and save: bytes of a real update, whole runs with error feedback, speed, and libaec; docs/codecs.md.

`python benchmarks/bytes.py update` writes one client's update of a convolutional network with every codec, beside the
whole model as an ONNX file. `runs FOLDER` trains three problems with five seeds under each codec (what is in the folder
already is not run again) and prints accuracy, hypervolume and bytes beside those of float32. `speed` codes 1 MB.
`libaec` compares the coder of CCSDS 121.0-B with libaec in 810 round trips each way.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedpareto
from fedpareto.codecs import Codec, ccsds121
from fedpareto.codecs.ccsds121 import BLOCKS, Format
from fedpareto.contract import registry

CODECS = (
    "float32",
    "float32+zstd",
    "float32+ccsds121",
    "float32-delta",
    "float32-delta+zstd",
    "float16-delta",
    "bfloat16-delta",
    "int8",
    "int8-delta",
    "int8-delta+zstd",
    "int4-delta",
    "int4-delta+zstd",
    "top10%-delta",
    "top1%-delta",
)
TIMED = ("float32-delta", "int8-delta", "int4-delta", "top10%-delta", "float16-delta")
"""Those whose speed is measured."""
PROBLEMS: dict[str, dict[str, Any]] = {
    "synthetic": {"problem": {"name": "synthetic"}, "rounds": 30},
    "adult": {"problem": {"name": "adult"}, "rounds": 20},
    "multi-mnist": {"problem": {"name": "multi-mnist", "samples": 3000}, "rounds": 15},
}
ALGORITHMS = ("fedavg", "fedpref")
SEEDS, CLIENTS = 5, 10


# -- one update ----------------------------------------------------------------------------------------------------


def network() -> nn.Module:
    """151,306 parameters for images of 8 × 8."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def flat(model: nn.Module) -> Tensor:
    """All parameters as one vector."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().clone()


def real_update(rounds: int = 3, clients: int = 10) -> tuple[nn.Module, np.ndarray, np.ndarray]:
    """A client's model and the global one that it began from, after some rounds of FedAvg on handwritten digits."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    digits, labels = load_digits(return_X_y=True)
    images, classes = torch.tensor(digits / 16, dtype=torch.float32).reshape(-1, 1, 8, 8), torch.tensor(labels)
    parts = np.array_split(np.random.default_rng(0).permutation(len(images)), clients)
    model = network()

    def trained(start: Tensor, rows: np.ndarray) -> Tensor:
        nn.utils.vector_to_parameters(start.clone(), model.parameters())
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for batch in [one for _ in range(3) for one in torch.as_tensor(rows).split(16)]:
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), classes[batch]).backward()
            optimiser.step()
        return flat(model)

    common = flat(model)
    for _ in range(rounds):
        common = torch.stack([trained(common, rows) for rows in parts]).mean(dim=0)
    return model, trained(common, parts[0]).numpy(), common.numpy()


def whole_file(model: nn.Module) -> int:
    """Bytes of the model as an ONNX file."""
    file = io.BytesIO()
    program = torch.onnx.export(model.eval(), (torch.zeros(1, 1, 8, 8),), dynamo=True, optimize=False, verbose=False)
    assert program is not None, "made with dynamo"
    program.save(file)
    return len(file.getvalue())


def update() -> None:
    """The table of bytes."""
    model, values, base = real_update()
    whole, change = whole_file(model), np.linalg.norm(values - base)
    print(f"{len(values)} parameters; as an ONNX file {whole:,} bytes; ‖Δ‖ / ‖θ‖ = {change / np.linalg.norm(base):.3f}")
    print("| codec | bytes | of the whole model | of the update lost |\n|---|---|---|---|")
    for word in CODECS:
        codec = Codec.parse(word)
        data = codec.encode(values, base)
        held = codec.decode(data, len(values), base)
        lost = np.linalg.norm(held - values) / change
        print(f"| `{word}` | {len(data):,} | {len(data) / whole:.1%} | {f'{lost:.2%}' if lost else 'nothing'} |")


# -- whole runs ----------------------------------------------------------------------------------------------------


def run(problem: str, algorithm: str, word: str) -> list[dict[str, float]]:
    """What a run ends with, for each seed."""
    spec = PROBLEMS[problem]
    parameters = {key: value for key, value in spec["problem"].items() if key != "name"}
    result = fedpareto.run(
        registry.problem_class(spec["problem"]["name"])(**parameters),
        algorithm,
        clients=CLIENTS,
        rounds=spec["rounds"],
        seeds=SEEDS,
        step="fixed",
        codec=word,
        evaluate_every=spec["rounds"],
        engine={"threads": 1, "chunk": CLIENTS},
    )
    ends = []
    for seed, found in enumerate(result.solutions):
        named = [place for place, one in enumerate(found.objectives) if one.name.startswith("accuracy")]
        up = sum(row.get("bytes_up", 0) for row in result.history if row["seed"] == seed)
        accuracy = float(found.points[:, named].mean())
        ends.append({"accuracy": accuracy, "hypervolume": found.hypervolume(), "bytes": float(up)})
    return ends


def runs(folder: Path, problems: list[str], algorithms: list[str], words: list[str]) -> None:
    """Runs what is missing, then prints the table."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for problem, algorithm, word in itertools.product(problems, algorithms, words):
        file = folder / f"{problem}-{algorithm}-{word.replace('%', '')}.json"
        if not file.exists():
            file.write_text(json.dumps(run(problem, algorithm, word)), encoding="utf-8")
        found[problem, algorithm, word] = json.loads(file.read_text(encoding="utf-8"))
    print("| problem | algorithm | codec | bytes of replies | accuracy, points | hypervolume, points |")
    print("|---|---|---|---|---|---|")
    for (problem, algorithm, word), ends in found.items():
        plain = found[problem, algorithm, "float32"]
        share = np.mean([one["bytes"] for one in ends]) / np.mean([one["bytes"] for one in plain])
        cells = [_beside(ends, plain, name) for name in ("accuracy", "hypervolume")]
        print(f"| {problem} | {algorithm} | `{word}` | {share:.1%} | {' | '.join(cells)} |")


def _beside(ends: list[dict[str, float]], plain: list[dict[str, float]], name: str) -> str:
    """The mean over seeds of a value, or what it differs from float32's with the standard error of that."""
    values, usual = (100 * np.array([one[name] for one in some]) for some in (ends, plain))
    if ends is plain:
        return f"{values.mean():.2f}"
    apart = values - usual
    return f"{apart.mean():+.2f} ± {apart.std(ddof=1) / np.sqrt(len(apart)):.2f}"


# -- speed and libaec ----------------------------------------------------------------------------------------------


def speed(repeats: int = 30) -> None:
    """MB of float32 a second, for an update of 1 MB; of the processor's time, the best of several."""
    _, values, base = real_update()
    values, base = (np.tile(one, 2)[: 2**18] for one in (values, base))

    def best(work: Callable[[], object]) -> float:
        found = []
        for _ in range(repeats):
            begun = time.process_time()
            work()
            found.append(time.process_time() - begun)
        return values.nbytes / min(found) / 1e6

    print("| codec | encode, MB/s | decode, MB/s |\n|---|---|---|")
    for word in TIMED:
        codec = Codec.parse(word)
        data = codec.encode(values, base)
        encoding = best(lambda codec=codec: codec.encode(values, base))  # type: ignore[misc]
        decoding = best(lambda codec=codec, data=data: codec.decode(data, len(values), base))  # type: ignore[misc]
        print(f"| `{word}` | {encoding:.0f} | {decoding:.0f} |")


def libaec() -> None:
    """810 streams, each written and read by both."""
    import imagecodecs

    rng, flags = np.random.default_rng(0), imagecodecs.AEC.FLAG
    equal = read_here = read_there = count = 0
    kinds = (0.001, 0.02, 0.3, 1.0, 30.0)
    for bits, block, interval, padded, wide in itertools.product(
        (1, 4, 8, 10, 13, 16, 20, 24, 32), BLOCKS[:3], (1, 64, 128), (False, True), kinds
    ):
        most = 2**bits - 1
        samples = np.minimum(rng.exponential(wide * most**0.5, int(rng.integers(1, 5000))), most).astype(np.int64)
        samples = samples.astype(np.uint8 if bits <= 8 else np.uint16 if bits <= 16 else np.uint32)
        form = Format(bits, block, interval, padded)
        how = {"bitspersample": bits, "blocksize": block, "rsi": interval}
        how["flags"] = int(flags.NOT_ENFORCE | (flags.PAD_RSI if padded else 0))
        ours, lengths = ccsds121.encode(samples, form)
        theirs = bytes(imagecodecs.aec_encode(samples, **how))
        whole = -(-len(samples) // block) * block * samples.itemsize
        back = bytes(imagecodecs.aec_decode(ours, out=whole, **how))[: samples.nbytes]
        count, equal = count + 1, equal + (ours == theirs)
        read_there += back == samples.tobytes()
        read_here += np.array_equal(ccsds121.decode(theirs, len(samples), form, lengths if padded else None), samples)
    print(
        f"{count} streams: {equal} equal byte for byte, {read_here} of libaec read here, {read_there} of ours by libaec"
    )


def main() -> None:
    """One of the four."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["update", "runs", "speed", "libaec"])
    parser.add_argument("folder", nargs="?", type=Path, help="of the runs")
    parser.add_argument("--problem", action="append", choices=list(PROBLEMS))
    parser.add_argument("--algorithm", action="append", choices=ALGORITHMS)
    parser.add_argument("--codec", nargs="+", default=["int8-delta", "int4-delta", "top10%-delta"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "runs":
        if given.folder is None:
            parser.error("runs needs a folder")
        runs(
            given.folder,
            given.problem or list(PROBLEMS),
            given.algorithm or list(ALGORITHMS),
            ["float32", *given.codec],
        )
    else:
        {"update": update, "speed": speed, "libaec": libaec}[given.what]()


if __name__ == "__main__":
    main()
