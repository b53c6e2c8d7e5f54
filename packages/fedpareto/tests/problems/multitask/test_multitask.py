"""Multi-MNIST and its relatives: the published images, laid over each other as documented, and told by a network."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fedpareto
from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.contract.registry import make_algorithm, problems
from fedpareto.problems.multitask import overlaid as pairs
from fedpareto.problems.multitask.datasets import CATALOGUE, MNIST
from fedpareto.problems.multitask.network import Heads
from fedpareto.problems.multitask.problem import FashionMNISTPairs, MultiFashion, MultiMNIST, MultiTask
from fedpareto.tensors.rows import Batch
from fedpareto.testing.conformance import PROBLEM_CHECKS, largest_difference, trial

CLASSES = {name: cls for name, cls in problems().items() if issubclass(cls, MultiTask)}
NETWORKS = ("strided", "lenet", "mlp")
SMALL = {"samples": 300, "test_samples": 60}


@pytest.fixture
def both(published):
    """The two image sets."""
    return published("mnist"), published("fashion-mnist")


# -- the published images ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CATALOGUE)
def test_images_of_each_part_and_class_are_as_published(name, published):
    dataset = published(name)
    assert dataset.census() == dataset.published
    assert sum(count for label, count in dataset.published.items() if label.startswith("label")) == 70_000
    for part, count in (("train", 60_000), ("test", 10_000)):
        images = dataset.images(part)
        assert images.pixels.shape == (count, 28, 28)
        assert (
            images.labels[:3].tolist()
            == {
                ("mnist", "train"): [5, 0, 4],
                ("mnist", "test"): [7, 2, 1],
                ("fashion-mnist", "train"): [9, 0, 0],
                ("fashion-mnist", "test"): [9, 2, 1],
            }[name, part]
        )


def test_images_are_read_once_until_a_file_changes(published):
    dataset = published("mnist")
    assert dataset.images("test") is dataset.images("test")


@pytest.mark.parametrize("damage", ["cut", "altered", "no gzip"])
def test_a_damaged_file_is_one_clear_line(damage, published, monkeypatch, tmp_path):
    labels = published("mnist").contents()[3]
    folder = tmp_path / "mnist"
    folder.mkdir()
    for file, path in zip(MNIST.files, published("mnist").paths(), strict=True):
        (folder / path.name).symlink_to(path)
        if file.name.startswith("t10k-labels"):
            (folder / path.name).unlink()
    packed = {"cut": gzip.compress(labels[:-1]), "altered": gzip.compress(labels[:-1] + b"\x01"), "no gzip": b"labels"}
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(packed[damage])
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    with pytest.raises(DamagedFile, match=r"t10k-labels-idx1-ubyte\.gz is damaged: .*delete it"):
        MultiMNIST(**SMALL).data(2, 0)


# -- pairs ---------------------------------------------------------------------------------------------------------


def test_a_pair_by_hand(both):
    digit, cloth = (dataset.images("train").pixels[7] for dataset in both)
    (image,) = pairs.overlaid(digit[None], cloth[None])
    for row in range(28):
        for column in range(28):
            # The pixel of the 36 × 36 canvas under the middle of this one.
            y, x = (2 * row + 1) * 36 // 56, (2 * column + 1) * 36 // 56
            left = digit[y, x] if y < 28 and x < 28 else 0
            right = cloth[y - 6, x - 6] if 6 <= y < 34 and 6 <= x < 34 else 0
            assert image[row, column] == max(left, right)


def test_an_empty_partner_leaves_an_image_in_its_corner():
    ink, nothing = np.full((1, 28, 28), 200, dtype=np.uint8), np.zeros((1, 28, 28), dtype=np.uint8)
    left, right = pairs.overlaid(ink, nothing)[0], pairs.overlaid(nothing, ink)[0]
    assert (left[0, 0], left[-1, -1]) == (200, 0)
    assert (right[0, 0], right[-3, -3]) == (0, 200)
    assert (np.maximum(left, right) == pairs.overlaid(ink, ink)[0]).all()


@pytest.mark.parametrize("name", CLASSES)
def test_labels_and_pixels_are_those_of_the_sources(name, both):
    digits, clothes = both
    left, right = {
        "multi-mnist": (digits, digits),
        "multi-fashion": (clothes, clothes),
        "fashion-mnist-pairs": (digits, clothes),
    }[name]
    for part in ("train", "test"):
        images, labels = pairs.draw([left.images(part), right.images(part)], 50, np.random.default_rng(3))
        again = np.random.default_rng(3)
        lefts = again.permutation(len(left.images(part).labels))[:50]
        rights = again.integers(0, len(right.images(part).labels), size=50)
        assert len(set(lefts.tolist())) == 50
        assert (labels[:, 0] == left.images(part).labels[lefts]).all()
        assert (labels[:, 1] == right.images(part).labels[rights]).all()
        # The corners that the other image does not reach are the source's own.
        assert (
            images[:, :4, :4] == left.images(part).pixels[lefts][:, pairs.NEAREST[:4, None], pairs.NEAREST[:4]]
        ).all()
    problem = CLASSES[name](**SMALL)
    assert (problem.left, problem.right) == (left, right)


# -- partitioning --------------------------------------------------------------------------------------------------


def test_images_are_bytes_partitioned_evenly_and_only_as_many_as_asked_for(both):
    splits = MultiMNIST(samples=301, test_samples=70).data(3, 0)
    assert list(splits) == ["train", "test"]
    assert sorted(splits["train"].counts) == [100, 100, 101]
    assert splits["test"].counts.sum() == 70
    assert splits["train"].columns["image"].shape == (301, 28, 28)
    assert splits["train"].columns["image"].dtype == torch.uint8
    assert splits["train"].columns["labels"].shape == (301, 2)
    assert len(splits["train"].columns["image"].flatten(1).unique(dim=0)) == 301
    every_label = splits["train"].of_client(0)["labels"]
    assert all(len(set(every_label[:, task].tolist())) == 10 for task in (0, 1))


def test_a_share_of_each_clients_images_is_kept_for_validation(both):
    whole = MultiMNIST(samples=100, test_samples=10).data(2, 5)["train"]
    splits = MultiMNIST(samples=100, test_samples=10, validation=0.3).data(2, 5)
    assert list(splits) == ["train", "validation", "test"]
    assert splits["train"].counts.tolist() == [35, 35]
    assert splits["validation"].counts.tolist() == [15, 15]
    for client in range(2):
        parts = [splits[part].of_client(client)["image"] for part in ("validation", "train")]
        assert torch.equal(torch.cat(parts), whole.of_client(client)["image"])


def test_the_seed_makes_the_images(both):
    first, again, other = (MultiMNIST(**SMALL).data(2, seed) for seed in (4, 4, 5))
    for part in ("train", "test"):
        assert torch.equal(first[part].columns["image"], again[part].columns["image"])
        assert torch.equal(first[part].columns["labels"], again[part].columns["labels"])
        assert not torch.equal(first[part].columns["image"], other[part].columns["image"])


# -- the networks --------------------------------------------------------------------------------------------------


def by_torch(network, views, images):
    """The same network for one client, by torch's own layers."""

    def linear(name, inputs):
        return F.linear(inputs, views[f"{name}.weight"].T, views[f"{name}.bias"])

    features = images[:, None]
    for i in range(len(network.channels)):
        weight = views[f"convolution{i}.weight"].T.reshape(network.channels[i], -1, 5, 5)
        step = 1 if network.pooled else 2
        features = F.conv2d(features, weight, views[f"convolution{i}.bias"], stride=step).relu()
        features = F.max_pool2d(features, 2) if network.pooled else features
    features = features.permute(0, 2, 3, 1).flatten(1) if network.channels else features.flatten(1)
    for i in range(len(network.hidden)):
        features = linear(f"shared{i}", features).relu()
    heads = [
        linear(f"{task}1", linear(f"{task}0", features).relu()) if network.head else linear(f"{task}0", features)
        for task in ("left", "right")
    ]
    return torch.stack(heads, dim=1)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_stack_is_torchs_own_layers_one_by_one(name):
    network = MultiMNIST(network=name).model
    stream = torch.Generator().manual_seed(1)
    models = torch.stack([network.initial(seed).double() for seed in range(3)])
    images = torch.rand(3, 4, 28, 28, generator=stream, dtype=torch.float64)
    stacked = network(network.layout.unflatten(models), images)
    assert stacked.shape == (3, 4, 2, 10)
    for client in range(3):
        alone = by_torch(network, network.layout.unflatten(models[client]), images[client])
        assert torch.allclose(stacked[client], alone, atol=1e-12)


def test_gradients_of_a_small_network_are_those_of_finite_differences():
    for pooled in (False, True):
        network = Heads(10, (1,), (2,), (), 2, pooled=pooled)
        stream = torch.Generator().manual_seed(2)
        model = torch.randn(2, network.layout.size, generator=stream, dtype=torch.float64, requires_grad=True)
        images = torch.rand(2, 2, 10, 10, generator=stream, dtype=torch.float64)

        def total(model, network=network, images=images):
            return network(network.layout.unflatten(model), images).square().mean(dim=(1, 2, 3))

        assert torch.autograd.gradcheck(total, (model,))


def test_a_task_that_does_not_count_leaves_its_head_alone(both):
    problem = MultiMNIST(**SMALL)
    rows = problem.data(1, 0)["train"]
    batch = rows.take(torch.arange(20)[None], torch.ones(1, 20))
    parameters = {
        name: view.requires_grad_() for name, view in problem.layout.unflatten(problem.initial(0)[None]).items()
    }
    losses = problem.losses(parameters, batch)
    gradients = dict(
        zip(parameters, torch.autograd.grad(losses[0, 0], parameters.values(), allow_unused=True), strict=True)
    )
    assert all(gradients[name] is None or not gradients[name].any() for name in parameters if name.startswith("right"))
    assert all(gradients[name].any() for name in parameters if name.startswith(("left1", "shared", "convolution")))


def test_losses_and_accuracies_by_hand(both):
    problem = MultiMNIST(network="mlp", **SMALL)
    columns = {name: column[:4][None] for name, column in problem.data(1, 0)["train"].columns.items()}
    mask = torch.tensor([[1.0, 1.0, 1.0, 0.0]])
    parameters = problem.layout.unflatten(problem.initial(0)[None])
    images = (columns["image"].float() / 255 - 0.1307) / 0.3081
    logits, labels = problem.model(parameters, images)[0, :3], columns["labels"][0, :3]
    losses = problem.losses(parameters, Batch(columns, mask))[0]
    values = problem.evaluate(parameters, Batch(columns, mask))[0]
    for task in (0, 1):
        chances = logits[:, task].softmax(-1)[torch.arange(3), labels[:, task]]
        assert losses[task].item() == pytest.approx(-chances.log().mean().item(), rel=1e-5)
        assert values[task].item() == pytest.approx(
            (logits[:, task].argmax(-1) == labels[:, task]).float().mean().item()
        )


def test_evaluating_in_parts_changes_nothing(both, monkeypatch):
    problem = MultiMNIST(**SMALL)
    rows = problem.data(2, 0)["train"]
    batch = rows.take(torch.arange(300).reshape(2, 150), torch.ones(2, 150))
    parameters = problem.layout.unflatten(torch.stack([problem.initial(seed) for seed in (0, 1)]))
    at_once = problem.evaluate(parameters, batch)
    monkeypatch.setattr("fedpareto.problems.multitask.overlaid.EVALUATED_AT_ONCE", 14)
    assert torch.equal(problem.evaluate(parameters, batch), at_once)


# -- the problems --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", PROBLEM_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", CLASSES)
def test_problem_keeps_the_contract(name, check, both):
    check(CLASSES[name](validation=0.2, **SMALL), 3)


@pytest.mark.parametrize("network", ["lenet", "mlp"])
def test_other_networks_keep_the_contract(network, both):
    for check in PROBLEM_CHECKS:
        check(MultiMNIST(network=network, samples=120, test_samples=30), 3)


def test_stacks_of_any_size_train_to_the_same_models(both):
    problem = MultiMNIST(samples=150, test_samples=14)
    whole, loop = (trial(make_algorithm("fedavg", {}), problem, chunk=chunk, rounds=1).models for chunk in (7, 1))
    assert largest_difference(whole, loop) <= 1e-9


def test_objectives_and_layout_need_no_data(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    for cls in CLASSES.values():
        problem = cls()
        assert [objective.name for objective in problem.objectives] == ["accuracy:left", "accuracy:right"]
        assert problem.maximise == [True, True]
        assert problem.reference == [0.0, 0.0]
    assert MultiMNIST().layout.size == MultiMNIST(network="lenet").layout.size == 27_450


def test_a_few_rounds_on_multi_mnist_learn_both_digits(both):
    problem = MultiMNIST(samples=2000, test_samples=400, network="mlp")
    learner = {"lr": 0.005, "epochs": 4}
    result = fedpareto.run(
        problem,
        "fedavg",
        clients=2,
        rounds=4,
        preferences="0.5,0.5",
        learner=learner,
        engine={"chunk": 2, "threads": 1},
    )
    assert result.solutions[0].points.min() > 0.5
    assert result.history[-1]["hypervolume"] > result.history[0]["hypervolume"] + 0.2


def test_a_client_that_wants_one_digit_only_tells_that_one(both):
    problem = MultiFashion(samples=1500, test_samples=300, network="mlp")
    result = fedpareto.run(
        problem, "local", clients=2, rounds=3, preferences="1,0;0,1", engine={"chunk": 2, "threads": 1}
    )
    (left, neither), (none, right) = result.solutions[0].points
    assert min(left, right) > 0.4
    assert max(neither, none) < 0.35


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"samples": 60_001}, "samples is 60,001; it is at least 1 and at most 60,000"),
        ({"samples": 0}, "samples is 0; it is at least 1"),
        ({"test_samples": 10_001}, "test_samples is 10,001; it is at least 1 and at most 10,000"),
        ({"validation": 1.0}, "validation is 1; it is at least 0 and below 1"),
        ({"validation": -0.1}, "validation is -0.1; it is at least 0"),
        ({"network": "mlp", "hidden": (64, 0)}, "hidden has 0; each is at least 1"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_named_at_once(parameters, message):
    with pytest.raises(UserError, match=message):
        FashionMNISTPairs(**parameters)


def test_more_clients_than_images_are_refused(both):
    with pytest.raises(UserError, match="20 clients need at least 20 images in 'test'; test_samples is 10"):
        MultiMNIST(samples=100, test_samples=10).data(20, 0)
