"""From nothing to the folders of a federation: one for the server, one to hand over to each node."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
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
from fedpareto_flower.deploy import certificates
from fedpareto_flower.deploy.layout import Deployment, NodeFolder, check_address, is_loopback, private_folder
from fedpareto_flower.deploy.names import DEPLOYMENT, SCHEMA, SPEC
from fedpareto_flower.deploy.specs import finish

ENGINE = "flower-local"
JOIN_TIMEOUT = 7 * 24 * 3600.0
"""Default seconds that a server waits for all nodes: parties may take days to join."""

LONGEST_NAME = 40
"""Letters of a folder's name that become part of the federation's; certificates and messages limit its length."""

IMAGE = "fedpareto-flower"
"""The name of the image in the compose files; the README says how to build it."""
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"
TABLE_OPTIONS = "--data table.csv --preference preference.txt"


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
    for name, text in _files_of_server(deployment, place).items():
        _write_file(folder / name, text)


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
    for name, text in _files_of_node(deployment, number, place / folder.name).items():
        _write_file(folder / name, text)


def _write_file(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    write_atomically(path, text)
    if path.suffix == ".sh":
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


# -- the files around a deployment: a README, start commands, compose files, systemd units ----------------------------


def _files_of_server(deployment: Deployment, place: Path) -> dict[str, str]:
    """Texts by file name. `place` is the folder's final path."""
    programs = Path(sys.executable).parent  # The server runs here; so does what made the folder.
    return {
        "README.md": _page(deployment),
        "start-server.sh": _script('fedpareto server resume "$here" "$@"'),
        "compose.yaml": _compose_server(deployment),
        "systemd/fedpareto-server.service": _unit(f"server of {deployment.name}", "server resume .", place, programs),
    }


def _files_of_node(deployment: Deployment, number: int, place: Path) -> dict[str, str]:
    """Texts by file name. `place` is the folder's path if it stays on this machine."""
    programs = Path("/opt/fedpareto/bin")
    command = f"node up . {TABLE_OPTIONS}"
    return {
        "README.md": _page_of_node(deployment, number),
        "start.sh": _script('fedpareto node up "$here" "$@"'),
        "compose.yaml": _compose_node(deployment, number),
        "fedpareto-node.service": _unit(f"node {number} of {deployment.name}", command, place, programs),
    }


def _script(command: str) -> str:
    return f'#!/bin/sh\nhere=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)\nexec {command}\n'


def _unit(what: str, command: str, place: Path, programs: Path) -> str:
    return f"""\
# Copy it to /etc/systemd/system. Three things may have to be changed: the user, who owns the folder and nothing else;
# the folder, in two places; and the PATH, which begins with where the program fedpareto is installed.
[Unit]
Description=fedpareto: {_for_systemd(what)}
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
User=fedpareto
UMask=0077
WorkingDirectory={_for_systemd(str(place))}
Environment="PATH={_for_systemd(str(programs))}:{USUAL_PATH}"
ExecStart=/usr/bin/env fedpareto {command} --log-format json
Restart=on-failure
RestartSec=10
# A wrong table or a refused key: trying again would not help.
RestartPreventExitStatus=2
# Being stopped is no failure; stopping waits for the current round, which needs Flower's processes.
KillSignal=SIGTERM
KillMode=mixed
SuccessExitStatus=143
TimeoutStopSec=10min

# It writes to its folder only, and cannot become another user.
ReadWritePaths="{_for_systemd(str(place))}"
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""


def _for_systemd(text: str) -> str:
    """Escape %, which begins a specifier in a unit."""
    return text.replace("%", "%%")


def _compose_server(deployment: Deployment) -> str:
    # Loopback of a container is not that of the machine, so there the two must be one.
    network = (
        "network_mode: host" if is_loopback(deployment.host) else f'ports: ["{deployment.port}:{deployment.port}"]'
    )
    fixed = "".join(f'\n      - "./{name}:/deployment/{name}:ro"' for name in (SPEC, SCHEMA, DEPLOYMENT))
    return f"""\
services:
  server:
    image: {IMAGE}
    command: [fedpareto, server, resume, /deployment, --log-format, json]
    volumes:
      - ".:/deployment"{fixed}
    {network}
    healthcheck:  # Nodes that are away are not this container's fault.
      test: [CMD, fedpareto, server, status, /deployment, --alive]
{_TIMES}
    stop_grace_period: 10m  # The current round ends first.
{_container()}"""


def _compose_node(deployment: Deployment, number: int) -> str:
    network = "    network_mode: host\n" if is_loopback(deployment.host) else ""
    return f"""\
services:
  node-{number}:
    image: {IMAGE}
    command:
      [fedpareto, node, up, /node, --data, /data/table.csv, --preference, /node/preference.txt, --log-format, json]
    volumes:
      - ".:/node"
      - "${{TABLE:?say where the table lies}}:/data/table.csv:ro"
{network}    healthcheck:  # A server that is away is not this container's fault.
      test: [CMD, fedpareto, node, status, /node, --alive]
{_TIMES}
{_container()}"""


_TIMES = """\
      interval: 30s
      timeout: 20s
      start_period: 2m
      retries: 3"""


def _container() -> str:
    """Options of both containers: each owns nothing but the folder, restarts after a crash, and its log stays short."""
    return f"""\
    user: "${{FEDPARETO_USER:-{os.getuid()}:{os.getgid()}}}"  # Who owns this folder, as $(id -u):$(id -g).
    restart: on-failure
    init: true
    read_only: true
    tmpfs: [/tmp]
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    logging:
      driver: json-file
      options: {{max-size: 10m, max-file: "5"}}
"""


def _page_of_node(deployment: Deployment, number: int) -> str:
    return f"""\
# Node {number} of the federation {deployment.name}

This folder makes you one of {deployment.nodes} nodes that learn together; the server is at
{deployment.host}:{deployment.port}. It holds your private key: keep it to yourself. Your table and your preference
never leave your machine.

1. Install fedpareto with its extra `flower`.
2. Check your table, here in this folder: `fedpareto node check . --data table.csv`
3. Join, with one weight for each objective: `./start.sh --data table.csv --preference 0.7,0.3`; or
   `TABLE=./table.csv docker compose up`, or the unit `fedpareto-node.service`, both with the preference in the file
   `preference.txt`. The same command joins again after a stop or a crash.
4. `fedpareto node status .` shows how far it is; exit code 0: all is well, 3: not running,
   4: the server does not answer.
5. At the end your model is here: `fedpareto predict . --preference 0.7,0.3 --input rows.csv`, or `fedpareto serve .`

`spec.yaml` says what is trained, `schema.json` which columns the table has.
"""


def _page(deployment: Deployment) -> str:
    security = (
        "This deployment is INSECURE: plain text and no authentication, for trials on one machine."
        if deployment.insecure
        else "All traffic is encrypted (TLS), and only nodes whose keys were made here can join."
    )
    last = deployment.nodes - 1
    return f"""\
# The federation {deployment.name}

{deployment.nodes} nodes learn together; the server is at {deployment.host}:{deployment.port}.
{security}

## Who gets what

- `node-0` … `node-{last}`: one folder for each party, with its private key, the server's certificate authority, spec
  and schema. Hand it over securely, then delete it here.
- `server`: for the server alone. Its keys, the nodes' public keys, logs. `ca.key` signs new server certificates and is
  needed for nothing else; it may be kept elsewhere.
- `spec.yaml`, `schema.json`: for all parties. What is trained, and the columns of the table.
- `run`: the run, once it has begun: metrics, checkpoints, models. `fedpareto show run`

## Starting

The server: `./start-server.sh`, or `docker compose up`, or the unit in `systemd`.

Each node, with its own table and its own preference (one weight for each objective):
`./start.sh --data table.csv --preference 0.7,0.3`; or `TABLE=./table.csv docker compose up`, or its unit, both with the
preference in the file `preference.txt`. Table and preference never leave the node.

The compose files use an image named `{IMAGE}`; in a checkout of fedpareto: `docker build -t {IMAGE} .`
They run as the user who made this folder; if another owns it now, say so: `FEDPARETO_USER=$(id -u):$(id -g)`.

## Afterwards

- `fedpareto server status .` shows which nodes are connected and the run's progress; each party runs
  `fedpareto node status .` in its own folder. With `--json` for monitoring; exit code 0: all is well, 3: not running,
  4: others are missing.
- `fedpareto server stop .` stops it after the current round.
- `fedpareto server resume .` continues the run, also after a crash. Nodes reconnect by themselves.
- `fedpareto server renew .` makes a new server certificate, which is valid for a year. Nodes need nothing new for it.

At the end each node finds its model in its folder, and uses it there:
`fedpareto predict node-0 --preference 0.7,0.3 --input rows.csv`, or `fedpareto serve node-0`.
"""
