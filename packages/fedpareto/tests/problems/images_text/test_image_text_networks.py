"""Each network over a stack is torch's own layers, client by client, and has the parameters of the papers' tables."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedpareto.problems.images_text.networks import CharacterLSTM, FlatNetwork, ImageNetwork, TextCNN

CIFAR, GREY = (3, 32, 32), (1, 28, 28)
CLIENTS, ROWS = 3, 4


def stack(network, inputs):
    """Models of several seeds, moved a little, and their logits."""
    stream = torch.Generator().manual_seed(3)
    models = torch.stack([network.initial(seed).double() for seed in range(CLIENTS)])
    models += 0.01 * torch.randn(models.shape, generator=stream, dtype=torch.float64)
    return models, network(network.layout.unflatten(models), inputs)


def pixels(shape):
    return torch.randint(0, 256, (CLIENTS, ROWS, *shape), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


def by_hand(name, views, images):
    """The network of a table for one client, written down layer by layer."""

    def convolution(i, values):
        return F.conv2d(values, views[f"convolution{i}.weight"], views[f"convolution{i}.bias"])

    def linear(i, values):
        return F.linear(values, views[f"linear{i}.weight"], views[f"linear{i}.bias"])

    values = images.double() / 127.5 - 1
    if name == "cnn-femnist":
        values = F.max_pool2d(convolution(1, convolution(0, values)).relu(), 2).flatten(1)
        return linear(1, linear(0, values))
    values = F.max_pool2d(convolution(0, values).relu(), 2)
    values = F.local_response_norm(values, 2) if name == "cnn-lrn" else values
    values = convolution(1, values).relu()
    values = F.local_response_norm(values, 2) if name == "cnn-lrn" else values
    values = linear(0, F.max_pool2d(values, 2).flatten(1)).relu()
    return linear(2, linear(1, values).relu()) if name == "cnn-lrn" else linear(1, values)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("cnn", CIFAR, 10, 878_538),
        ("cnn", GREY, 10, 582_026),
        ("cnn-lrn", CIFAR, 10, 797_962),  # Table II of FedMGDA+.
        ("cnn-small", GREY, 10, 21_840),  # Table III.
        ("cnn-femnist", GREY, 62, 1_206_590),  # Table IV.
    ],
)
def test_convolutional_networks_are_those_of_the_tables(name, shape, classes, parameters):
    network = ImageNetwork(name, shape, classes)
    assert network.layout.size == parameters
    images = pixels(shape)
    models, logits = stack(network, images)
    assert logits.shape == (CLIENTS, ROWS, classes)
    for client in range(CLIENTS):
        alone = by_hand(name, network.layout.unflatten(models[client]), images[client])
        assert torch.allclose(logits[client], alone, atol=1e-10)


def test_gradients_of_a_stack_are_each_clients_own():
    network = ImageNetwork("cnn-small", GREY, 10)
    images = pixels(GREY)
    labels = torch.randint(0, 10, (CLIENTS, ROWS), generator=torch.Generator().manual_seed(2))
    models = torch.stack([network.initial(seed).double() for seed in range(CLIENTS)]).requires_grad_()
    logits = network(network.layout.unflatten(models), images)
    (stacked,) = torch.autograd.grad(F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum"), models)
    for client in range(CLIENTS):
        model = models[client].detach().clone().requires_grad_()
        said = by_hand("cnn-small", network.layout.unflatten(model), images[client])
        (alone,) = torch.autograd.grad(F.cross_entropy(said, labels[client], reduction="sum"), model)
        assert torch.allclose(stacked[client], alone, atol=1e-10)


def test_making_a_network_draws_from_no_common_stream():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    ImageNetwork("cnn-small", GREY, 10).initial(0)
    assert torch.equal(torch.rand(3), expected)


def test_logistic_regression_on_pixels_and_on_bits():
    images = pixels(GREY)
    network = FlatNetwork(784, (), 10, pixels=True)
    models, logits = stack(network, images)
    views = network.layout.unflatten(models[1])
    assert torch.allclose(
        logits[1], (images[1].double().flatten(1) / 127.5 - 1) @ views["0.weight"] + views["0.bias"], atol=1e-12
    )
    bits = torch.randint(0, 2, (CLIENTS, ROWS, 99)).to(torch.uint8)
    network = FlatNetwork(99, (), 2)
    models, logits = stack(network, bits)
    views = network.layout.unflatten(models[2])
    assert torch.allclose(logits[2], bits[2].double() @ views["0.weight"] + views["0.bias"], atol=1e-12)


def test_a_text_network_is_torchs_embedding_and_convolutions():
    network = TextCNN(vocabulary=30, embedding=6, classes=4, widths=(2, 3), channels=5)
    texts = torch.randint(0, 30, (CLIENTS, ROWS, 9), generator=torch.Generator().manual_seed(4)).to(torch.int32)
    models, logits = stack(network, texts)
    for client in range(CLIENTS):
        views = network.layout.unflatten(models[client])
        words = F.embedding(texts[client].long(), views["embedding.weight"]).mT
        found = []
        for width in (2, 3):
            kernel = views[f"convolution{width}.weight"].view(width, 6, 5).permute(2, 1, 0)
            found.append(F.conv1d(words, kernel, views[f"convolution{width}.bias"]).relu().amax(2))
        alone = torch.cat(found, dim=1) @ views["output.weight"] + views["output.bias"]
        assert torch.allclose(logits[client], alone, atol=1e-12)


def torchs_lstm(network, views, texts):
    """What nn.Embedding, nn.LSTM and a linear layer say with one client's parameters."""
    lstm = nn.LSTM(network.embedding, network.hidden, network.layers, batch_first=True).double()
    with torch.no_grad():
        for i in range(network.layers):
            getattr(lstm, f"weight_ih_l{i}").copy_(views[f"lstm{i}.input"].T)
            getattr(lstm, f"weight_hh_l{i}").copy_(views[f"lstm{i}.recurrent"].T)
            getattr(lstm, f"bias_ih_l{i}").copy_(views[f"lstm{i}.bias"])
            getattr(lstm, f"bias_hh_l{i}").zero_()
    vectors = views["embedding.weight"].detach().clone().requires_grad_()
    outputs, _ = lstm(F.embedding(texts.long(), vectors))
    return lstm, vectors, outputs[:, -1] @ views["output.weight"] + views["output.bias"]


def test_an_lstm_is_torchs_own_with_its_gradients():
    network = CharacterLSTM(characters=12, embedding=3, hidden=5, layers=2)
    texts = torch.randint(0, 12, (CLIENTS, ROWS, 7), generator=torch.Generator().manual_seed(4)).to(torch.uint8)
    models, _ = stack(network, texts)
    models.requires_grad_()
    logits = network(network.layout.unflatten(models), texts)
    (gradient,) = torch.autograd.grad(logits.square().sum(), models)
    for client in range(CLIENTS):
        views = network.layout.unflatten(models[client].detach())
        lstm, vectors, alone = torchs_lstm(network, views, texts[client])
        assert torch.allclose(logits[client], alone, atol=1e-12)
        alone.square().sum().backward()
        found = network.layout.unflatten(gradient[client])
        assert torch.allclose(found["embedding.weight"], vectors.grad, atol=1e-10)
        for i in range(2):
            assert torch.allclose(found[f"lstm{i}.input"], getattr(lstm, f"weight_ih_l{i}").grad.T, atol=1e-10)
            assert torch.allclose(found[f"lstm{i}.recurrent"], getattr(lstm, f"weight_hh_l{i}").grad.T, atol=1e-10)
            assert torch.allclose(found[f"lstm{i}.bias"], getattr(lstm, f"bias_ih_l{i}").grad, atol=1e-10)


def test_the_networks_of_texts_have_the_sizes_of_the_papers():
    """FedMGDA+: 8 numbers for a character, two layers of 256. FedFew's TextCNN: 32 for a word, 100 channels of 3."""
    lstm = 4 * 256 * (8 + 256 + 1) + 4 * 256 * (256 + 256 + 1)
    assert CharacterLSTM(65).layout.size == 65 * 8 + lstm + 257 * 65
    assert TextCNN(10_000, 32, 4).layout.size == 320_000 + 12 * 32 * 100 + 300 + 301 * 4


@pytest.mark.parametrize("network", [TextCNN(500, 8, 4), CharacterLSTM(65, hidden=64), ImageNetwork("cnn", GREY, 10)])
def test_initial_models_are_scaled_as_torchs_layers(network):
    """Words by a standard normal distribution; all else uniform within 1/√fan-in, whose deviation is that over √3."""
    views = network.layout.unflatten(network.initial(0))
    expected = {
        "embedding.weight": 1.0,
        "convolution3.weight": (3 * 8 * 3) ** -0.5,
        "lstm1.recurrent": (3 * 64) ** -0.5,
        "lstm0.input": (3 * 64) ** -0.5,
        "convolution1.weight": (3 * 32 * 25) ** -0.5,
        "linear0.weight": (3 * 1024) ** -0.5,
    }
    for name in set(expected) & set(views):
        assert float(views[name].std()) == pytest.approx(expected[name], rel=0.1)
    assert torch.equal(network.initial(1), network.initial(1))
    assert not torch.equal(network.initial(1), network.initial(2))
