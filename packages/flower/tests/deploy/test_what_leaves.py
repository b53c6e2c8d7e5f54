"""What leaves a node in a run, message by message: exactly what docs/data-protection.md tells."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest
from secrets_of_a_node import forms, found

from fedpareto.algorithms.averaging.fedavg import FedAvg
from fedpareto.algorithms.wrappers.secured import Secured
from fedpareto.contract.registry import algorithms
from fedpareto.contract.secure_sum import SecureSum
from fedpareto.engines.single import Task
from fedpareto.tensors import rng
from fedpareto_flower.deploy.silo_node import make_node
from fedpareto_flower.engine import wire

PAGE = (Path(__file__).parents[4] / "docs/data-protection.md").read_text(encoding="utf-8")
PREFERENCE = (0.61728394, 0.38271606)
ROUNDS = 2


def section(heading):
    (text,) = re.findall(rf"^### {heading}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    return text


def told(heading):
    """The fields that the page lists under a heading, in the first column of its table."""
    rows = re.findall(r"^\| (`.*?) \|", section(heading), re.MULTILINE)
    return {field for row in rows for field in re.findall(r"`(\w+)`", row)}


def fields(value):
    """All names in a header, at any depth."""
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from fields(part)


def header(content):
    return json.loads(content.config_records[wire.HEADER][wire.HEADER])


def everything(content):
    """All bytes of a message that are not Flower's own."""
    arrays = [array.data for record in content.array_records.values() for array in record.values()]
    return b"|".join([content.config_records[wire.HEADER][wire.HEADER].encode(), *arrays])


@pytest.fixture
def node(deployment, tables):
    folder = deployment.node(0)
    return make_node({"folder": str(folder), "data": {"file": str(tables / "a.csv")}, "preference": list(PREFERENCE)})


@pytest.fixture
def sent(node, deployment, caplog):
    """All that a node sends in a short run: its introduction, an answer for each round, and the last one."""
    caplog.set_level(logging.DEBUG)
    initial = {"model": node.settings[0].initial}
    hello = node.hello(wire.encode_greeting(deployment.name, rng.SERVER, "first"))
    answers = []
    for number in range(1, ROUNDS + 2):
        final = number > ROUNDS
        tasks = () if final else (Task(0, number, initial),)
        job = wire.Job(0, number, 0, tasks, solution=initial, measure=not final)
        envelope = wire.Envelope(deployment.name, 0, f"nonce {number}", (job,), final)
        answers.append(node.answer(wire.encode_envelope(envelope)))
    return hello, answers


def test_messages_have_the_fields_that_the_page_tells_and_no_others(node, sent):
    hello, answers = sent
    assert set(fields({**header(hello), "schema": ""})) == told("Introduction")
    assert all(re.fullmatch(r"[0-9a-f]{16}", fingerprint) for fingerprint in header(hello)["schema"].values())
    assert header(hello)["parts"] == ["train", "validation", "test"]
    assert set().union(*(fields(header(answer)) for answer in answers)) | {"reason"} == told("Answers")
    assert not hello.array_records


def test_the_numbers_that_leave_are_those_of_the_model_and_of_the_objectives(node, sent):
    _, (*training, last) = sent
    of_model = node.settings[0].layout.size
    of_objectives = len(node.problem.objectives) * 3  # train, validation and test
    for answer in training:
        (record,) = answer.array_records.values()
        shapes = sorted(tuple(array.shape) for array in record.values())
        assert sum(int(np.prod(shape)) for shape in shapes) == of_model + 2 * of_objectives
        assert shapes.count((of_model,)) == 1
    (record,) = last.array_records.values()
    assert sum(int(np.prod(array.shape)) for array in record.values()) == of_objectives


def test_no_message_and_no_log_line_holds_rows_labels_preference_or_file_name(node, sent, tables, caplog):
    hello, answers = sent
    said = "\n".join(record.getMessage() for record in caplog.get_records("setup")).encode()
    assert b"round 2:" in said, "the log was read"
    leaving = b"|".join([*map(everything, (hello, *answers)), said])
    assert wire.decode_answer(answers[0]).results[0].replies[0].message["model"].numpy().tobytes() in leaving
    assert found(leaving, node, tables / "a.csv", PREFERENCE) == set()
    columns = node.federations[0].splits["train"].columns
    for kind, numbers in {"preference": PREFERENCE, "row": columns["features"][7].numpy().ravel()}.items():
        for form in forms(numbers):
            assert found(leaving + form, node, tables / "a.csv", PREFERENCE) == {kind}, "a leak is seen"


def test_what_each_method_sends_beside_the_model_is_told(node):
    table = section("What some methods send beside the model")
    rows = [
        (set(re.findall(r"`(\w+)`", sent)), set(re.findall(r"`([a-z-]+)`", methods)))
        for sent, methods in re.findall(r"^\| (`.*?) \| .*? \| ([^|]*) \|$", table, re.MULTILINE)
    ]
    masked = {
        tensor
        for step in Secured(FedAvg(), SecureSum("masked")).reply_shapes(node.settings[0]).values()
        for tensor in step
    }
    assert masked in [tensors for tensors, _ in rows]
    for name, cls in algorithms().items():
        if cls.__module__.startswith("fedpareto."):
            steps = cls().reply_shapes(node.settings[0]).values()
            sends = {tensor for step in steps for tensor in step} - {"model", "body"}
            of_it = [tensors for tensors, methods in rows if name in methods]
            assert sends <= set().union(*of_it), f"docs/data-protection.md does not tell all that {name} sends"
            assert all(sends & tensors for tensors in of_it), f"{name} sends nothing of the kind"
