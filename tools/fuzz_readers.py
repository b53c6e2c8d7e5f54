"""What `fuzz.py` tries: everything that reads what others wrote, each with good inputs."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fuzz_stand_in
import numpy as np
from fuzz_mutations import ODD, Mutate, of_bytes, of_gzip, of_json, of_lines, of_tensors, of_yaml

from fedpareto.config.errors import UserError


@dataclass(frozen=True)
class Reader:
    """Something that reads what others wrote."""

    name: str
    whole: tuple[bytes, ...]
    """Good inputs, from which others are made."""
    mutate: Mutate
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (UserError,)


DEPLOYMENT = ("cryptography", "h11", "pandas")
GROUPS: dict[str, tuple[str, ...]] = {
    "fuzz_readers:_of_runs": (),
    "fuzz_readers:_of_pages": ("fastapi",),
    "fuzz_readers:_of_models": (),
    "fuzz_readers:_of_deployments": DEPLOYMENT,
    "fuzz_readers:_of_tables": ("pandas",),
    "fuzz_readers:_of_parquet": ("pandas", "pyarrow"),
    "fuzz_messages:readers": ("flwr",),
    "fuzz_space:readers": ("zstandard",),
    "fuzz_links:readers": ("fastcrc",),
    "fuzz_models:readers": ("onnx",),
    "fuzz_orbits:readers": ("sgp4",),
    "fuzz_readers:_of_missions": ("matplotlib", "fastcrc"),
    "fuzz_http:of_servers": ("fastapi", "httptools"),
    "fuzz_http:of_gates": (*DEPLOYMENT, "httptools"),
    "fuzz_archives:readers": ("PIL",),
    "fuzz_files:of_node": (*DEPLOYMENT, "flwr"),
    "fuzz_files:of_page": (*DEPLOYMENT, "fastapi"),
    "fuzz_files:of_agreements": ("zstandard", "typer"),
    "fuzz_files:of_secure_sums": ("zstandard",),
}
"""What makes readers, and the packages that they need; later ones may use the runs and deployments of earlier ones."""


def absent() -> dict[str, str]:
    """Those that cannot be made here, with a package that is missing."""
    found = {group: [name for name in needed if find_spec(name) is None] for group, needed in GROUPS.items()}
    return {group: missing[0] for group, missing in found.items() if missing}


def prepare(folder: Path) -> list[Reader]:
    """Small finished and unfinished runs, a deployment and tables in `folder`, and all that reads them."""
    fuzz_stand_in.for_moocore()
    found: list[Reader] = []
    left_out = absent()
    for group in GROUPS:
        if group not in left_out:
            module, _, name = group.partition(":")
            found += getattr(import_module(module), name)(folder)
    return found


def small_run(folder: Path, algorithm: Any, stop: bool = False) -> Path:
    """A run of two rounds, finished or (with `stop`) as one that was stopped."""
    import fedpareto
    from fedpareto.config.interrupts import Stopped
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


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """For a while an object has other attributes: a reader must leave nothing behind in a process that goes on."""
    before = {name: getattr(owner, name) for name in values}
    try:
        for name, value in values.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def file_reader(path: Path, name: str, mutate: Mutate, read: Callable[[], object], *more: Path) -> Reader:
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


def _of_missions(folder: Path) -> list[Reader]:
    from fedpareto.runs import runner
    from fedpareto.spec.draft import Draft
    from fedpareto_space.report import mission, mission_page

    run = folder / "mission"
    engine = {"name": "mission", "shell": "2/1/0", "stations": ["svalbard"], "threads": 1, "chunk": 4}
    runner.start(Draft({"problem": "convex", "rounds": 2, "hours": 4.0, "engine": engine}).finish(), run)

    def page() -> object:
        # Its figures are made, and not drawn: a picture takes most of a second, and reads nothing any more.
        with replaced(mission_page, inline_svg=lambda *_, **__: ""):
            return mission_page.page(mission.read_mission(run))

    return [
        file_reader(run / mission.SKY, "mission.json", of_json, page),
        file_reader(run / mission.LOG, "mission.jsonl", of_lines, page),
    ]


def _of_runs(folder: Path) -> list[Reader]:
    from fedpareto.campaigns import grid, sweep
    from fedpareto.config.interrupts import Stopped
    from fedpareto.record import reading
    from fedpareto.report import terminal
    from fedpareto.runs import runner
    from fedpareto.spec.draft import Draft

    run = small_run(folder / "run", "fedpref")
    open_run = small_run(folder / "open", "fedpref", stop=True)
    files = [
        open_run / name
        for name in ["metrics.jsonl", "checkpoint.safetensors", "status.json", "run.json", "spec.yaml", "columns.bin"]
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

    spec, listed, record = run / "spec.yaml", folder / "sweep.yaml", folder / sweep.FILE
    listed.write_text("problem: convex\nsweep: {lr: [0.1, 0.2], algorithm: [local, {name: fedprox}], seeds: 2}\n")
    plan = grid.plan([listed])
    sweep.Record(folder, plan)
    return [
        file_reader(spec, "spec.yaml", of_yaml, lambda: Draft.read(spec).finish()),
        file_reader(listed, "sweep.yaml", of_yaml, lambda: grid.plan([listed])),
        file_reader(record, "sweep.json", of_json, lambda: sweep.Record(folder, plan)),
        file_reader(run / "run.json", "run.json (show)", of_json, show),
        file_reader(run / "run.json", "run.json (serve)", of_json, served),
        file_reader(run / "status.json", "status.json (show)", of_json, show),
        file_reader(run / "solutions.json", "solutions.json (show)", of_json, show),
        file_reader(run / "solutions.json", "solutions.json (serve)", of_json, served),
        file_reader(run / "inputs.json", "inputs.json (serve)", of_json, served),
        file_reader(run / "metrics.jsonl", "metrics.jsonl (show)", of_lines, show),
        file_reader(run / "columns.bin", "columns.bin (show)", of_bytes, show),
        file_reader(files[0], "metrics.jsonl (resume)", of_lines, resume, *files),
        file_reader(files[1], "checkpoint (resume)", of_tensors, resume, *files),
    ]


def _of_pages(folder: Path) -> list[Reader]:
    """What the page shows of a folder: a damaged one is an entry with its error, never a page that fails."""
    from fedpareto_page import queries, saved, watch

    run = small_run(folder / "shown", "fedpref")

    def page() -> object:
        shelf = watch.Shelf([run])
        shelf.poll()
        (entry,) = queries.runs(shelf)["runs"]
        if entry["error"]:
            saved.saved(shelf, [entry["id"]])  # As a line of its own.
            raise UserError(entry["error"])
        id, split = entry["id"], entry["held_out"]
        told = queries.about(shelf, id), queries.compare(shelf, [id]), queries.clients(shelf, id, 0, None, [id])
        json.dumps(told, allow_nan=False)
        frames = queries.lines(shelf, id), queries.values(shelf, id, "sent", split), queries.solutions(shelf, id, split)
        return told, frames, queries.film(shelf, id, 0), queries.grid(shelf, id, 0)

    kinds = {"run.json": of_json, "status.json": of_json, "solutions.json": of_json, "metrics.jsonl": of_lines}
    kinds |= {"columns.bin": of_bytes}
    return [file_reader(run / name, f"{name} (page)", mutate, page) for name, mutate in kinds.items()]


def _predicted(path: Path) -> object:
    """What `predict` and `/front` do with a run or a model."""
    from fedpareto_serve import predictions, runs

    source = runs.load(path)
    model = source.conditioned(source.clients[0] if isinstance(source, runs.SavedRun) else None)
    columns = model.card.inputs.columns
    rows = [{name: 0.5 if kind == "number" else "a" for name, kind in columns.items()}]
    m = len(model.card.objectives)
    found = predictions.predict(model, rows, [1 / m] * m)
    return found, model.points, model.describe([1 / m] * m)


def _of_models(folder: Path) -> list[Reader]:
    from fedpareto.algorithms.fronts.praffl import PraFFL
    from fedpareto_serve import files, runs

    conditioned = small_run(folder / "praffl", PraFFL(body_epochs=1, head_epochs=1, sampled=2, hypernetwork=(4, 4)))
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

    from fedpareto.problems.fairness.schema import TableSchema
    from fedpareto.spec.draft import Draft
    from fedpareto_flower.deploy import certificates, health
    from fedpareto_flower.deploy.create import create
    from fedpareto_flower.deploy.layout import Deployment, NodeFolder
    from fedpareto_flower.deploy.status import NodeStatus, ServerStatus

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

    def signer(content: bytes) -> object:
        said = {str(name): str(value) for name, value in json.loads(content).items()}
        with replaced(certificates, OLDEST=math.inf):  # They are signed once, and their turn may come much later.
            return certificates.signer(said, known)

    return [
        file_reader(node / "schema.json", "schema.json", of_json, fits),
        file_reader(node / "node.json", "node.json", of_json, node_status),
        file_reader(deployment.folder / "deployment.json", "deployment.json", of_json, server_status),
        file_reader(deployment.server / "status.json", "status.json (server)", of_json, server_status),
        file_reader(node / "status.json", "status.json (node)", of_json, node_status),
        file_reader(node / "spec.yaml", "spec.yaml (node)", of_yaml, lambda: NodeFolder.open(node).spec()),
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

MACHINES = b"client,speed,up,loss\n0,1e9,1e6,0\n2,2e9,1e6,0.1\n1,5e9,2e6,0.05\n"
TRACE = b"client,start,end\n0,0,100\n1,5,50\n2,0,7.5\n1,60,inf\n2,8,9\n"


def _of_tables(folder: Path) -> list[Reader]:
    from fedpareto.clock.devices import Devices
    from fedpareto.inputs.table import Input, InputSchema
    from fedpareto.problems.fairness.sources import Source
    from fedpareto_serve import runs, tables
    from fedpareto_serve.predictions import predict

    content = TABLE.encode()
    csv_file = folder / "table.csv"
    model = runs.load(folder / "run").conditioned()
    columns = model.card.inputs.columns
    asked = ",".join(columns) + "\n" + (",".join(["0.5"] * len(columns)) + "\n") * 20
    schema = InputSchema((Input("age", "number"), Input("town", "value", value="north"), Input("town", "missing")))

    def read_csv(content: bytes) -> object:
        csv_file.write_bytes(content)
        return Source(str(csv_file)).read()

    def read_rows(content: bytes) -> object:
        csv_file.write_bytes(content)
        if b"town" in content:
            return schema.encode(tables.read_rows(csv_file, schema))
        return predict(model, tables.read_rows(csv_file, model.card.inputs), [0.5, 0.5])

    def read_devices(content: bytes) -> object:
        csv_file.write_bytes(content)
        if b"start" in content:
            fleet = Devices("equal", availability=str(csv_file)).fleet(np.arange(3), 0)
        else:
            fleet = Devices("file", file=str(csv_file)).fleet(np.arange(3), 0)
        out = fleet.outward(np.arange(3), 1.0, 1e9, 1e6)
        return fleet.homeward(np.arange(3), out.computed, 1e6)

    return [
        Reader("CSV, CSV.gz", (content, gzip.compress(content)), of_gzip, read_csv),
        Reader("rows of predict", (asked.encode(), content), of_bytes, read_rows),
        Reader("devices and traces", (MACHINES, TRACE), of_bytes, read_devices),
    ]


def _of_parquet(folder: Path) -> list[Reader]:
    import pandas

    from fedpareto.problems.fairness.sources import Source

    parquet = folder / "table.parquet"
    pandas.read_csv(io.StringIO(TABLE)).to_parquet(parquet)

    def read(content: bytes) -> object:
        parquet.write_bytes(content)
        return Source(str(parquet)).read()

    return [Reader("Parquet", (parquet.read_bytes(),), of_bytes, read)]
