"""The published images and texts are read as published, and dealt to clients as the papers say."""

from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np
import pytest
import torch

from fedpareto.config.errors import DamagedFile, UserError
from fedpareto.inputs.images_texts import WORD
from fedpareto.problems.data import catalogue
from fedpareto.problems.images_text import datasets, texts
from fedpareto.problems.images_text.images import CIFAR10, CIFAR100, Digits, FashionMNIST, PneumoniaMNIST, Writers
from fedpareto.problems.images_text.texts import AdultPhD, AGNews, Shakespeare

PARTITIONS = ("dirichlet", "shards", "pathological", "iid", "ground-track")


def archive(files):
    """A .tar.gz of `{name: content}`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def images(labels, width=1):
    """Records of CIFAR whose pixels are all of the image's own number."""
    return b"".join(bytes([*[9] * (width - 1), label]) + bytes([i]) * 3072 for i, label in enumerate(labels))


@pytest.fixture(autouse=True)
def everything(published):
    """All sets are here."""
    for name in (*datasets.CATALOGUE, "mnist", "fashion-mnist", "adult"):
        published(name)


@pytest.fixture
def put(monkeypatch, tmp_path):
    """Puts a file into a data folder of the test's own."""
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))

    def write(name, content):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)

    return write


# -- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", datasets.CATALOGUE)
def test_counts_are_as_published_or_those_of_a_balanced_part(name, published):
    dataset = published(name)
    found = dataset.census()
    if dataset.is_published():
        assert found == dataset.published
    assert found.get("classes") == dataset.published.get("classes")
    assert all(0 < found[key] <= count for key, count in dataset.published.items())


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar_is_balanced(name, classes, published):
    examples = published(name).examples()
    for tested in (False, True):
        counts = np.bincount(examples.labels[examples.tested == tested], minlength=classes)
        assert len(counts) == classes
        assert np.ptp(counts) == 0
    assert examples.inputs.shape[1:] == (3, 32, 32)
    assert examples.inputs.dtype == np.uint8


def test_the_first_images_of_cifar10_are_the_published_ones(published):
    """A frog, a lorry, a lorry, a deer, a car: the first five of the first batch, whose first pixel is (59, 62, 63)."""
    examples = published("cifar10").examples()
    assert examples.labels[:5].tolist() == [6, 9, 9, 4, 1]
    assert examples.inputs[0, :, 0, 0].tolist() == [59, 62, 63]


def test_cifar_of_any_number_of_batches_is_read(put):
    files = {f"cifar-10-batches-bin/data_batch_{k}.bin": images([k, k + 1]) for k in (2, 1, 3)}
    files["cifar-10-batches-bin/test_batch.bin"] = images([7])
    put("cifar10/cifar-10-binary.tar.gz", archive(files | {"cifar-10-batches-bin/readme.html": b"hello"}))
    examples = datasets.CIFAR10.examples()
    assert examples.labels.tolist() == [1, 2, 2, 3, 3, 4, 7]
    assert examples.tested.tolist() == [False] * 6 + [True]
    assert examples.inputs[:, 2, 31, 31].tolist() == [0, 1, 0, 1, 0, 1, 0]


def test_the_fine_label_of_cifar100_counts(put):
    files = {"cifar-100-binary/train.bin": images([40, 99], 2), "cifar-100-binary/test.bin": images([0], 2)}
    put("cifar100/cifar-100-binary.tar.gz", archive(files))
    assert datasets.CIFAR100.examples().labels.tolist() == [40, 99, 0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nothing of the kind", "cannot be unpacked"),
        (archive({"data_batch_1.bin": images([1])})[:-30], "cannot be unpacked"),
        (archive({"data_batch_1.bin": images([1])}), "no training or no test images"),
        (archive({"data_batch_1.bin": images([1])[:-1], "test_batch.bin": images([1])}), "are not images of 3,073"),
    ],
    ids=["no archive", "cut", "no test part", "cut inside"],
)
def test_a_damaged_archive_is_one_clear_line(content, said, put):
    put("cifar10/cifar-10-binary.tar.gz", content)
    with pytest.raises(DamagedFile, match=f"cifar-10-binary.tar.gz.*{said}.*delete it"):
        CIFAR10().data(2, 0)


def test_files_that_are_not_here_and_cannot_be_had_say_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDPARETO_DATA", str(tmp_path))
    monkeypatch.setattr("fedpareto.problems.data._download", refuse)
    for problem in (CIFAR10(), AGNews(), Shakespeare(), Writers(), PneumoniaMNIST(), AdultPhD(), FashionMNIST()):
        with pytest.raises(UserError, match=r"cannot be downloaded .* put it into .* or set FEDPARETO_DATA"):
            problem.data(2, 0)


def refuse(url, stream, progress):
    from fedpareto.problems.data import _Unavailable

    raise _Unavailable("there is no network")


def test_writers_are_those_of_the_digits(published):
    digits = Writers()._read()
    labels, writers = published("qmnist").writers()
    assert published("mnist").images("train").labels.tolist() == labels[:60_000].tolist()
    assert (digits.labels == labels).all()
    counts = np.bincount(digits.origins[~digits.tested])
    assert (counts > 0).sum() == 539
    assert (counts[counts > 0].min(), counts.max()) == (19, 131)
    assert not set(writers[:60_000]) & set(writers[60_000:])


def test_the_official_training_news_go_before_the_sample(published, request):
    test = published("ag-news").contents()[1]
    put = request.getfixturevalue("put")
    put("ag_news/test.csv.gz", gzip.compress(test))
    put("ag_news/train_sample_6k.csv", b"label,text,source\n")
    with pytest.raises(DamagedFile, match=r"train_sample_6k\.csv is damaged"):
        AGNews().data(2, 0)
    put("ag_news/train.csv", b'"1","A title","A text"\n')
    with pytest.raises(DamagedFile, match=r"train\.csv is damaged: 23 bytes instead of 29,470,338"):
        AGNews().data(2, 0)


def test_a_text_is_the_ranks_of_its_words(published):
    texts, labels, tested = published("ag-news").articles()
    assert texts[6000].startswith("Fears for T N pension after talks Unions representing workers at Turner")
    assert labels[6000] == 2
    assert np.bincount(labels[tested]).tolist() == [1900] * 4
    examples = published("ag-news").examples(500, 12)
    counts = {}
    for text in texts[:6000]:
        for word in WORD.findall(text.lower()):
            counts[word] = counts.get(word, 0) + 1
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:498]
    said = [ranked.index(word) + 2 if word in ranked else 1 for word in WORD.findall(texts[6000].lower())]
    assert examples.inputs[6000].tolist() == said[:12]
    assert ranked[0] == "the"
    assert examples.inputs.max() == 499


def test_a_row_of_shakespeare_is_eighty_characters_and_the_next(published):
    roles = published("shakespeare").roles()
    examples = published("shakespeare").examples()
    assert len(roles) == 99
    assert min(map(len, roles.values())) >= 2000
    for role, (name, said) in enumerate(roles.items()):
        mine = np.flatnonzero(examples.origins == role)
        assert len(mine) == len(said) - 80, name
    said, mine = roles["First Citizen"], np.flatnonzero(examples.origins == list(roles).index("First Citizen"))
    assert said.startswith("Before we proceed any further, hear me speak.\n")
    for place in (0, 137):
        row = "".join(datasets.CHARACTERS[i] for i in examples.inputs[mine[place]])
        assert row == said[place : place + 80]
        assert datasets.CHARACTERS[examples.labels[mine[place]]] == said[place + 80]


def test_the_doctors_are_by_the_education_column_and_have_99_features(published):
    published("adult")
    people = texts.people(texts.ADULT)
    assert people.inputs.shape == (48_842, 99)
    assert sum(texts.CATEGORIES.values()) == 99
    doctors = people.origins == 0
    assert [int((doctors & (people.tested == tested)).sum()) for tested in (False, True)] == [413, 181]
    # One value of each of the eight columns, unless it is missing.
    assert set(people.inputs.sum(axis=1).tolist()) == {5, 6, 7, 8}
    assert int(people.labels.sum()) == 11_687
    table = catalogue()["adult"].table().frame
    column = people.inputs[:, 8 + sorted(table["education"].unique()).index("Doctorate")]
    assert (column == doctors).all()


# -- partitioning --------------------------------------------------------------------------------------------------


@pytest.fixture
def clothes():
    """All that is in the published files."""
    return FashionMNIST()._read()


def rows_of(splits):
    return torch.cat([rows.columns["input"].flatten(1) for rows in splits.values()])


@pytest.mark.parametrize("partition", PARTITIONS)
def test_every_row_is_assigned_once_with_its_label(partition, clothes):
    clients = 10
    splits = FashionMNIST(partition=partition, shards=50, track_shell="10/5/1").data(clients, 3)
    dealt = rows_of(splits).numpy()
    assert dealt.shape == (70_000, 784)
    labels = torch.cat([rows.columns["label"] for rows in splits.values()]).numpy()
    # Sums of pixels by position and class tell a lost, doubled or mislabelled row.
    weights = np.arange(1, 785, dtype=np.int64)
    expected = clothes.inputs.reshape(70_000, 784)[:, ::29] @ weights[::29] * 10 + clothes.labels
    assert (np.sort(dealt[:, ::29] @ weights[::29] * 10 + labels) == np.sort(expected)).all()
    for client in range(clients):
        counts = np.array([splits[part].counts[client] for part in ("train", "test")])
        assert counts[1] == pytest.approx(0.25 * counts.sum(), abs=1)


def test_partitions_give_the_classes_that_they_promise():
    def classes(**fields):
        splits = FashionMNIST(**fields).data(20, 0)
        return [len(set(splits["train"].of_client(client)["label"].tolist())) for client in range(20)]

    assert classes(partition="pathological") == [2] * 20
    assert classes(partition="pathological", classes_per_client=3) == [3] * 20
    assert classes(partition="iid") == [10] * 20
    assert max(classes(partition="shards", shards=100)) <= 6
    assert min(classes(partition="dirichlet", alpha=100.0)) == 10 > min(classes(partition="dirichlet", alpha=0.1))


def test_the_protocol_of_fedmgda_gives_everybody_as_many_rows():
    """Of 50,000 training images 500 each, 400 to train on, 50 to validate and 50 to test; here of the 60,000."""
    problem = FashionMNIST(partition="shards", files="training", validation_share=0.1, test_share=0.1)
    assert problem.default_clients() == 100
    splits = problem.data(100, 0)
    assert {name: set(rows.counts.tolist()) for name, rows in splits.items()} == {
        "train": {480},
        "validation": {60},
        "test": {60},
    }


@pytest.mark.parametrize("partition", PARTITIONS)
def test_the_official_test_rows_are_partitioned_like_the_training_rows(partition, clothes):
    fields = {"shards": 50, "track_shell": "10/5/1", "files": "official", "validation_share": 0.1}
    splits = FashionMNIST(partition=partition, **fields).data(10, 1)
    assert list(splits) == ["train", "validation", "test"]
    assert splits["test"].counts.sum() == 10_000
    assert splits["train"].counts.sum() == pytest.approx(54_000, abs=10)
    assert splits["train"].counts.sum() + splits["validation"].counts.sum() == 60_000
    for client in range(10):
        mine, tested = (
            np.bincount(splits[part].of_client(client)["label"], minlength=10) for part in ("train", "test")
        )
        assert mine / 5400 == pytest.approx(tested / 1000, abs=0.02)


def test_rows_is_how_many_are_used():
    splits = FashionMNIST(rows=500).data(4, 0)
    assert sum(rows.counts.sum() for rows in splits.values()) == 500
    assert sum(rows.counts.sum() for rows in CIFAR100(rows=300, partition="iid").data(3, 0).values()) == 300
    assert FashionMNIST(rows=10**6).data(4, 0)["train"].counts.sum() == pytest.approx(52_500, abs=4)


def test_natural_clients_are_whole_and_chosen_by_the_seed():
    digits = Writers()._read()
    sizes = set(np.bincount(digits.origins).tolist())
    splits = Writers().data(20, 5)
    for client in range(20):
        assert splits["train"].counts[client] + splits["test"].counts[client] in sizes
    everyone = Writers().data(836, 0)
    assert everyone["train"].counts.sum() + everyone["test"].counts.sum() == 70_000
    with pytest.raises(UserError, match="mnist-writers has 539 natural clients with files=training, not 540"):
        Writers(files="training").data(540, 0)
    with pytest.raises(UserError, match="mnist-writers has 0 natural clients with files=official"):
        Writers(files="official").data(2, 0)
    with pytest.raises(UserError, match="partition is 'natural', but the rows of mnist have no natural clients"):
        Digits(partition="natural").data(2, 0)


def test_doctors_are_the_first_of_two_clients():
    splits = AdultPhD().data(2, 0)
    assert [splits[part].counts.tolist() for part in ("train", "test")] == [[413, 32_148], [181, 16_100]]
    own = AdultPhD(files="training", validation_share=0.1, test_share=0.1).data(2, 0)
    assert [rows.counts.sum() for rows in own.values()] == pytest.approx([26_049, 3_256, 3_256], abs=2)


def test_a_role_is_tested_on_what_it_says_last():
    roles = datasets.SHAKESPEARE.roles()
    splits = Shakespeare().data(99, 0)
    for client, said in list(enumerate(roles.values()))[:5]:
        first = splits["test"].of_client(client)["input"][0].tolist()
        place = len(said) - 80 - int(splits["test"].counts[client])
        assert "".join(datasets.CHARACTERS[i] for i in first) == said[place : place + 80]
    with pytest.raises(UserError, match="shakespeare has no published test split"):
        Shakespeare(files="official").data(3, 0)


@pytest.mark.parametrize("problem", [FashionMNIST(rows=400), Writers(rows=400), Shakespeare(rows=400)])
def test_the_seed_deals(problem):
    first, again, other = (problem.data(4, seed) for seed in (2, 2, 3))
    for part in first:
        assert torch.equal(first[part].columns["input"], again[part].columns["input"])
    assert not torch.equal(first["train"].columns["input"][:20], other["train"].columns["input"][:20])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "resnet"}, "unknown model of fashion-mnist 'resnet'"),
        ({"model": "cnn-lrn"}, "unknown model of fashion-mnist 'cnn-lrn'; it has cnn, cnn-small, cnn-fe"),
        ({"alpha": 0.0}, "alpha is 0; it is above 0"),
        ({"shards": 0}, "shards is 0; it is at least 1"),
        ({"rows": -1}, "rows is -1"),
        ({"test_share": 0.0}, "test_share is 0; it is above 0 and below 1"),
        (
            {"test_share": 0.5, "validation_share": 0.5},
            "test_share and validation_share are 0.5 and 0.5, which leaves nothing to train on",
        ),
        ({"hidden": (0,)}, "hidden is 0; it is at least 1"),
    ],
)
def test_what_cannot_be_is_said_at_once(fields, said):
    with pytest.raises(UserError, match=said):
        FashionMNIST(**fields)


def test_too_few_rows_for_the_clients_are_refused():
    with pytest.raises(UserError, match="50 clients need at least 100 rows; there are 60"):
        FashionMNIST(rows=60).data(50, 0)
    with pytest.raises(UserError, match=r"client \d has no row in 'train'"):
        FashionMNIST(rows=30, partition="pathological", files="official").data(10, 0)


def test_natural_clients_keep_their_shares_of_fewer_rows_and_at_least_ten():
    whole, part = Writers().data(50, 1), Writers(rows=2000).data(50, 1)
    sizes = [sum(rows.counts for rows in splits.values()) for splits in (whole, part)]
    assert sizes[1].tolist() == pytest.approx(np.maximum(10, 2000 * sizes[0] / sizes[0].sum()), abs=0.51)
    assert [rows.counts.min() for rows in AdultPhD(rows=100).data(2, 0).values()] == [10, 10]
    assert set(sum(rows.counts for rows in Writers(rows=30).data(10, 1).values())) == {10}
