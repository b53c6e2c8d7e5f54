"""What crosses the wire comes back as it was, and a stranger's bytes come to nothing."""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedpareto.contract.messages import Failure
from fedpareto.engines.single import Reply, Task
from fedpareto_flower.engine import wire
from fedpareto_flower.engine.wire import Answer, Envelope, Hello, Job, Malformed, Result

NONCE = "0123456789abcdef"


def an_envelope(size=10):
    model = torch.linspace(0, 1, size)
    task = Task(3, 2, {"model": model, "weights": torch.tensor([0.5, 0.5], dtype=torch.float64)}, "train", lane=1)
    jobs = (Job(0, 2, 1, (task,), {"model": model.clone()}, True), Job(1, 2, 0, (), {"model": model + 1}))
    return Envelope("f", 3, NONCE, jobs, final=True)


def an_answer(size=10):
    reply = Reply(3, 2, {"model": torch.randn(size)}, "train", 1)
    failure = Failure(3, 2, "raised ValueError: no", "gradients", 0)
    return Answer("f", 3, NONCE, (Result(0, (reply,), (failure,), torch.randn(2, 2), None),))


def header(content):
    return json.loads(content.config_records[wire.HEADER][wire.HEADER])


def with_header(content, change):
    entries = header(content)
    change(entries)
    records = dict(content.items()) | {wire.HEADER: ConfigRecord({wire.HEADER: json.dumps(entries)})}
    return RecordDict(records)


def with_array(content, path, **changes):
    # Set from outside, as Flower's own decoder does: the constructor would check some of it.
    for name, value in changes.items():
        setattr(content.array_records[wire.TENSORS][path], name, value)
    return content


def same_messages(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert torch.equal(one[name], other[name])


def test_an_envelope_comes_back_as_it_was():
    sent = an_envelope()
    found = wire.decode_envelope(wire.encode_envelope(sent))
    assert (found.federation, found.client, found.nonce, found.final) == ("f", 3, NONCE, True)
    for job, original in zip(found.jobs, sent.jobs, strict=True):
        assert (job.run, job.round, job.exchange, job.measure) == (
            original.run,
            original.round,
            original.exchange,
            original.measure,
        )
        same_messages(job.solution, original.solution)
        for task, wanted in zip(job.tasks, original.tasks, strict=True):
            assert (task.client, task.round, task.step, task.lane) == (3, 2, "train", 1)
            same_messages(task.message, wanted.message)


def test_an_answer_comes_back_as_it_was():
    sent = an_answer()
    found = wire.decode_answer(wire.encode_answer(sent))
    result, original = found.results[0], sent.results[0]
    same_messages(result.replies[0].message, original.replies[0].message)
    assert result.failures == original.failures
    assert torch.equal(result.sent, original.sent)
    assert result.trained is None


def test_a_hello_comes_back_as_it_was():
    hello = Hello("f", 2, NONCE, ("train", "test"), {"model": "ab", "data": "cd"})
    assert wire.decode_hello(wire.encode_hello(hello)) == hello


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8]),
)
def test_tensors_of_every_shape_and_type_come_back(shape, dtype):
    tensor = (torch.rand(shape) * 100).to(dtype)
    task = Task(0, 1, {"x": tensor})
    found = wire.decode_envelope(wire.encode_envelope(Envelope("f", 0, NONCE, (Job(0, 1, 0, (task,)),))))
    same_messages(found.jobs[0].tasks[0].message, {"x": tensor})


def test_a_strided_view_is_sent_as_what_it_shows():
    view = torch.arange(12.0).reshape(3, 4).T[1:]
    task = Task(0, 1, {"x": view})
    found = wire.decode_envelope(wire.encode_envelope(Envelope("f", 0, NONCE, (Job(0, 1, 0, (task,)),))))
    assert torch.equal(found.jobs[0].tasks[0].message["x"], view)


def test_a_solution_that_the_task_carries_is_not_sent_twice():
    content = wire.encode_envelope(an_envelope(1000))
    assert set(content.array_records[wire.TENSORS]) == {"0/0/model", "0/0/weights", "1/solution/model"}


def test_a_million_parameters_cost_at_most_two_percent_more_than_their_bytes():
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    model, d = torch.randn(1_000_000), 1_000_000
    task = Task(0, 1, {"model": model})
    down = wire.encode_envelope(Envelope("f", 0, NONCE, (Job(0, 1, 0, (task,), {"model": model.clone()}, True),)))
    reply = Reply(0, 1, {"model": model})
    up = wire.encode_answer(Answer("f", 0, NONCE, (Result(0, (reply,), (), torch.randn(2, 2), torch.randn(2, 2)),)))
    for content in (down, up):
        on_the_wire = sum(len(one.deflate()) for one in get_all_nested_objects(content).values())
        assert 4 * d <= wire.size(content) <= on_the_wire <= 1.02 * 4 * d


def test_what_flower_sends_and_receives_is_the_same_content():
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    content = wire.encode_answer(an_answer())
    contents = {key: one.deflate() for key, one in get_all_nested_objects(content).items()}
    inflated = inflate_object_from_contents(content.object_id, contents)
    same_messages(
        wire.decode_answer(inflated).results[0].replies[0].message,
        wire.decode_answer(content).results[0].replies[0].message,
    )


def test_a_reason_is_one_line_of_bounded_length():
    failure = Failure(3, 2, "line\none\x1b[31m " + "x" * 10_000)
    found = wire.decode_answer(wire.encode_answer(Answer("f", 3, NONCE, (Result(0, (), (failure,)),))))
    reason = found.results[0].failures[0].reason
    assert len(reason) <= wire.LONGEST_REASON
    assert reason.isprintable()


# -- a stranger's bytes --------------------------------------------------------------------------------------------

PLACE = "0/0/model"


def announce(shape):
    return lambda content: with_array(content, PLACE, shape=shape)


TAMPERED = {
    "10 GB announced": announce((2_500_000_000,)),
    "shape that overflows": announce((2**62, 4)),
    "negative shape": announce((-1, -10)),
    "shape of texts": announce(("10",)),
    "shape of floats": announce((10.0,)),
    "deep shape": announce((1,) * 50 + (10,)),
    "too few bytes": lambda content: with_array(content, PLACE, data=b"abc"),
    "pickled type": lambda content: with_array(content, PLACE, dtype="object"),
    "complex type": lambda content: with_array(content, PLACE, dtype="complex64", shape=(5,)),
    "numpy file": lambda content: with_array(content, PLACE, stype="numpy.ndarray"),
    "no header": lambda content: RecordDict({wire.TENSORS: content[wire.TENSORS]}),
    "header of bytes": lambda content: RecordDict({wire.HEADER: ConfigRecord({wire.HEADER: b"{}"})}),
    "header of another record": lambda content: RecordDict({wire.HEADER: MetricRecord({wire.HEADER: 1})}),
    "tensors of another record": lambda content: RecordDict(
        {wire.HEADER: content[wire.HEADER], wire.TENSORS: ConfigRecord({PLACE: b"x" * 40})}
    ),
    "unknown record": lambda content: RecordDict(dict(content.items()) | {"more": ConfigRecord({"a": 1})}),
    "deep JSON": lambda content: RecordDict({wire.HEADER: ConfigRecord({wire.HEADER: "[" * 100_000})}),
    "long header": lambda content: RecordDict({wire.HEADER: ConfigRecord({wire.HEADER: "1" * 2_000_000})}),
    "old protocol": lambda content: with_header(content, lambda h: h.update(protocol=0)),
    "another kind": lambda content: with_header(content, lambda h: h.update(kind="hello")),
    "client as text": lambda content: with_header(content, lambda h: h.update(client="3")),
    "client as truth": lambda content: with_header(content, lambda h: h.update(client=True)),
    "huge client": lambda content: with_header(content, lambda h: h.update(client=10**300)),
    "results as text": lambda content: with_header(content, lambda h: h.update(results="many")),
    "100,000 results": lambda content: with_header(content, lambda h: h.update(results=[{}] * 100_000)),
    "negative run": lambda content: with_header(content, lambda h: h["results"][0].update(run=-1)),
    "tensor named twice": lambda content: with_header(
        content, lambda h: h["results"][0]["replies"][0].update(message=["model", "model"])
    ),
    "tensor missing": lambda content: with_header(
        content, lambda h: h["results"][0]["replies"][0].update(message=["model", "other"])
    ),
    "tensor too many": lambda content: with_header(content, lambda h: h["results"][0].update(replies=[])),
    "measured something else": lambda content: with_header(content, lambda h: h["results"][0].update(measured=["x"])),
    "long name": lambda content: with_header(
        content, lambda h: h["results"][0]["replies"][0].update(message=["m" * 10_000])
    ),
}


@pytest.mark.parametrize("how", TAMPERED)
def test_a_tampered_answer_is_malformed(how):
    with pytest.raises(Malformed):
        wire.decode_answer(TAMPERED[how](wire.encode_answer(an_answer())))


def test_more_bytes_or_tensors_than_the_receiver_expects_are_refused():
    content = wire.encode_answer(an_answer())
    with pytest.raises(Malformed, match="at most 10 are expected"):
        wire.decode_answer(content, wire.Limits(bytes=10))
    with pytest.raises(Malformed, match="at most 1 are expected"):
        wire.decode_answer(content, wire.Limits(tensors=1))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(entries=st.dictionaries(st.sampled_from(["client", "nonce", "federation", "results", "jobs"]), json_values))
def test_any_header_is_decoded_or_malformed(entries):
    for encode, decode in (
        (lambda: wire.encode_answer(an_answer()), wire.decode_answer),
        (lambda: wire.encode_envelope(an_envelope()), wire.decode_envelope),
    ):
        with suppress(Malformed):
            decode(with_header(encode(), lambda h: h.update(entries)))


def test_random_answers_are_refused_in_bounded_memory():
    stream = np.random.default_rng(0)
    tracemalloc.start()
    for _ in range(300):
        data = stream.bytes(int(stream.integers(0, 400)))
        shape = tuple(int(n) for n in stream.integers(0, 2**40, size=stream.integers(1, 4)))
        array = Array(str(stream.choice(["float32", "float64", "object"])), shape, wire.STYPE, data)
        content = RecordDict(
            {
                wire.HEADER: wire.encode_answer(an_answer())[wire.HEADER],
                wire.TENSORS: ArrayRecord({PLACE: array, "0/measured/sent": array}),
            }
        )
        with pytest.raises(Malformed):
            wire.decode_answer(content)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 2**20
