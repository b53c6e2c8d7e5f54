"""What `fuzz.py` tries of smaller files (keys, preferences, tokens, matrices, agreements) and of secure sums."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz_mutations import ODD, of_bytes, of_json
from fuzz_readers import Reader, file_reader
from fuzz_space import of_cbor

from fedpareto.config.errors import UserError

MATRIX = """
problem: convex
clients: 4
rounds: 1
seeds: [3]
engine: {threads: 1, chunk: 64}
matrix: {algorithm: [fedavg, fedpref], attack: [none, sign-flip], defence: [none, median]}
"""


CHOSEN = (*("3", "0.5,0.5", "1e400", "[1", "0x10", "none", "file", "local", "median", "a,b", "0=1,0"), 3, [0.5, 0.5])
"""Values that a user might type into a form."""


def of_fixed(draw: random.Random, content: bytes) -> bytes:
    """Other bytes, as many as before: the length was checked already."""
    changed = of_bytes(draw, content)
    return (changed + content[len(changed) :])[: len(content)]


def of_node(folder: Path) -> list[Reader]:
    """Of a node: what it reads of its own folder and of its operator."""
    from fedpareto.engines.single import Task
    from fedpareto_flower.deploy import certificates
    from fedpareto_flower.deploy.layout import Deployment, NodeFolder
    from fedpareto_flower.deploy.node import _progress, read_preference
    from fedpareto_flower.engine.private import Ledger

    deployment = Deployment.open(folder / "federation")
    node = deployment.node(0)
    home = NodeFolder.open(node)
    preference, progress = folder / "preference.txt", node / "progress.json"
    preference.write_text("0.5,0.3,0.2\n" if len(home.spec().problem.objectives) == 3 else "0.7,0.3\n")
    progress.write_text('{"round": 3}')
    ledger, model = Ledger(folder / "ledger"), torch.linspace(0, 1, 10)
    task = Task(1, 2, {"model": model}, "train", lane=0)
    ledger.keep(0, task, {"model": model})
    (answer,) = (folder / "ledger").glob("*.safetensors")

    def told() -> object:
        if not _progress(node):
            raise UserError("no round is known")
        return _progress(node)

    return [
        file_reader(preference, "preferences", of_bytes, lambda: read_preference(home, str(preference))),
        file_reader(progress, "progress.json", of_json, told),
        file_reader(node / "node.key", "node.key", of_bytes, lambda: certificates.load_key(node / "node.key")),
        file_reader(deployment.public_key(0), "public keys", of_bytes, lambda: _public(deployment)),
        file_reader(deployment.authority, "certificates", of_bytes, lambda: certificates.end_of(deployment.authority)),
        file_reader(folder / "ledger" / "answered.json", "answered.json", of_json, lambda: ledger.recall(0, task)),
        file_reader(answer, "kept answers", of_bytes, lambda: ledger.recall(0, task)),
    ]


def _public(deployment: Any) -> object:
    from fedpareto_flower.deploy import certificates

    return certificates.load_public(deployment.public_key(0))


def of_page(folder: Path) -> list[Reader]:
    """The page's readers of entries that are no runs, and of its token."""
    from fedpareto_audit import matrix
    from fedpareto_page import access, form, form_worker, queries
    from fedpareto_page.watch import Shelf

    spec, made, token = folder / "matrix.yaml", folder / "matrices" / "m", folder / "page.token"
    spec.write_text(MATRIX)
    plan = matrix.Matrix.read(spec)
    matrix.run(plan, made, 1, lambda line: None, lambda: False)
    token.write_text("a" * 32)

    def shown(root: Path, answer: Any) -> object:
        shelf = Shelf([root])
        shelf.poll()
        (other,) = shelf.others.values()
        if other.plain["error"]:
            raise UserError(other.plain["error"])
        return json.dumps(answer(shelf, other.id), allow_nan=False)

    def kept() -> object:
        found = access._kept_token(token)
        if not found:
            raise UserError("no token")
        return found

    def resumed() -> object:
        return matrix._Store(made, plan).record()

    def chosen(content: bytes) -> object:
        try:
            wanted = form.Wanted.model_validate_json(content)
        except ValueError as problem:  # The application says so.
            raise UserError(str(problem)) from None
        found = form_worker.check(wanted.values, form_worker.outlined)
        if found["error"]:
            raise UserError(found["error"])
        return found

    federation = folder / "federation"
    return [
        file_reader(made / "matrix.json", "matrix.json (page)", of_json, lambda: shown(made, queries.matrix)),
        file_reader(made / "matrix.json", "matrix.json (run)", of_json, resumed),
        file_reader(
            federation / "deployment.json",
            "deployment.json (page)",
            of_json,
            lambda: shown(federation, queries.federation),
        ),
        file_reader(
            federation / "server" / "status.json",
            "status.json (server, page)",
            of_json,
            lambda: shown(federation, queries.federation),
        ),
        file_reader(token, "page.token", of_bytes, kept),
        Reader("choices (form)", _choices(), of_choices, chosen),
    ]


def _choices() -> tuple[bytes, ...]:
    """A choice of every algorithm and of every problem, with all parameters as they are."""
    from fedpareto_page import form_worker

    found, choices = form_worker.form(), []
    sections = {one["name"]: one["parameters"] for one in found["sections"]}
    for kind in ("algorithm", "problem"):
        for one in found[f"{kind}s"]:
            values = {kind: one["name"]} | {
                f"{section}.{each['name']}": each["default"]
                for section, parameters in {kind: one["parameters"], **sections}.items()
                for each in parameters
            }
            choices.append(json.dumps({"values": values}).encode())
    return tuple(choices)


def of_choices(draw: random.Random, content: bytes) -> bytes:
    """A few of them, some with other values; sometimes other bytes."""
    if draw.random() < 0.1:
        return of_bytes(draw, content)
    name, *others = json.loads(content)["values"].items()
    values = dict([name, *draw.sample(others, draw.choice((1, 2, 3)))])
    for key in draw.sample(list(values), 1):
        values[draw.choice((key, key, key.partition(".")[0]))] = draw.choice((*ODD, *CHOSEN))
    return json.dumps({"values": values}).encode()


def of_agreements(folder: Path) -> list[Reader]:
    """Of space links: an agreement as a file, and a message in one."""
    from fedpareto_space.cli import app, simulate
    from fedpareto_space.wire import golden
    from fedpareto_space.wire.messages import encode

    path = folder / "agreement"
    accept = encode(golden.every()["accept"])
    path.write_bytes(accept)

    def digits(draw: random.Random, content: bytes) -> bytes:
        changed = of_cbor(draw, bytes.fromhex(content.decode()))
        return changed.hex().encode() if draw.random() < 0.5 else of_bytes(draw, content)

    def message(content: bytes) -> object:
        path.write_bytes(content)
        return app._message(path)

    return [
        file_reader(path, "agreements", of_cbor, lambda: simulate._agreement(path)),
        Reader("messages in files", (accept.hex().encode(),), digits, message),
    ]


def of_secure_sums(_: Path) -> list[Reader]:
    """What a client and the server of a secure sum are told by others; lengths were checked on the way."""
    from fedpareto.contract.secure_sum import SecureSum
    from fedpareto.trust import secure_client
    from fedpareto.trust.secure_client import DROPPED, SURVIVED, Party
    from fedpareto.trust.secure_server import Unmasking

    clients, count, how = [0, 1, 2, 3], 5, SecureSum("masked")
    made = [secure_client.advertised() for _ in clients]
    told = np.stack([np.frombuffer(public, dtype=np.uint8) for _, public in made])

    def party(own: int, told: np.ndarray) -> Party:
        peers = [other for other in clients if other != own]
        return Party(own, made[own][0], peers, told[peers], 7)

    letters, own_shares = zip(*(party(own, told).dealt(how.needed, 3) for own in clients), strict=True)
    received = np.stack([letters[other][[one for one in clients if one != other].index(0)] for other in (1, 2, 3)])
    sent = told.tobytes() + received.tobytes() + bytes([SURVIVED, SURVIVED, SURVIVED])

    def of_client(content: bytes) -> object:
        found = np.frombuffer(content, dtype=np.uint8)
        keys, rest = found[: told.size].reshape(told.shape), found[told.size :]
        if not secure_client.sound(keys).all():
            raise UserError("keys that nobody can work with")
        own = party(0, keys)
        own.dealt(how.needed, 3)
        shares = own.opened(rest[: received.size].reshape(received.shape), how.needed)
        own.masked(np.arange(count), rest[: received.size].reshape(received.shape), how.ring.words, b"")
        return own.revealed(rest[received.size :], shares, own_shares[0], how.needed)

    def opened(own: int) -> np.ndarray:
        peers = [other for other in clients if other != own]
        mine = np.stack([letters[other][[one for one in clients if one != other].index(own)] for other in peers])
        flags = np.array([DROPPED if other == 3 else SURVIVED for other in peers], dtype=np.uint8)
        shares = party(own, told).opened(mine, how.needed)
        return party(own, told).revealed(flags, shares, own_shares[own], how.needed)

    revealed = np.stack([opened(own) for own in (0, 1, 2)])
    peers = np.array([[other for other in clients if other != own] for own in clients])
    survived = np.array([True, True, True, False])

    def of_server(content: bytes) -> object:
        said = np.frombuffer(content, dtype=np.uint8).reshape(revealed.shape)
        end = Unmasking(np.array(clients), told, peers, np.ones(4, dtype=bool), survived, 7, b"", how)
        return end.left(np.array([0, 1, 2]), said, count)

    return [
        Reader("secure sums (client)", (sent,), of_fixed, of_client),
        Reader("secure sums (server)", (revealed.tobytes(),), of_fixed, of_server),
    ]
