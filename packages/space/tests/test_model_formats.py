"""Models travel as ONNX and as NNEF, whole or as weights alone, and are the same to the last bit."""

from __future__ import annotations

import io
import shutil
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedpareto.config.errors import UserError
from fedpareto.networks.mlp import MLP
from fedpareto.problems.images_text.networks import CharacterLSTM, TextCNN
from fedpareto.tensors.layout import Layout
from fedpareto_space.formats import nnef, onnx_files, runtimes
from fedpareto_space.formats.graph import identifier
from fedpareto_space.formats.network import Network, flat
from fedpareto_space.formats.nnef_text import to_text
from fedpareto_space.formats.onnx_files import to_proto
from fedpareto_space.formats.running import Model
from fedpareto_space.formats.tracing import traced

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("nnef", reason="Khronos' reader has no wheel for this machine")
pytest.importorskip("tract", reason="it has no wheel for this machine")
ROWS = 2


def pictures(normalised):
    """A convolutional network with a normalisation after each convolution."""
    layers = [nn.Conv2d(1, 4, 3, padding=1), normalised(4), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(4, 6, 3, bias=False), normalised(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    return Network.of_module(nn.Sequential(*layers, nn.Flatten(), nn.Linear(6, 3)))


def of(network):
    return Network(network, network.layout, network.initial(0))


def drawn(low, high, *shape):
    return torch.randint(low, high, (ROWS, *shape), generator=torch.Generator().manual_seed(1))


MAKERS = {
    "mlp": lambda: (of(MLP(5, (4,), 3)), drawn(-9, 9, 5) / 9),
    "batch normalisation": lambda: (pictures(nn.BatchNorm2d), drawn(-9, 9, 1, 8, 8) / 9),
    "group normalisation": lambda: (pictures(lambda width: nn.GroupNorm(2, width)), drawn(-9, 9, 1, 8, 8) / 9),
    "words": lambda: (of(TextCNN(9, 3, 4, widths=(2, 3), channels=5)), drawn(0, 9, 6)),
    "characters": lambda: (of(CharacterLSTM(7, 3, 4, layers=1)), drawn(0, 7, 3)),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Each network twice, with weights A and B, written as both formats; torch writes its operators down once."""
    found = {}
    for name, make in MAKERS.items():
        network, x = make()
        stream = torch.Generator().manual_seed(7)
        # Statistics too are far from where they begin, and some variance is below 0, as a server's step may leave it.
        vectors = [0.5 * torch.randn(network.layout.size, generator=stream) for _ in range(2)]
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        one = SimpleNamespace(folder=folder, graph=traced(network, x), x=x.numpy(), vectors=vectors)
        one.a, one.b = (network.with_model(vector) for vector in vectors)
        for letter, weights in (("a", one.a.tensors), ("b", one.b.tensors)):
            onnx_files.write(one.graph, weights, folder / f"{letter}.onnx")
            nnef.write(one.graph, weights, folder / letter, rows=ROWS)
        found[name] = one
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_a_whole_model_answers_the_same_under_every_runtime(models, name):
    one = models[name]
    for network, letter in ((one.a, "a"), (one.b, "b")):
        for path in (one.folder / f"{letter}.onnx", one.folder / letter):
            found = runtimes.differences(network, path, one.x)
            assert set(found) == ({"onnxruntime", "tract"} if path.suffix else {"fedpareto", "Khronos", "tract"})
            assert max(found.values()) <= runtimes.LARGEST_DIFFERENCE, (path, found)


@pytest.mark.parametrize("name", MAKERS)
def test_a_model_that_is_read_has_the_weights_that_were_written(models, name):
    one = models[name]
    layout = one.b.layout
    assert torch.equal(flat(layout, onnx_files.parameters(one.folder / "b.onnx")), one.vectors[1])
    assert torch.equal(flat(layout, nnef.weights(nnef.read(one.folder / "b")[1])), one.vectors[1])
    assert list(onnx_files.shapes(one.folder / "b.onnx")) == list(layout.names)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_alone_make_of_an_onnx_file_what_a_whole_transfer_makes(models, name, tmp_path):
    one = models[name]
    expected = onnx_files.Session(one.folder / "b.onnx")(one.x)
    assert not np.array_equal(expected, onnx_files.Session(one.folder / "a.onnx")(one.x))
    whole, apart = tmp_path / "whole.onnx", tmp_path / "apart.onnx"
    shutil.copy(one.folder / "a.onnx", whole)
    onnx_files.write(one.graph, one.a.tensors, apart, apart=True)
    graph = apart.read_bytes()
    for path in (whole, apart):  # Route 3, a session with other weights: no file changes.
        before = path.read_bytes()
        assert np.array_equal(onnx_files.Session(path, one.b.tensors)(one.x), expected)
        assert path.read_bytes() == before
    onnx_files.update(whole, one.b.tensors)  # Route 1, the initialisers: the very file that a whole transfer brings.
    assert whole.read_bytes() == (one.folder / "b.onnx").read_bytes()
    onnx_files.update(apart, one.b.tensors)  # Route 2, the weights beside the graph, which is not touched.
    assert apart.read_bytes() == graph
    assert onnx_files.weights_file(apart).read_bytes() == one.vectors[1].numpy().tobytes()
    assert np.array_equal(onnx_files.Session(apart)(one.x), expected)


@pytest.mark.parametrize("name", MAKERS)
def test_weights_alone_make_of_nnef_what_a_whole_transfer_makes(models, name, tmp_path):
    one = models[name]
    shutil.copytree(one.folder / "a", tmp_path / "model")
    nnef.update(tmp_path / "model", one.b.tensors)
    for path in sorted((one.folder / "b").rglob("*.*")):
        assert (tmp_path / "model" / path.relative_to(one.folder / "b")).read_bytes() == path.read_bytes()
    expected = runtimes.scores(one.folder / "b", one.x)
    before = runtimes.scores(one.folder / "a", one.x)
    for runtime, found in runtimes.scores(tmp_path / "model", one.x).items():
        assert np.array_equal(found, expected[runtime])
        assert not np.array_equal(found, before[runtime])


@pytest.mark.parametrize("name", MAKERS)
def test_a_graph_is_the_same_for_all_weights_and_holds_every_statistic(models, name):
    one = models[name]
    text = to_text(one.graph, ROWS)[0]
    assert text == (one.folder / "a" / nnef.GRAPH).read_text(encoding="utf-8")
    assert text == (one.folder / "b" / nnef.GRAPH).read_text(encoding="utf-8")
    found = [onnx_files._read(one.folder / f"{letter}.onnx") for letter in "ab"]
    for proto in found:
        del proto.graph.initializer[:]
    assert found[0] == found[1]
    assert list(one.graph.variables) == list(one.a.layout.names)
    used = {name for step in one.graph.steps for name in step.inputs}
    assert {identifier(label) for label in one.graph.variables} <= used


def test_what_torch_exporter_folds_stays_apart_here(models):
    graph = models["batch normalisation"].graph
    assert [step.operation for step in graph.steps].count("batch_normalization") == 2
    operators = [node.op_type for node in to_proto(graph, models["batch normalisation"].a.tensors).graph.node]
    assert operators.count("BatchNormalization") == operators.count("Conv") == 2


def test_a_model_of_nnef_can_be_trained_on_without_the_code_of_its_problem(models):
    one = models["group normalisation"]
    model = Model(one.folder / "a")
    x, steps = torch.from_numpy(one.x), []
    for _ in range(3):
        loss = nn.functional.cross_entropy(model(x), torch.tensor([0, 1]))
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight.sub_(0.1 * weight.grad)
                weight.grad = None
        steps.append(float(loss.detach()))
    assert steps[2] < steps[1] < steps[0]


def test_weights_of_another_network_are_refused_before_anything_is_written(models, tmp_path):
    one, other = models["mlp"], models["words"]
    shutil.copytree(one.folder / "a", tmp_path / "model")
    shutil.copy(one.folder / "a.onnx", tmp_path / "model.onnx")
    wrong = {**one.b.tensors, "1.bias": np.zeros(4, np.float32)}
    for path, update in ((tmp_path / "model", nnef.update), (tmp_path / "model.onnx", onnx_files.update)):
        before = {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}
        with pytest.raises(UserError, match=r"has other weights: 0\.bias"):
            update(path, other.a.tensors)
        with pytest.raises(UserError, match=r"'1.bias' is \[4\]; it should be \[3\]"):
            update(path, wrong)
        assert before == {file: file.read_bytes() for file in before}
    with pytest.raises(UserError, match="holds its weights itself"):
        onnx_files.swap(tmp_path / "model.onnx", one.b.tensors)


def test_weights_that_another_writer_laid_beside_a_graph_are_replaced_where_they_lie(models, tmp_path):
    one, path = models["batch normalisation"], tmp_path / "model.onnx"
    proto = to_proto(one.graph, one.a.tensors)
    beside = onnx_files.weights_file(path)
    onnx.save_model(proto, path, save_as_external_data=True, location=beside.name, size_threshold=0)
    beside.write_bytes(b"gap!" + beside.read_bytes())
    found = onnx.load_model(path, load_external_data=False)
    for tensor in found.graph.initializer:
        (offset,) = (entry for entry in tensor.external_data if entry.key == "offset")
        offset.value = str(int(offset.value) + 4)
    path.write_bytes(found.SerializeToString())
    onnx_files.update(path, one.b.tensors)
    assert beside.read_bytes().startswith(b"gap!")
    assert np.array_equal(onnx_files.Session(path)(one.x), onnx_files.Session(one.folder / "b.onnx")(one.x))
    assert torch.equal(flat(one.b.layout, onnx_files.parameters(path)), one.vectors[1])


def test_a_graph_cannot_name_another_file_for_its_weights(models, tmp_path):
    one, path = models["mlp"], tmp_path / "model.onnx"
    onnx_files.write(one.graph, one.a.tensors, path, apart=True)
    path.write_bytes(path.read_bytes().replace(b"model.onnx.weights", b"../../secret/file."))
    for use in (onnx_files.parameters, lambda path: onnx_files.update(path, one.b.tensors)):
        with pytest.raises(UserError, match=r"names '../../secret/file\.' for its weights"):
            use(path)
    folder = tmp_path / "nnef"
    shutil.copytree(one.folder / "a", folder)
    text = (folder / nnef.GRAPH).read_text(encoding="utf-8")
    (folder / nnef.GRAPH).write_text(text.replace("'0.weight'", "'../secret'"), encoding="utf-8")
    for use in (nnef.read, lambda folder: nnef.update(folder, one.b.tensors)):
        with pytest.raises(UserError, match=r"cannot be called '../secret'"):
            use(folder)


def test_a_packed_model_is_one_file_that_unpacks_to_the_same_model(models, tmp_path):
    one = models["words"]
    data = nnef.packed(one.folder / "b")
    nnef.unpacked(data, tmp_path / "there", "a file")
    assert nnef.packed(tmp_path / "there") == data
    for path in sorted((one.folder / "b").rglob("*.*")):
        assert (tmp_path / "there" / path.relative_to(one.folder / "b")).read_bytes() == path.read_bytes()
    (tmp_path / "model.nnef.tar").write_bytes(data)  # tract reads it as it is.
    expected = runtimes.scores(one.folder / "b", one.x)["tract"]
    assert np.array_equal(runtimes._tract_nnef(tmp_path / "model.nnef.tar", one.x), expected)
    nnef.update(tmp_path / "there", one.a.tensors)
    assert nnef.packed(tmp_path / "there") == nnef.packed(one.folder / "a")


@pytest.mark.parametrize("name", ["../x.dat", "/x.dat", "graph.quant", "a.dat/", "x"])
def test_what_is_no_part_of_a_model_is_not_unpacked(name, tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
        archive.addfile(entry)
    with pytest.raises(UserError, match=r"no part of a model|no tensor file"):
        nnef.unpacked(content.getvalue(), tmp_path / "there", "a file")
    assert not list(tmp_path.iterdir())


def test_windows_apart_and_weights_that_only_training_uses_travel_too(tmp_path):
    """As the two-headed networks of multi-task problems and the policies of actor and critic have them."""

    def call(parameters, x):
        return x.unfold(2, 2, 3).amax(-1) * parameters["actor"][:, None]

    network = Network(call, Layout.of({"actor": (2,), "critic": (3,)}), torch.arange(5.0))
    x = drawn(-9, 9, 5) / 9
    graph, path, folder = traced(network, x), tmp_path / "model.onnx", tmp_path / "nnef"
    onnx_files.write(graph, network.tensors, path)
    nnef.write(graph, network.tensors, folder, rows=ROWS)
    for one in (path, folder):
        assert max(runtimes.differences(network, one, x.numpy()).values()) == 0
    other = network.with_model(torch.arange(5.0) + 1)
    expected = other(x).numpy()
    assert np.array_equal(onnx_files.Session(path, other.tensors)(x.numpy()), expected)
    nnef.update(folder, other.tensors)
    assert all(np.array_equal(found, expected) for found in runtimes.scores(folder, x.numpy()).values())


def test_two_weights_that_would_have_one_name_are_refused():
    layout = Layout.of({"a.b": (2,), "a_b": (2,)})
    with pytest.raises(UserError, match="two weights of the network have names that differ only in signs"):
        traced(Network(lambda parameters, x: x, layout, torch.zeros(4)), torch.zeros(1, 2))


def test_what_the_formats_cannot_hold_is_named():
    with pytest.raises(UserError, match="torch's operator aten::gelu, for which there is no translation"):
        traced(Network.of_module(nn.Sequential(nn.Linear(2, 2), nn.GELU())), torch.zeros(1, 2))
