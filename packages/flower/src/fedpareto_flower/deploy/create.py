"""From nothing to the folders of a federation: one for the server, one to hand over to each node."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.files import write_atomically, write_secret
from fedpareto.problems.fairness import tables
from fedpareto.problems.fairness.goals import listed
from fedpareto.problems.fairness.schema import TableSchema
from fedpareto.problems.fairness.sources import Source
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import Spec
from fedpareto_flower.deploy import certificates, templates
from fedpareto_flower.deploy.layout import Deployment, NodeFolder, check_address, private_folder
from fedpareto_flower.deploy.names import SCHEMA, SPEC
from fedpareto_flower.deploy.specs import finish

ENGINE = "flower-local"
JOIN_TIMEOUT = 7 * 24 * 3600.0
"""Default seconds that a server waits for all nodes: parties may take days to join."""

LONGEST_NAME = 40
"""Letters of a folder's name that become part of the federation's; certificates and messages limit its length."""


def create(
    folder: Path,
    schema: TableSchema,
    draft: Draft,
    settings: list[str],
    nodes: int,
    host: str,
    port: int,
    insecure: bool = False,
) -> Deployment:
    """Writes a deployment, or nothing at all. `draft` and `settings` define what is trained, and how."""
    check_address(host, port, insecure)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is not empty; nothing was written: name another folder")
    half = folder.with_name(f".{folder.name}.part-{secrets.token_hex(4)}")
    name = f"{folder.resolve().name[:LONGEST_NAME]}-{secrets.token_hex(4)}"
    deployment = Deployment(half, name, host, port, nodes, insecure)
    try:
        private_folder(half)
        _write(deployment, schema, draft, settings, folder.resolve())
        folder.parent.mkdir(parents=True, exist_ok=True)
        os.replace(half, folder)
    except OSError as problem:
        raise UserError(f"{folder} cannot be made: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return Deployment.open(folder)


def schema_of(
    path: Path, label: str, sensitive: Sequence[str], positive: str, privileged: Sequence[str], drop: Sequence[str]
) -> TableSchema:
    """The schema of a table; names come one by one, with commas between them, or both."""
    for option, given, meaning in (
        ("label", label, "column to predict"),
        ("sensitive", sensitive, "sensitive columns"),
    ):
        if not given:
            raise UserError(f"--schema-from {path} needs --{option}, the table's {meaning}")
    columns = listed((",".join(sensitive),))
    rules = {}
    for rule in listed((",".join(privileged),)):
        column, operator, value = tables.split_rule(rule)
        column = column or columns[0]
        if column not in columns:
            raise UnknownName("sensitive column in --privileged", column, columns)
        rules[column] = f"{column}{operator}{value}"
    table = Source(str(path)).read()
    for name, mixed in table.mixed.items():
        if name not in listed((",".join(drop),)):
            texts = ", ".join(f"'{text}'" for text in list(mixed.texts)[:3])
            raise UserError(
                f"the column '{name}' of {path.name} has {mixed.count:,} rows with texts ({texts}) among "
                f"{mixed.numbers:,} numbers; leave them empty in the file, or leave the column out: --drop {name}"
            )
    return TableSchema.of(table.frame, label, columns, positive, rules, listed((",".join(drop),)), path.name)


def _write(deployment: Deployment, schema: TableSchema, draft: Draft, settings: list[str], place: Path) -> None:
    """Write all files; `place` is the folder's final path."""
    folder = deployment.folder
    write_atomically(folder / SCHEMA, schema.to_json())
    write_atomically(folder / SPEC, _spec_text(deployment, schema, draft, settings))
    deployment.save()
    private_folder(deployment.server)
    (deployment.server / "nodes").mkdir()
    if not deployment.insecure:
        _write_authority(deployment)
        write_server_certificate(deployment)
    for number in range(deployment.nodes):
        _write_node(deployment, number, place)
    for name, text in templates.of_server(deployment, place).items():
        _write_paper(folder / name, text)


def _spec_text(deployment: Deployment, schema: TableSchema, draft: Draft, settings: list[str]) -> str:
    """The spec, checked with the schema in its place, with every parameter spelled out."""
    problem = {
        "name": "silo",
        "schema": str((deployment.folder / SCHEMA).resolve()),
        "sensitive": [attribute.name for attribute in schema.sensitive],
    }
    values: dict[str, Any] = {
        **draft.values,
        "problem": problem,
        "clients": deployment.nodes,
        "engine": {"name": ENGINE, "join_timeout": JOIN_TIMEOUT},
    }
    spec = finish(Draft(values).with_settings(settings))
    _check_kept(Spec.to_mapping(spec), values)
    written = spec.to_mapping()
    if written["privacy"]["kind"] != "none" and written["privacy"]["randomness"] == "seed":
        raise UserError(
            "privacy.randomness is seed, which all parties know, so each could subtract the noise; "
            "in a deployment say --set privacy.randomness=system"
        )
    text: str = yaml.safe_dump(written, sort_keys=False, allow_unicode=True)
    return text


def _check_kept(written: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Refuse settings of what follows from the deployment itself."""
    if written["clients"] != values["clients"]:
        raise UserError("--set clients=…: their number is that of the nodes, --nodes")
    for section, key in (("problem", "name"), ("problem", "schema"), ("engine", "name")):
        if written[section][key] != values[section][key]:
            raise UserError(f"--set {section}…: in a deployment its {key} is given")
    if written["problem"]["file"] or written["problem"]["sql"]:
        raise UserError("--set file=…: the rows are at the nodes, see fedpareto node up --data")


def _write_authority(deployment: Deployment) -> None:
    key = certificates.new_key()
    write_secret(deployment.server / "ca.key", certificates.pem(key))
    write_atomically(deployment.authority, certificates.to_pem(certificates.authority(deployment.name, key)))


def write_server_certificate(deployment: Deployment) -> None:
    """A new key and certificate of the server, signed by the deployment's own authority."""
    from cryptography import x509

    signing = certificates.load_key(deployment.server / "ca.key")
    signer = x509.load_pem_x509_certificate(deployment.authority.read_bytes())
    key = certificates.new_key()
    certificate = certificates.server(deployment.host, key, signer, signing)
    write_secret(deployment.server / "server.key", certificates.pem(key))
    write_atomically(deployment.server / "server.pem", certificates.to_pem(certificate))


def _write_node(deployment: Deployment, number: int, place: Path) -> None:
    """Write what one node needs, and nothing of the others or the server."""
    folder = deployment.node(number)
    private_folder(folder)
    server = f"{deployment.host}:{deployment.port}"
    NodeFolder(folder, deployment.name, number, server, deployment.insecure).save()
    for name in (SPEC, SCHEMA):
        shutil.copyfile(deployment.folder / name, folder / name)
    if not deployment.insecure:
        shutil.copyfile(deployment.authority, folder / "ca.pem")
        private, public = certificates.openssh(certificates.new_key())
        write_secret(folder / "node.key", private)
        write_atomically(deployment.public_key(number), public)
    for name, text in templates.of_node(deployment, number, place / folder.name).items():
        _write_paper(folder / name, text)


def _write_paper(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, text)
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
