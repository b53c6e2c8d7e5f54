"""A gate that is open, before whatever stands in Flower's place."""

from __future__ import annotations

import ssl

from fedpareto.deploy import certificates
from fedpareto.deploy.gate import Gate
from fedpareto.engines.flower.launch import free_ports


def opened(deployment, upstream, schema="fingerprint"):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(deployment.server / "server.pem", deployment.server / "server.key")
    keys = {certificates.load_public(deployment.public_key(number)): number for number in range(3)}
    gate = Gate(
        ("127.0.0.1", free_ports(1)[0]),
        ("127.0.0.1", upstream),
        keys,
        lambda: "training",
        schema,
        context,
        ssl.create_default_context(cafile=deployment.authority),
    )
    gate.open()
    return gate
