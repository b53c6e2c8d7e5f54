"""Differences of a model's answers under other runtimes from those of the network itself.

"Models containing apparently the same abstract structures might deliver substantially different results when deployed
by different frameworks" (the thesis, 6.2.2.1), so what is written is run by every reader that is installed here.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from fedpareto.config.errors import UserError
from fedpareto_space.formats import onnx_files
from fedpareto_space.formats.network import Network
from fedpareto_space.formats.running import Model

LARGEST_DIFFERENCE = 1e-5
"""Largest difference that is accepted; of answers beyond 1 relative to the largest."""
Run = Callable[[Path, np.ndarray], np.ndarray]
TRACT_TYPES = {"float32": "f32", "uint8": "u8", "int64": "i64"}


def differences(network: Network, path: Path, x: np.ndarray) -> dict[str, float]:
    """Under each runtime that is here the largest difference from the network itself, for rows `x`."""
    with torch.no_grad():
        expected = network(torch.from_numpy(x)).numpy()
    found = {}
    for name, answers in scores(path, x).items():
        if answers.shape != expected.shape:
            raise UserError(f"{path} gives {list(answers.shape)} under {name}; it should be {list(expected.shape)}")
        found[name] = float(np.abs(answers - expected).max() / max(1.0, np.abs(expected).max()))
    return found


def scores(path: Path, x: np.ndarray) -> dict[str, np.ndarray]:
    runs = NNEF if path.is_dir() else ONNX
    found = {}
    for name, (package, run) in runs.items():
        if find_spec(package) is not None:
            try:
                found[name] = run(path, x)
            except UserError:
                raise
            except Exception as problem:  # Each has its own.
                raise UserError(f"{path} is not read by {name}: {str(problem).partition(chr(10))[0]}") from None
    return found


def _torch(path: Path, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(Model(path)(torch.from_numpy(x)))


def _khronos(path: Path, x: np.ndarray) -> np.ndarray:
    import nnef

    # What its interpreter has no code for is spelt out by its parser.
    with nnef.Session(str(path), stdlib="", lowered=["batch_normalization"]) as session:
        (answers,) = session(np.ascontiguousarray(x, dtype=np.float32))
    return np.array(answers)


def _tract_nnef(path: Path, x: np.ndarray) -> np.ndarray:
    import tract

    (answers,) = tract.nnef().load(path).into_runnable().run([np.ascontiguousarray(x, dtype=np.float32)])
    return np.array(answers.to_numpy())


def _tract_onnx(path: Path, x: np.ndarray) -> np.ndarray:
    import tract

    model = tract.onnx().load(path)
    model.set_input_fact(0, ",".join([*map(str, x.shape), TRACT_TYPES[str(x.dtype)]]))
    (answers,) = model.into_model().into_runnable().run([np.ascontiguousarray(x)])
    return np.array(answers.to_numpy())


ONNX: dict[str, tuple[str, Run]] = {
    "onnxruntime": ("onnxruntime", lambda path, x: onnx_files.Session(path)(x)),
    "tract": ("tract", _tract_onnx),
}
NNEF: dict[str, tuple[str, Run]] = {
    "fedpareto": ("torch", _torch),
    "Khronos": ("nnef", _khronos),
    "tract": ("tract", _tract_nnef),
}
"""Runtimes by name: the package that each needs, and the function that runs it."""
