"""Models of strangers on their way: a small file leads to no other file, no day of work and no traceback."""

from __future__ import annotations

import io
import tarfile

import numpy as np
import pytest
import torch

from fedpareto.config import limits
from fedpareto.config.errors import UserError
from fedpareto_space.formats import nnef, onnx_files
from fedpareto_space.formats.graph import Graph, Step
from fedpareto_space.formats.running import Model

WEIGHTS = {"a": np.ones((3, 2), np.float32)}
NETWORK = Graph(
    shape=("rows", 3),
    dtype="float32",
    variables={"a": (3, 2)},
    constants={},
    steps=(Step("matmul", ("x", "w_a"), "t0", ("rows", 2)),),
    output="t0",
    output_shape=("rows", 2),
)


@pytest.fixture
def folder(tmp_path):
    nnef.write(NETWORK, WEIGHTS, tmp_path / "model", rows=2)
    return tmp_path / "model"


def changed(folder, old, new):
    path = folder / nnef.GRAPH
    path.write_text(path.read_text().replace(old, new))
    return folder


DOUBLED = "d0 = copy(t0);\n" + "".join(f"d{n + 1} = concat([d{n}, d{n}], axis = 1);\n" for n in range(40))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (DOUBLED, "'d6' cannot be computed .*more than 200 numbers"),
        ("b = tile(t0, repeats = [100, 100]);\n", "'b' cannot be computed .*more than 200 numbers"),
        ("b = conv(t0, w_a, padding = [(0, 900), (0, 900)]);\n", "'b' cannot be computed"),
        ("b = copy(b);\n", "'b' cannot be computed"),
        ("b = tile(t0, repeats = [" + "9" * 5000 + "]);\n", "a number was expected"),
    ],
)
def test_a_graph_that_grows_or_runs_in_a_circle_is_refused(folder, line, said, monkeypatch):
    monkeypatch.setattr(limits, "NUMBERS", 200)
    with pytest.raises(UserError, match=said), torch.no_grad():
        Model(changed(folder, "scores = copy", line + "scores = copy"))(torch.ones(2, 3))


def test_a_graph_with_more_weights_than_any_network_is_refused(folder, monkeypatch):
    monkeypatch.setattr(limits, "WEIGHTS", 2)
    more = "".join(f"v{n} = variable<scalar>(shape = [1], label = 'v{n}');\n" for n in range(3))
    with pytest.raises(UserError, match="more than 2 weights"):
        nnef.read(changed(folder, "scores = copy", more + "scores = copy"))
    monkeypatch.setattr(limits, "GRAPH", 10)
    with pytest.raises(UserError, match="more than 10 bytes"):
        nnef.read(folder)


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("a.dat", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("b.dat", {"type": tarfile.LNKTYPE, "linkname": nnef.GRAPH}),
        ("../x.dat", {}),
        ("/tmp/x.dat", {}),
        ("a/../../x.dat", {}),
        ("/".join(["a"] * 2000) + "/x.dat", {}),
        ("n" * 300 + ".dat", {}),
    ],
)
def test_a_packed_model_writes_nothing_outside_and_in_no_depth(folder, name, about, tmp_path):
    data = io.BytesIO(nnef.packed(folder))
    with tarfile.open(fileobj=data, mode="a") as archive:
        entry = tarfile.TarInfo(name)
        for key, value in about.items():
            setattr(entry, key, value)
        archive.addfile(entry)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match="holds"):
        nnef.unpacked(data.getvalue(), tmp_path / "out", "a tar")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_model_in_onnx_leads_to_no_other_file_and_ends_in_one_line(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    onnx_files.write(NETWORK, WEIGHTS, path)
    good = path.read_bytes()

    def with_(change):
        proto = onnx.ModelProto.FromString(good)
        change(proto)
        path.write_bytes(proto.SerializeToString())
        onnx_files.update(path, onnx_files.parameters(path))
        onnx_files.Session(path)(np.ones((2, 3), np.float32))

    def elsewhere(proto):
        (one,) = proto.graph.initializer
        one.ClearField("raw_data")
        one.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "../../etc/passwd"), ("offset", "0"), ("length", "24")):
            entry = one.external_data.add()
            entry.key, entry.value = key, value

    def circle(proto):
        proto.graph.node[0].input[0] = proto.graph.node[-1].output[0]

    def opset(proto):
        proto.opset_import[0].version = 9999

    def dimensions(proto):
        proto.graph.initializer[0].dims[:] = [1] * 100_000

    def many(proto):
        for n in range(3):
            proto.graph.initializer.add(name=f"n{n}", data_type=1, dims=[0])

    for change in (elsewhere, circle, opset, dimensions):
        with pytest.raises(UserError) as refused:
            with_(change)
        assert "\n" not in str(refused.value)
        assert len(str(refused.value)) < 1000
    monkeypatch.setattr(limits, "WEIGHTS", 2)
    with pytest.raises(UserError, match="more than 2 weights"):
        with_(many)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_packed_model_of_headers_of_headers_is_one_line(kind, tmp_path):
    entry = tarfile.TarInfo("a")
    entry.type = kind
    with pytest.raises(UserError, match="it is no packed model") as refused:
        nnef.unpacked(entry.tobuf(tarfile.USTAR_FORMAT) * 3000, tmp_path / "out", "model.tar")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()
