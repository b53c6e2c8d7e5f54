"""How long it takes to refuse a token says nothing of the token."""

from __future__ import annotations

import ast
import asyncio
import hmac
import re

import pytest

from fedpareto_page.access import Guard
from fedpareto_serve.request_checks import Gate
from sources import ROOT, SOURCES

SECRET = re.compile(r"token|bearer|password|cookie", re.IGNORECASE)


def names(node):
    return [
        one.id if isinstance(one, ast.Name) else one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.Attribute)
    ]


def test_no_secret_is_compared_letter_by_letter():
    """`==` of texts ends at the first letter that differs."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                both = [node.left, *node.comparators]
                is_constant = any(isinstance(one, ast.Constant) or names(one) == ["TOKEN"] for one in both)
                if not is_constant and any(SECRET.search(name) for one in both for name in names(one)):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    assert found == []


def request(token):
    return {
        "type": "http",
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost"),
            (b"authorization", b"Bearer " + token),
            (b"cookie", b"fedpareto-80=" + token),
        ],
    }


@pytest.mark.parametrize(
    "front", [lambda app: Guard(app, "right", ["localhost"]), lambda app: Gate(app, token="right")]
)
def test_tokens_are_compared_as_digests_of_one_length_in_constant_time(front, monkeypatch):
    compared, passed = [], []
    constant_time = hmac.compare_digest

    def watched(*both):
        compared.append(both)
        return constant_time(*both)

    async def app(scope, receive, send):
        passed.append(scope["headers"])

    async def body():
        return {"type": "http.request", "body": b""}

    async def answer(message):
        pass

    monkeypatch.setattr(hmac, "compare_digest", watched)
    tokens = (b"right", b"", b"righ", b"rightt", b"right" * 1000, b"\xff")
    for token in tokens:
        asyncio.run(front(app)(request(token), body, answer))
    assert passed == [request(b"right")["headers"]]
    assert len(compared) == len(tokens)
    assert {len(one) for both in compared for one in both} == {32}
