"""Every network that the library trains can be used: images, texts, tasks and policies, from a run and from a file."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from types import SimpleNamespace

import httpx
import numpy as np
import onnxruntime
import pytest
import torch

import fedpareto
from fedpareto.algorithms.fronts.praffl import PraFFL
from fedpareto.config.errors import UserError
from fedpareto.contract.registry import problem_class
from fedpareto.inputs.images_texts import ImageInputs, TextInputs, inputs_from_json
from fedpareto.problems.images_text.datasets import CHARACTERS
from fedpareto.problems.images_text.images import CIFAR10, Digits
from fedpareto.problems.images_text.texts import AGNews, Shakespeare
from fedpareto.problems.morl.deep_sea_treasure import DeepSeaTreasure
from fedpareto.problems.morl.gym_problems import ContinuousLunarLander
from fedpareto.problems.multitask.datasets import Images, ImageSet
from fedpareto.problems.multitask.problem import FashionMNISTPairs
from fedpareto.record.servable import Card, network_of_problem
from fedpareto_serve import files, onnx_network, service
from fedpareto_serve.models import OneOfMany
from fedpareto_serve.predictions import predict
from test_serving_commands import command  # noqa: F401 (a fixture)

STREAM = np.random.default_rng(0)


def image(*shape):
    return STREAM.integers(0, 256, shape).tolist()


KINDS = {
    "cnn": (CIFAR10(), None, [{"image": image(3, 32, 32)}, {"image": image(32, 32, 3)}]),
    "dropout": (Digits(model="cnn-small"), None, [{"image": image(28, 28)}, {"image": image(1, 28, 28)}]),
    "logistic": (Digits(model="logistic"), None, [{"image": image(28, 28)}, {"image": image(1, 28, 28)}]),
    "two heads": (FashionMNISTPairs(), None, [{"image": image(28, 28)}, {"image": image(28, 28)}]),
    "words": (
        AGNews(vocabulary=6, length=8),
        TextInputs(8, ("the", "ball", "market", "won")),
        [{"text": "The ball won, the ball!"}, {"text": "market"}],
    ),
    "characters": (
        Shakespeare(units=6, layers=1),
        TextInputs(12, characters=CHARACTERS),  # ONNX has a part for each character, so that 80 take long.
        [{"text": "To be, or not to b"}, {"text": "What"}],
    ),
    "choice": (DeepSeaTreasure(hidden=(6,)), None, [{"observation 0": 0, "observation 1": 1}] * 2),
    "vector": (ContinuousLunarLander(hidden=(6,)), None, [{f"observation {i}": i / 8 for i in range(8)}] * 2),
}


def served(problem, inputs=None, clients=2):
    """Untrained models of a problem, one for each client, whose preferences are at the ends of the simplex."""
    objectives = problem.objectives
    card = Card(
        "fedavg",
        problem.name,
        0,
        None,
        objectives,
        inputs or problem.input_schema(clients, 0),
        problem.layout,
        problem.outputs(),
        network_of_problem(problem),
    )
    preferences = np.eye(len(objectives))[np.arange(clients) % len(objectives)]
    models = torch.stack([problem.initial(seed) for seed in range(clients)])
    return OneOfMany(card, list(range(clients)), models, np.ones((clients, len(objectives))), preferences)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_the_networks_own_also_from_a_file(kind, tmp_path):
    problem, inputs, rows = KINDS[kind]
    model = served(problem, inputs)
    files.save(model, tmp_path / "model.safetensors")
    again = files.load(tmp_path / "model.safetensors")
    assert again.card == model.card
    ends = np.eye(len(problem.objectives))
    preferences = [ends[0].tolist(), ends[min(1, len(ends) - 1)].tolist()]
    found = predict(again, rows, preferences)
    features = torch.from_numpy(model.card.inputs.encode(rows).features)
    for row, client in enumerate((0, 1 if len(ends) > 1 else 0)):
        parameters = problem.layout.unflatten(model.models[client][None])
        expected = problem.answers(parameters, features[row : row + 1][None])[0, 0]
        if kind not in ("choice", "vector"):
            expected = expected.softmax(-1)
            np.testing.assert_allclose(found.probabilities[row].sum(-1), 1, rtol=1e-5)
        np.testing.assert_allclose(found.probabilities[row], expected.numpy(), rtol=1e-4, atol=1e-6)
        assert found.decisions[row].tolist() == expected.argmax(-1).tolist()
        assert found.served_by[row].client == client


# What the others do is part of these; each takes seconds, as torch's exporter does.
@pytest.mark.takes_long
@pytest.mark.parametrize("kind", ["cnn", "words", "characters", "vector"])
def test_onnx_gives_the_same_answers_under_any_preference(kind, tmp_path):
    problem, inputs, rows = KINDS[kind]
    model = served(problem, inputs)
    onnx_network.save(model, tmp_path / "model.onnx")
    assert onnx_network.largest_difference(model, tmp_path / "model.onnx") <= onnx_network.LARGEST_DIFFERENCE
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    x = model.card.inputs.encode(rows[:1]).features
    for preference in np.eye(len(problem.objectives), dtype=np.float32)[:2]:
        (found,) = session.run(None, {"x": x, "preference": preference[None]})
        np.testing.assert_allclose(found, model(x, preference).numpy(), rtol=1e-4, atol=1e-5)
    assert Card.from_json(json.loads(session.get_modelmeta().custom_metadata_map["fedpareto"]), "here") == model.card


def said_over_http(model, rows, preference):
    """What /predict says of rows, and /health of the model."""
    gate = service.app_of(SimpleNamespace(conditioned=lambda client, seed: model, clients=[0, 1]))

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://here") as client:
            answer = await client.post("/predict", json={"rows": rows, "preference": preference, "client": 1})
            return answer.json(), (await client.get("/health")).json()

    return asyncio.run(ask())


@pytest.mark.parametrize("kind", KINDS)
def test_over_http_answers_bear_names(kind):
    problem, inputs, rows = KINDS[kind]
    model = served(problem, inputs)
    preference = [1.0, *[0.0] * (len(problem.objectives) - 1)]
    answer, health = said_over_http(model, rows, preference)
    assert health["outputs"] == [output.to_json() for output in problem.outputs()]
    found = predict(model, rows, preference)
    assert len(answer["answers"]) == len(rows)
    for row, said in enumerate(answer["answers"]):
        assert list(said) == [output.name for output in problem.outputs()]
        for head, output in enumerate(problem.outputs()):
            numbers = found.probabilities[row, head].tolist()
            if not output.classes:
                assert said[output.name] == pytest.approx(numbers[0])
                continue
            one = said[output.name]
            scores = one["values" if kind == "choice" else "probabilities"]
            assert scores == pytest.approx(dict(zip(output.classes, numbers, strict=True)))
            assert one["class"] == max(scores, key=scores.get)


def test_a_short_run_of_a_policy_is_exported_and_asked(command, tmp_path):  # noqa: F811
    fedpareto.run(
        DeepSeaTreasure(hidden=(6,)),
        "fedavg",
        clients=2,
        rounds=1,
        engine={"threads": 1, "chunk": 2},
        learner={"steps": 20, "learning_starts": 10, "train_freq": 4},
        out="run",
    )
    assert command("export", "run", "--out", "model.safetensors")[0] == 0
    (tmp_path / "seen.csv").write_text("observation 0,observation 1\n0,0\n1,2\n")
    code, out, err = command("predict", "model.safetensors", "--preference", "0.5,0.5", "--input", "seen.csv")
    assert code == 0, err
    assert "answers: action: one of 4, with the value of each" in err
    table = list(csv.DictReader(io.StringIO(out)))
    assert [list(row)[:2] for row in table] == [["action", "value of 0 (action)"]] * 2
    assert {row["action"] for row in table} <= {"0", "1", "2", "3"}


@pytest.mark.takes_long
def test_praffl_makes_models_of_two_heads_for_any_preference_also_as_onnx(command, tmp_path, monkeypatch):  # noqa: F811
    pixels, labels = STREAM.integers(0, 256, (40, 28, 28)).astype(np.uint8), STREAM.integers(0, 10, 40)
    monkeypatch.setattr(ImageSet, "images", lambda self, part: Images(pixels, labels))
    fedpareto.run(
        FashionMNISTPairs(samples=24, test_samples=8),
        PraFFL(body_epochs=1, head_epochs=1, sampled=2, hypernetwork=(4,)),
        clients=2,
        rounds=1,
        engine={"threads": 1, "chunk": 2},
        out="run",
    )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert command("export", "run", "--client", "1", "--out", "model.safetensors")[0] == 0
    code, out, err = command("export", "model.safetensors", "--out", "model.onnx")
    assert (code, "under onnxruntime the same to" in out) == (0, True), err
    np.save(tmp_path / "images.npy", pixels[:3])
    answers = []
    for preference in ("1,0", "0,1"):
        code, out, err = command("predict", "model.safetensors", "--preference", preference, "--input", "images.npy")
        assert code == 0, err
        assert "client 1's model for the preference" in err
        answers.append(out)
    assert len(set(answers)) == 2
    assert answers[0].splitlines()[0].startswith("left,probability of 0 (left)")
    model = files.load(tmp_path / "model.safetensors")
    assert said_over_http(model, [{"image": pixels[0].tolist()}], [0.5, 0.5])[0]["answers"][0].keys() == {
        *("left", "right")
    }


@pytest.mark.parametrize(
    ("name", "parameters", "rows"),
    [
        pytest.param(name, parameters, rows, id=name, marks=pytest.mark.needs_data(dataset))
        for name, dataset, parameters, rows in (
            ("mnist", "mnist", {"rows": 60, "model": "logistic"}, [{"image": image(28, 28)}]),
            ("ag-news", "ag-news", {"rows": 60}, [{"text": "Stocks fell"}]),
            ("shakespeare", "shakespeare", {"rows": 40, "units": 4, "layers": 1}, [{"text": "To be, or not to b"}]),
            ("multi-mnist", "mnist", {"samples": 20, "test_samples": 8}, [{"image": image(28, 28)}]),
        )
    ],
)
def test_a_short_run_on_real_data_is_exported_and_served(name, parameters, rows, command):  # noqa: F811
    problem = problem_class(name)(**parameters)
    fedpareto.run(problem, "fedavg", clients=2, rounds=1, engine={"threads": 1, "chunk": 2}, out="run")
    assert command("export", "run", "--out", "model.safetensors")[0] == 0
    model = fedpareto.load("model.safetensors").conditioned()
    preference = [1 / len(problem.objectives)] * len(problem.objectives)
    (said,) = said_over_http(model, rows, preference)[0]["answers"]
    assert list(said) == [output.name for output in problem.outputs()]


def test_images_are_read_from_arrays_folders_and_the_format_of_mnist(command, tmp_path):  # noqa: F811
    from PIL import Image

    files.save(served(Digits(model="logistic")), tmp_path / "model.safetensors")
    images = STREAM.integers(0, 256, (3, 28, 28)).astype(np.uint8)
    np.save(tmp_path / "images.npy", images)
    np.savez(tmp_path / "images.npz", images)
    (tmp_path / "images-idx3-ubyte").write_bytes(
        b"\0\0\x08\x03" + np.array([3, 28, 28], ">u4").tobytes() + images.tobytes()
    )
    (tmp_path / "folder").mkdir()
    for number, one in enumerate(images):
        Image.fromarray(one).save(tmp_path / "folder" / f"{number}.png")
    found = set()
    for name in ("images.npy", "images.npz", "images-idx3-ubyte", "folder"):
        code, out, err = command("predict", "model.safetensors", "--preference", "1", "--input", name)
        assert code == 0, err
        found.add(out)
    assert len(found) == 1
    assert len(found.pop().splitlines()) == 1 + len(images)


@pytest.mark.parametrize(
    ("inputs", "row", "words"),
    [
        (
            ImageInputs((1, 2, 2)),
            {"image": [[1, 2]]},
            r"row 1: the image has the shape \[1, 2\] instead of \[1, 2, 2\]",
        ),
        (ImageInputs((1, 2, 2)), {"image": [[1, 2], [3, 256]]}, "numbers from 0 to 255"),
        (ImageInputs((1, 2, 2)), {"image": [["a", "b"], ["c", "d"]]}, "numbers from 0 to 255"),
        (ImageInputs((1, 2, 2)), {"image": [[1, 2], [3]]}, "the image has the shape"),
        (ImageInputs((1, 2, 2)), {"picture": []}, "row 1 has no 'image'"),
        (TextInputs(3, ("a",)), {"text": 3}, "row 1: 'text' is not a text"),
    ],
)
def test_what_is_wrong_with_an_input_is_one_line(inputs, row, words):
    with pytest.raises(UserError, match=words):
        inputs.encode([row])
    assert inputs_from_json(json.loads(json.dumps(inputs.to_json())), "here") == inputs


def test_texts_are_numbered_as_in_training():
    words = TextInputs(4, ("the", "ball"))
    encoded = words.encode([{"text": "The BALL was red and blue"}, {"text": "unheard"}])
    assert encoded.features.tolist() == [[2, 3, 1, 1], [1, 0, 0, 0]]
    assert encoded.unseen == {"text": 1}
    assert TextInputs(3, characters="\nab").encode([{"text": "abba"}, {"text": "b"}]).features.tolist() == [
        [2, 2, 1],
        [0, 0, 2],
    ]
