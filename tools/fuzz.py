"""Give every reader of files and messages damaged and hostile input: each must be used or refused in one line.

    python tools/fuzz.py --inputs 100000
    python tools/fuzz.py --inputs 2000 --reader spec.yaml --seed 7 --keep found

A traceback is any exception but a refusal; a hang is an input that takes longer than SECONDS of CPU time. The exit code
is 1 if there was either, and --keep writes such inputs to a folder. The same seed makes the same inputs. It needs Linux
or macOS, and the packages of `pip install 'fedpareto[flower,serve,parquet]'`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedpareto.errors import UserError

SECONDS = 10
"""Of CPU time, after which an input counts as a hang."""
PATIENCE = 120
"""The same by the clock, for what waits without computing."""
MEMORY = 16 * 2**30
"""Bytes of address space: a damaged length must not fill the machine."""

Mutate = Callable[[random.Random, bytes], bytes]


class Hang(BaseException):
    """Raised by the alarm; not an Exception, which a reader might catch."""


@dataclass(frozen=True)
class Reader:
    """Something that reads what others wrote."""

    name: str
    whole: tuple[bytes, ...]
    """Good inputs, from which others are made."""
    mutate: Mutate
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (UserError,)


@dataclass
class Count:
    """What a reader did with its inputs."""

    inputs: int = 0
    used: int = 0
    refused: int = 0
    hangs: int = 0
    slowest: float = 0.0
    tracebacks: Counter[str] = field(default_factory=Counter)
    """By place and kind."""
    found: dict[str, bytes] = field(default_factory=dict)
    """The first input of each."""


# -- trying --------------------------------------------------------------------------------------------------------


def fuzz(reader: Reader, inputs: int, seed: int) -> Count:
    """Reads `inputs` mutated inputs, after the good ones, which must be used."""
    for content in reader.whole:
        reader.read(content)
    count = Count()
    for number in range(inputs):
        draw = random.Random(f"{reader.name} {seed} {number}")
        _try(reader, reader.mutate(draw, draw.choice(reader.whole)), count)
    return count


def _try(reader: Reader, content: bytes, count: Count) -> None:
    count.inputs += 1
    began = time.process_time()
    try:
        with alarm():
            reader.read(content)
        count.used += 1
    except reader.refusals as problem:
        count.refused += 1
        if not str(problem).strip():
            _note(count, f"a refusal without a word: {type(problem).__name__}", content)
    except Hang:
        count.hangs += 1
        _note(count, "hang", content)
    except Exception as problem:
        _note(count, f"{type(problem).__name__} at {_place(problem)}", content)
    count.slowest = max(count.slowest, time.process_time() - began)


def _note(count: Count, what: str, content: bytes) -> None:
    if what != "hang":
        count.tracebacks[what] += 1
    count.found.setdefault(what, content)


def _place(problem: BaseException) -> str:
    """The last line of fedpareto's own that was running."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if "fedpareto" in frame.filename] or frames
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}"


@contextmanager
def alarm() -> Iterator[None]:
    """Raises Hang where it takes too long."""

    def ring(*_: object) -> None:
        raise Hang

    before = [signal.signal(number, ring) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


# -- mutations -----------------------------------------------------------------------------------------------------

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**64, -(2**70), 10**400),
    *(0.5, -0.5, 1e308, 1e-320, math.nan, math.inf, -math.inf),
    *("", "x", "0", "NaN", "number", "\ud800", "a" * 5000, "../../x", "a\nb", "\x00"),
    *([], [[]], {}, {"a": 1}, [None], [0] * 1000, [[1.0, 2.0]], [["0.weight", [2, 2]]]),
)
DEEP, LONG = "@deep@", "@long@"
RAW = {DEEP: "[" * 3000 + "]" * 3000, LONG: "9" * 5000}
"""JSON that no value is written as."""


def of_bytes(draw: random.Random, content: bytes) -> bytes:
    """Flipped, cut, repeated or foreign bytes."""
    data = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 5))):
        place = draw.randrange(len(data) + 1)
        stretch = min(len(data) - place, draw.choice((1, 2, 8, 64, 512)))
        kind = draw.randrange(6)
        if kind == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif kind == 1:
            del data[place:]
        elif kind == 2:
            del data[place : place + stretch]
        elif kind == 3:
            data[place:place] = data[place : place + stretch] * draw.choice((1, 2, 50))
        elif kind == 4:
            data[place:place] = draw.randbytes(draw.choice((1, 4, 40)))
        else:
            data[place : place + stretch] = bytes(stretch)
    return bytes(data)


def of_json(draw: random.Random, content: bytes) -> bytes:
    """Values of other types, missing and foreign keys; sometimes other bytes."""
    if draw.random() < 0.2:
        return of_bytes(draw, content)
    text = json.dumps(of_plain(draw, json.loads(content), (*ODD, *RAW)))
    for word, raw in RAW.items():
        text = text.replace(f'"{word}"', raw)
    return text.encode()


def of_lines(draw: random.Random, content: bytes) -> bytes:
    """One line of a JSON-lines file, changed, lost or repeated."""
    lines = content.splitlines(keepends=True)
    place = draw.randrange(len(lines))
    if draw.random() < 0.2:
        lines.insert(place, draw.choice(lines))
    elif draw.random() < 0.1:
        del lines[place]
    else:
        lines[place] = of_json(draw, lines[place]) + b"\n"
    return b"".join(lines)


def of_plain(draw: random.Random, value: Any, odd: tuple[Any, ...] = ODD) -> Any:
    """The same nested value with a few changes."""
    whole = json.loads(json.dumps(value))
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        places = list(_places(whole))
        if not places:
            return draw.choice(odd)
        holder, key = draw.choice(places)
        kind = draw.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, dict):
            holder[draw.choice(("", "x", "format", "kind", "name"))] = holder.pop(key)
        elif kind == 2:
            other, place = draw.choice(places)
            with suppress(LookupError, TypeError):
                holder[key] = json.loads(json.dumps(other[place]))
        elif kind == 3 and isinstance(holder, list):
            holder.insert(key, deepcopy(draw.choice(odd)))
        else:
            holder[key] = deepcopy(draw.choice(odd))
    return whole if draw.random() > 0.01 else draw.choice(odd)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every entry of every list and object."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in list(items):
        yield value, key
        yield from _places(entry)


YAML = (
    *("1", "2", "3", "0.5", "false"),
    *("", "~", "x", "-1", "0", "1e300", "1e-3", ".nan", ".inf", "9" * 5000, "0x" + "f" * 5000, "1:60:99", "true"),
    *("2020-13-45", "2020-01-02", "!!int ''", "!!int x", "!!float ''", "!!bool x", "!!timestamp x", "!!binary x"),
    *("!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str 3", "!!python/name:os.system", "!x y", "!!null x"),
    *("&a [1]", "*a", "&a [*a]", "<<: {x: 1}", "[" * 3000, "{" * 3000, "[[[[[[[[[0.5, 0.5]]]]]]]]]", "{a: {b: 1}}"),
    *("'", '"', "|", ">-", "- - -", "? [a]", "%TAG", "---", "...", "[0.5, 0.5]", "[[0.5, 0.5], [1, 0]]", "a" * 5000),
    *("dirichlet:nan", "dirichlet:1e300", "groups:5,5", "groups:@", "0.5,0.5;", "sweep", "equidistant", "\u2028"),
)


def of_yaml(draw: random.Random, content: bytes) -> bytes:
    """Odd scalars in the place of values, lost, repeated and shifted lines, aliases; sometimes other bytes."""
    if draw.random() < 0.2:
        return of_bytes(draw, content)
    lines = content.decode().splitlines()
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(len(lines))
        key, colon, _ = lines[place].partition(": ")
        kind = draw.randrange(6)
        if kind == 0:
            lines.insert(place, draw.choice(lines))
        elif kind == 1:
            lines[place] = " " * draw.choice((1, 2, 3)) + lines[place]
        elif kind == 2:
            names = [f"a{number}: &a{number} {{x: *a{number - 1}, y: *a{number - 1}}}" for number in range(1, 26)]
            lines += ["a0: &a0 [1]", *names[: draw.choice((1, 5, 25))]]
        elif colon:
            lines[place] = f"{key}: {draw.choice(YAML)}"
        else:
            lines[place] = draw.choice(YAML)
    return "\n".join(lines).encode()


def of_tensors(draw: random.Random, content: bytes) -> bytes:
    """A safetensors file of ours with other values or tensors, and a digest that fits them; sometimes other bytes."""
    from fedpareto.experiments.checkpoint import Checkpoint

    if draw.random() < 0.1:
        return of_bytes(draw, content)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        file = Checkpoint.load(path)
        tensors, values = dict(file.tensors), file.values
        if draw.random() < 0.7:
            values = of_plain(draw, values)
        if draw.random() < 0.5:
            name = draw.choice(list(tensors))
            changed = _other_tensor(draw, tensors.pop(name))
            if changed is not None:
                tensors[name if draw.random() < 0.9 else "x"] = changed
        Checkpoint(tensors, values).save(path)
        return path.read_bytes()


def _other_tensor(draw: random.Random, tensor: torch.Tensor) -> torch.Tensor | None:
    kinds: tuple[Callable[[], torch.Tensor | None], ...] = (
        lambda: None,
        lambda: torch.zeros(0),
        lambda: tensor.reshape(-1),
        lambda: tensor[None],
        lambda: tensor[..., :-1] if tensor.ndim else tensor[None],
        lambda: torch.full_like(
            tensor, draw.choice((math.nan, math.inf, 3e38, -1.0)) if tensor.is_floating_point() else 9
        ),
        lambda: tensor.to(draw.choice((torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64))),
    )
    return draw.choice(kinds)()


def of_gzip(draw: random.Random, content: bytes) -> bytes:
    """A text or a compressed text, damaged before or after it was compressed."""
    if content[:2] != b"\x1f\x8b":
        return of_bytes(draw, content)
    if draw.random() < 0.5:
        return of_bytes(draw, content)
    return gzip.compress(of_bytes(draw, gzip.decompress(content)), 1)


# -- readers -------------------------------------------------------------------------------------------------------


def prepare(folder: Path) -> list[Reader]:
    """Small finished and unfinished runs, a deployment and tables in `folder`, and all that reads them."""
    return [
        *_of_runs(folder),
        *_of_models(folder),
        *_of_deployments(folder),
        *_of_tables(folder),
        *_of_messages(folder),
    ]


def _small_run(folder: Path, algorithm: Any, stop: bool = False) -> Path:
    import fedpareto
    from fedpareto.experiments.runner import Stopped
    from fedpareto.problems.synthetic import Synthetic

    with suppress(Stopped):
        fedpareto.run(
            Synthetic(hidden=(3,)),
            algorithm,
            clients=3,
            rounds=2,
            seeds=1,
            learner={"epochs": 1},
            engine={"threads": 1, "chunk": 64},
            out=folder,
        )
    if stop:
        (folder / "status.json").write_text('{"status": "stopped", "round": 2, "seconds": 1.0, "message": ""}')
    return folder


def _file_reader(path: Path, name: str, mutate: Mutate, read: Callable[[], object], *more: Path) -> Reader:
    """Of a file in a folder that is otherwise whole."""
    kept = {one: one.read_bytes() for one in more}

    def again(content: bytes) -> object:
        for one, whole in kept.items():
            one.write_bytes(whole)
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            return read()
        finally:
            path.write_bytes(before)

    return Reader(name, (path.read_bytes(),), mutate, again)


def _of_runs(folder: Path) -> list[Reader]:
    from fedpareto.experiments import runner
    from fedpareto.experiments.runner import Stopped
    from fedpareto.experiments.spec import Draft
    from fedpareto.report import reading, terminal

    run = _small_run(folder / "run", "fedpref")
    open_run = _small_run(folder / "open", "fedpref", stop=True)
    files = [
        open_run / name for name in ("metrics.jsonl", "checkpoint.safetensors", "status.json", "run.json", "spec.yaml")
    ]

    def show() -> object:
        loaded = reading.load(run)
        terminal.plain(loaded)
        return terminal.show(loaded, 80), terminal.front_in_terminal(loaded, width=78, height=18)

    def resume() -> object:
        with suppress(Stopped):
            return runner.resume(open_run, stop=lambda: True)

    def served() -> object:
        return _predicted(run)

    spec = run / "spec.yaml"
    return [
        _file_reader(spec, "spec.yaml", of_yaml, lambda: Draft.read(spec).finish()),
        _file_reader(run / "run.json", "run.json (show)", of_json, show),
        _file_reader(run / "run.json", "run.json (serve)", of_json, served),
        _file_reader(run / "status.json", "status.json (show)", of_json, show),
        _file_reader(run / "solutions.json", "solutions.json (show)", of_json, show),
        _file_reader(run / "solutions.json", "solutions.json (serve)", of_json, served),
        _file_reader(run / "inputs.json", "inputs.json (serve)", of_json, served),
        _file_reader(run / "metrics.jsonl", "metrics.jsonl (show)", of_lines, show),
        _file_reader(files[0], "metrics.jsonl (resume)", of_lines, resume, *files),
        _file_reader(files[1], "checkpoint (resume)", of_tensors, resume, *files),
    ]


def _predicted(path: Path) -> object:
    """What `predict` and `/front` do with a run or a model."""
    from fedpareto.serving import predictions, runs

    source = runs.load(path)
    model = source.conditioned(source.clients[0] if isinstance(source, runs.SavedRun) else None)
    columns = model.card.inputs.columns
    rows = [{name: 0.5 if kind == "number" else "a" for name, kind in columns.items()}]
    m = len(model.card.objectives)
    found = predictions.predict(model, rows, [1 / m] * m)
    return found, model.points, model.describe([1 / m] * m)


def _of_models(folder: Path) -> list[Reader]:
    from fedpareto.algorithms.praffl import PraFFL
    from fedpareto.serving import files, runs

    conditioned = _small_run(folder / "praffl", PraFFL(body_epochs=1, head_epochs=1, sampled=2, hypernetwork=(4, 4)))
    whole = []
    path = folder / "model.safetensors"
    for run, client in ((folder / "run", None), (conditioned, 0)):
        files.save(runs.load(run).conditioned(client), path)
        whole.append(path.read_bytes())

    def read(content: bytes) -> object:
        path.write_bytes(content)
        return _predicted(path)

    return [Reader("exported model", tuple(whole), of_tensors, read)]


def _of_deployments(folder: Path) -> list[Reader]:
    import pandas

    from fedpareto.deploy import certificates, health
    from fedpareto.deploy.create import create
    from fedpareto.deploy.layout import Deployment, NodeFolder
    from fedpareto.deploy.status import NodeStatus, ServerStatus
    from fedpareto.experiments.spec import Draft
    from fedpareto.problems.fairness.schema import TableSchema

    random_numbers = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "hired": random_numbers.choice(["no", "yes"], 60),
            "gender": random_numbers.choice(["f", "m"], 60),
            "age": random_numbers.integers(18, 65, 60),
            "town": random_numbers.choice(["north", "south", None], 60),
        }
    )
    schema = TableSchema.of(frame, "hired", ["gender", "age"], privileged={"age": "age>=40"})
    deployment = create(folder / "federation", schema, Draft({"rounds": 3}), [], 2, "127.0.0.1", 18443)
    node = deployment.node(0)
    ServerStatus.begin(state="training", round=1, rounds=3, heard={"0": 1.0}, told=[1]).save(deployment.server)
    NodeStatus.begin(state="training", warnings=[{"time": "t", "message": "m"}]).save(node)

    def fits() -> object:
        found = TableSchema.read(node / "schema.json")
        problems = found.problems(frame)
        if problems:
            return problems
        table = found.labelled(frame, "the table")
        return [found.groups(table, one.name) for one in found.sensitive], found.encode(table.frame), found.inputs()

    def server_status() -> object:
        return [health.of_server(Deployment.open(deployment.folder)).text(as_json) for as_json in (True, False)]

    def node_status() -> object:
        return [health.of_node(NodeFolder.open(node)).text(as_json) for as_json in (True, False)]

    key = certificates.load_key(node / "node.key")
    known = {certificates.load_public(deployment.public_key(number)): number for number in range(2)}
    headers = json.dumps(certificates.signed(key)).encode()
    certificates.OLDEST = math.inf  # They are signed once, and on a busy machine their turn comes much later.

    def signer(content: bytes) -> object:
        said = json.loads(content)
        return certificates.signer({str(name): str(value) for name, value in said.items()}, known)

    return [
        _file_reader(node / "schema.json", "schema.json", of_json, fits),
        _file_reader(node / "node.json", "node.json", of_json, node_status),
        _file_reader(deployment.folder / "deployment.json", "deployment.json", of_json, server_status),
        _file_reader(deployment.server / "status.json", "status.json (server)", of_json, server_status),
        _file_reader(node / "status.json", "status.json (node)", of_json, node_status),
        _file_reader(node / "spec.yaml", "spec.yaml (node)", of_yaml, lambda: NodeFolder.open(node).spec()),
        Reader("signed headers", (headers,), _of_headers, signer),
    ]


def _of_headers(draw: random.Random, content: bytes) -> bytes:
    """Texts instead of a key, a time or a signature."""
    headers = json.loads(content)
    for _ in range(draw.choice((1, 1, 2))):
        name = draw.choice(list(headers) or ["x"])
        if draw.random() < 0.1:
            headers.pop(name, None)
        else:
            text = of_bytes(draw, str(headers.get(name, "")).encode()).decode("latin-1")
            headers[name] = draw.choice((text, text, *map(str, ODD[:20]), "0001-01-01T00:00:00+23:59"))
    return json.dumps(headers).encode()


TABLE = "hired,gender,age,town\n" + "".join(
    f"{'yes' if row % 3 else 'no'},{'fm'[row % 2]},{20 + row % 40},{['north', 'süd', '', '?'][row % 4]}\n"
    for row in range(50)
)


def _of_tables(folder: Path) -> list[Reader]:
    import pandas

    from fedpareto.core.inputs import Input, InputSchema
    from fedpareto.problems.fairness.sources import Source
    from fedpareto.serving import runs, tables
    from fedpareto.serving.predictions import predict

    content = TABLE.encode()
    csv_file, parquet = folder / "table.csv", folder / "table.parquet"
    csv_file.write_bytes(content)
    pandas.read_csv(csv_file).to_parquet(parquet)
    model = runs.load(folder / "run").conditioned()
    columns = model.card.inputs.columns
    asked = ",".join(columns) + "\n" + (",".join(["0.5"] * len(columns)) + "\n") * 20
    schema = InputSchema((Input("age", "number"), Input("town", "value", value="north"), Input("town", "missing")))

    def read_csv(content: bytes) -> object:
        csv_file.write_bytes(content)
        return Source(str(csv_file)).read()

    def read_parquet(content: bytes) -> object:
        parquet.write_bytes(content)
        return Source(str(parquet)).read()

    def read_rows(content: bytes) -> object:
        csv_file.write_bytes(content)
        if b"town" in content:
            return schema.encode(tables.read_rows(csv_file, schema))
        return predict(model, tables.read_rows(csv_file, model.card.inputs), [0.5, 0.5])

    return [
        Reader("CSV, CSV.gz", (content, gzip.compress(content)), of_gzip, read_csv),
        Reader("Parquet", (parquet.read_bytes(),), of_bytes, read_parquet),
        Reader("rows of predict", (asked.encode(), content), of_bytes, read_rows),
    ]


def _of_messages(folder: Path) -> list[Reader]:
    from fedpareto.core.messages import Failure, Reply, Task
    from fedpareto.engines.flower import wire
    from fedpareto.engines.flower.private import Moment, PrivateStore
    from fedpareto.engines.flower.wire import Answer, Envelope, Hello, Job, Result

    model = torch.linspace(0, 1, 10)
    task = Task(1, 2, {"model": model}, "train", lane=0)
    reply, failure = Reply(1, 2, {"model": model}, "train", 0), Failure(1, 2, "no", "train", 0)
    contents = {
        "envelope": wire.encode_envelope(Envelope("f", 1, "n", (Job(0, 2, 0, (task,), {"model": model}, True),))),
        "answer": wire.encode_answer(Answer("f", 1, "n", (Result(0, (reply,), (failure,), torch.ones(2, 2), None),))),
        "hello": wire.encode_hello(Hello("f", 1, "n", ("train",), {"schema": "x"})),
    }
    whole = []
    for kind, content in contents.items():
        arrays = content.array_records.get(wire.TENSORS, {})
        plain = {
            "kind": kind,
            "header": json.loads(content.config_records[wire.HEADER][wire.HEADER]),
            "arrays": {name: [one.dtype, list(one.shape), one.stype, one.data.hex()] for name, one in arrays.items()},
        }
        whole.append(json.dumps(plain).encode())

    def decode(content: bytes) -> object:
        try:
            message, kind = _message(content)
        except (TypeError, ValueError):
            return None  # Flower has no such message.
        return {"envelope": wire.decode_envelope, "answer": wire.decode_answer, "hello": wire.decode_hello}[kind](
            message
        )

    store = PrivateStore(folder / "private")
    store.keep(0, 0, Moment(1, 0), {"model": model, "momentum": model})
    (path,) = (folder / "private").glob("*.safetensors")
    return [
        Reader("wire messages", tuple(whole), _of_message, decode, (UserError, wire.Malformed)),
        _file_reader(path, "private state", of_bytes, lambda: store.before(0, 0, Moment(2, 0))),
    ]


def _of_message(draw: random.Random, content: bytes) -> bytes:
    """A message whose header or arrays are not what they were."""
    plain = json.loads(content)
    part = draw.choice(("header", "header", "arrays"))
    if part == "header" and draw.random() < 0.3:
        text = of_bytes(draw, json.dumps(plain["header"]).encode()).decode("latin-1")
        return json.dumps(plain | {"header": text}).encode()
    return json.dumps(plain | {part: of_plain(draw, plain[part])}).encode()


def _message(content: bytes) -> tuple[Any, str]:
    """The Flower message that a mutated description means, as Flower's own decoder would make it."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    from fedpareto.engines.flower import wire

    plain = json.loads(content)
    header = plain["header"]
    text = header if isinstance(header, str) else json.dumps(header)
    records: dict[str, Any] = {wire.HEADER: ConfigRecord({wire.HEADER: text})}
    found = {}
    arrays = plain["arrays"] if isinstance(plain["arrays"], dict) else {}
    for name, one in arrays.items():
        array = Array(dtype="float32", shape=(0,), stype=wire.STYPE, data=b"")
        entries = one if isinstance(one, list) else [one]
        for key, value in zip(("dtype", "shape", "stype"), entries, strict=False):
            setattr(array, key, tuple(value) if isinstance(value, list) else value)
        data = entries[3] if len(entries) > 3 else ""
        with suppress(ValueError, TypeError):
            array.data = bytes.fromhex(data)
        found[name] = array
    if found:
        records[wire.TENSORS] = ArrayRecord(found)
    return RecordDict(records), str(plain["kind"])


# -- the command ---------------------------------------------------------------------------------------------------

SHARES = {"(resume)": 0.3, "(show)": 0.6}
"""Of a reader's part of the inputs: these build a run, or a page, for each."""


def shares(readers: list[Reader], inputs: int) -> dict[str, int]:
    """How many inputs each reader gets."""
    weights = {reader.name: SHARES.get(reader.name.rpartition(" ")[2], 1.0) for reader in readers}
    total = sum(weights.values())
    return {name: math.ceil(inputs * weight / total) for name, weight in weights.items()}


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="only this one; may be given several times")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that should not be as they are")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    folder = Path(tempfile.mkdtemp())
    try:
        return _all(prepare(folder), options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _all(readers: list[Reader], options: argparse.Namespace) -> int:
    chosen = [reader for reader in readers if not options.reader or reader.name in options.reader]
    parts = shares(chosen, options.inputs)
    print("| reader | inputs | used | refused | tracebacks | hangs | slowest, s |\n|---|---|---|---|---|---|---|")
    total = Count()
    for reader in chosen:
        count = fuzz(reader, parts[reader.name], options.seed)
        _say(reader.name, count)
        for what, content in count.found.items():
            print(f"{reader.name}: {what} ({count.tracebacks[what]})", file=sys.stderr)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                name = "".join(letter if letter.isalnum() else "-" for letter in f"{reader.name} {what}")
                (options.keep / name).write_bytes(content)
        for name in ("inputs", "used", "refused", "hangs"):
            setattr(total, name, getattr(total, name) + getattr(count, name))
        total.tracebacks += count.tracebacks
        total.slowest = max(total.slowest, count.slowest)
    _say("all", total)
    return int(bool(total.hangs or total.tracebacks))


def _say(name: str, count: Count) -> None:
    numbers = (count.inputs, count.used, count.refused, count.tracebacks.total(), count.hangs)
    print(f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} | {count.slowest:.2f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
