"""What a deployment says to people and to other programs: a page, start commands, compose files, systemd units."""

from __future__ import annotations

import shlex
from pathlib import Path

from fedpareto.deploy.layout import Deployment, is_loopback

IMAGE = "fedpareto-flower"
"""What the compose files call the image; the page says how to build it."""


def of_server(deployment: Deployment, place: Path) -> dict[str, str]:
    """By file name. `place` is where the folder lies in the end."""
    command = f"fedpareto server resume {shlex.quote(str(place))}"
    return {
        "README.md": _page(deployment),
        "start-server.sh": _script('fedpareto server resume "$here" "$@"'),
        "compose.yaml": _compose_server(deployment),
        "systemd/fedpareto-server.service": _unit(f"server of {deployment.name}", command, place),
    }


def of_node(deployment: Deployment, number: int, place: Path) -> dict[str, str]:
    """By file name. `place` is where the folder lies if it stays on this machine."""
    command = "fedpareto node up . --data table.csv --preference preference.txt"
    return {
        "start.sh": _script('fedpareto node up "$here" "$@"'),
        "compose.yaml": _compose_node(deployment, number),
        "fedpareto-node.service": _unit(f"node {number} of {deployment.name}", command, place),
    }


def _script(command: str) -> str:
    return f'#!/bin/sh\nhere=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)\nexec {command}\n'


def _unit(what: str, command: str, place: Path) -> str:
    return f"""\
[Unit]
Description=fedpareto: {what}
After=network-online.target
Wants=network-online.target

[Service]
# Its own user, who owns the folder and nothing else; change it if it is called otherwise. Change the folder too, here
# and below, if it lies elsewhere, and name the program with its path if it is in an environment of its own.
User=fedpareto
UMask=0077
WorkingDirectory={place}
ExecStart=/usr/bin/env {command} --log-format json
Restart=on-failure
RestartSec=10
# A wrong table or a refused key: trying again would not help.
RestartPreventExitStatus=2
# Being stopped is no failure; it lasts until the round under way ends, and Flower's processes are needed for that.
SuccessExitStatus=143
KillMode=mixed
TimeoutStopSec=10min
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full
ProtectHome=read-only
ReadWritePaths={place}

[Install]
WantedBy=multi-user.target
"""


def _compose_server(deployment: Deployment) -> str:
    # Loopback of a container is not that of the machine, so there the two must be one.
    network = (
        "network_mode: host" if is_loopback(deployment.host) else f'ports: ["{deployment.port}:{deployment.port}"]'
    )
    return f"""\
services:
  server:
    image: {IMAGE}
    command: [fedpareto, server, resume, /deployment]
    volumes: [".:/deployment"]
    {network}
    restart: on-failure
    stop_signal: SIGTERM
    stop_grace_period: 10m  # The round under way ends first.
"""


def _compose_node(deployment: Deployment, number: int) -> str:
    network = "    network_mode: host\n" if is_loopback(deployment.host) else ""
    return f"""\
services:
  node-{number}:
    image: {IMAGE}
    command: [fedpareto, node, up, /node, --data, /data/table.csv, --preference, /node/preference.txt]
    volumes: [".:/node", "${{TABLE:?say where the table lies}}:/data/table.csv:ro"]
{network}    restart: on-failure
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
  and schema. Hand it over on a safe way, then delete it here.
- `server`: for the server alone. Its keys, the nodes' public keys, logs. `ca.key` signs new server certificates and is
  needed for nothing else; it may be kept elsewhere.
- `spec.yaml`, `schema.json`: for everybody. What is trained, and the columns of the table.
- `run`: the run, once it has begun: metrics, checkpoints, models. `fedpareto show run`

## Starting

The server: `./start-server.sh`, or `docker compose up`, or the unit in `systemd`.

Each node, with its own table and its own preference (one weight for each goal):
`./start.sh --data table.csv --preference 0.7,0.3`; or `TABLE=./table.csv docker compose up`, or its unit, both with the
preference in the file `preference.txt`. Table and preference never leave the node.

The compose files want an image of the name `{IMAGE}`; in a checkout of fedpareto:

    printf 'FROM python:3.12-slim\\nCOPY . /src\\nRUN pip install "/src[flower,parquet]"\\n' > Dockerfile
    docker build -t {IMAGE} .

## Afterwards

- `fedpareto server status .` tells who is connected and how far the run is.
- `fedpareto server stop .` stops it after the round under way.
- `fedpareto server resume .` goes on, also after a crash. Nodes reconnect by themselves.
- `fedpareto server renew .` makes a new server certificate, which is valid for a year. Nodes need nothing new for it.

At the end each node finds its model in its folder, and uses it there:
`fedpareto predict node-0 --preference 0.7,0.3 --input rows.csv`, or `fedpareto serve node-0`.
"""
