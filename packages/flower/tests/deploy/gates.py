"""A gate that is open, before whatever stands in Flower's place."""

from __future__ import annotations

import ssl
import threading
from contextlib import contextmanager
from datetime import datetime

from fedpareto_flower.deploy import certificates
from fedpareto_flower.deploy.flower_proxy import Gate
from fedpareto_flower.engine.launch import free_ports


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


@contextmanager
def moved(monkeypatch, by, thread=None):
    """The wall clock with which requests are signed and judged is moved, in one thread alone if it is named."""

    class Moved(datetime):
        @classmethod
        def now(cls, zone=None):
            here = thread in (None, threading.get_ident())
            return datetime.now(zone) + by if here else datetime.now(zone)

    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", Moved)
        yield
