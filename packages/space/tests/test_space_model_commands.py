"""`fedpareto space model` and `space update`: a run's model for the journey, and weights alone for one there."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpareto import load
from fedpareto_space.formats import nnef, onnx_files, runtimes

pytest.importorskip("onnx")


def test_a_clients_model_travels_and_another_clients_weights_follow(fedpareto, fedpref_run, praffl_run, tmp_path):
    def command(*arguments):
        answer = fedpareto(*arguments)
        return answer.code, answer.out, answer.err

    asked = ("space", "model", fedpref_run, "--client")
    code, out, err = command(*asked, "0", "--out", "model.onnx", "--apart")
    assert code == 0, err
    assert "under onnxruntime the same to" in out
    graph = (tmp_path / "model.onnx").read_bytes()
    assert command(*asked, "0", "--out", "model.tar", "--rows", "3")[0] == 0
    models = [load(fedpref_run).conditioned(client) for client in (0, 1)]
    for number, model in enumerate(models):
        rows = np.array([[1.0, 2.0], [-3.0, 0.5], [0.1, 0.0]], dtype=np.float32)
        expected = model.logits(torch.from_numpy(rows), [0.5, 0.5]).numpy()
        nnef.unpacked((tmp_path / "model.tar").read_bytes(), tmp_path / "model", "model.tar")
        for path in (tmp_path / "model.onnx", tmp_path / "model"):
            for found in runtimes.scores(path, rows).values():
                np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-6)
        if not number:
            for path in ("model.onnx", "model.tar"):
                code, out, err = command("space", "update", path, fedpref_run, "--client", "1")
                assert (code, "bytes of weights; the graph is the same" in out) == (0, True), err
    assert (tmp_path / "model.onnx").read_bytes() == graph
    assert list(onnx_files.parameters(tmp_path / "model.onnx")) == list(nnef.read(tmp_path / "model")[1])
    # One model of the many that a hypernetwork makes; which one has to be said.
    code, _, err = command("space", "update", "model", praffl_run, "--client", "0")
    assert (code, "choose one with --client, or with --preference" in err) == (2, True)
    code, _, err = command("space", "update", "model", praffl_run, "--client", "0", "--preference", "0.5,0.5")
    assert (code, "has other weights" in err) == (2, True)
    code, _, err = command("space", "update", "nothing.onnx", fedpref_run, "--client", "0")
    assert (code, "fedpareto space model writes one" in err) == (2, True)
