"""Write the tables of docs/space-protocol.md that follow from the code: messages, rows, words, refusals, examples.

    python tools/protocol_tables.py

Each stands between `<!-- tables: NAME -->` and `<!-- end -->`. A test compares them with the code.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

from fedpareto.config.source import field_docs
from fedpareto.contract import registry
from fedpareto.spec.draft import Draft
from fedpareto.spec.settings import settings_of
from fedpareto_space.session.agreement import terms_of
from fedpareto_space.wire import golden, rows
from fedpareto_space.wire.kinds import Kind, Later, Many, Maybe, Word, spelled
from fedpareto_space.wire.manifest import Dtype, Manifest, Tensor
from fedpareto_space.wire.messages import MESSAGES, Extension, encode
from fedpareto_space.wire.refusals import Refusal
from fedpareto_space.wire.schema import OneOf, Record, Struct, entries
from fedpareto_space.wire.terms import ROWS, Row
from fedpareto_space.wire.vocabulary import FaultKind, Outcome, Reason, Role, Type

DOCUMENT = Path(__file__).parents[1] / "docs" / "space-protocol.md"
PART = re.compile(r"(?<=<!-- tables: )(\w+)( -->\n)(.*?)(?=<!-- end -->)", re.DOTALL)
DIGITS = 96
"""In a line of an example."""
CLIENTS = 4
"""Of the run whose rows are shown for each algorithm."""
WORDS = (
    *(Type, Role, rows.Content, rows.Action, rows.ServerChange, rows.Weighting, rows.Duplicates, rows.OverStale),
    *(rows.Rejoin, FaultKind, Outcome, Reason, Dtype),
)


def holds(kind: Kind) -> str:
    """What a field can hold, in a cell."""
    if isinstance(kind, Later):
        return "a trigger"
    if isinstance(kind, Maybe):
        return f"{holds(kind.of)}; may be left out"
    if isinstance(kind, Word):
        return f"a word of `{kind.words.__name__}`"
    if isinstance(kind, Struct):
        return f"`{kind.cls.__name__}`"
    if isinstance(kind, OneOf):
        return "; ".join(f"[{code}{_values(cls)}] `{name}`" for code, (name, cls) in enumerate(kind.forms))
    if isinstance(kind, Many):
        return f"{kind.least} to {kind.most} × {holds(kind.of)}"
    return kind.says()


def _values(cls: type[Record]) -> str:
    return "".join(f", {entry.label}" for entry in entries(cls))


def fields(cls: type[Record]) -> Iterator[str]:
    """A record's table."""
    docs = field_docs(cls)
    yield from ("| key | field | holds | meaning |", "|---|---|---|---|")
    for entry in entries(cls):
        yield f"| {entry.number} | `{entry.label}` | {holds(entry.kind)} | {docs.get(entry.name, '')} |"
    yield ""


def first_line(cls: type) -> str:
    """Of its docstring."""
    return (cls.__doc__ or "").splitlines()[0]


def messages() -> Iterator[str]:
    """Every message, and what is in several."""
    for kind, cls in MESSAGES.items():
        yield from (f"### {kind.name} ({int(kind)})", "", first_line(cls), "", *fields(cls))
    for part in (Extension, Manifest, Tensor):
        yield from (f"### {part.__name__}", "", first_line(part), "", *fields(part))


def tables() -> Iterator[str]:
    """Every row."""
    for row in ROWS:
        yield from (
            f"### Table 6.{row.place[0]}, row {row.place[1]}: {row.title}",
            "",
            f"In YAML: `{row.side}: {row.name}`.",
        )
        yield from ("", *_row(row))
    yield from ("### Bound", "", first_line(rows.Bound), "", *fields(rows.Bound))


def _row(row: Row) -> Iterator[str]:
    if isinstance(row.kind, OneOf):
        yield from ("| code | form | values | meaning |", "|---|---|---|---|")
        for code, (name, cls) in enumerate(row.kind.forms):
            values = "; ".join(f"`{entry.label}`: {holds(entry.kind)}" for entry in entries(cls))
            yield f"| {code} | `{name}` | {values} | {first_line(cls)} |"
        yield ""
    elif isinstance(row.kind, Many) and isinstance(row.kind.of, Struct):
        yield from (f"A list of {row.kind.least} to {row.kind.most}, each with", "", *fields(row.kind.of.cls))
    elif isinstance(row.kind, Struct):
        yield from fields(row.kind.cls)


def words() -> Iterator[str]:
    """Every word with its number."""
    yield from ("| words | numbers |", "|---|---|")
    for each in WORDS:
        yield f"| `{each.__name__}` | {', '.join(f'{int(word)} {spelled(word)}' for word in each)} |"
    yield ""


def refusals() -> Iterator[str]:
    """Every code."""
    yield from ("| code | name | meaning |", "|---|---|---|")
    docs = _docs_of_members(Refusal)
    yield from (f"| {int(code)} | `{code.name}` | {docs[code.name]} |" for code in Refusal)
    yield ""


def _docs_of_members(cls: type[IntEnum]) -> dict[str, str]:
    (whole,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(whole, ast.ClassDef)
    found, name = {}, ""
    for part in whole.body:
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            name = part.targets[0].id
        elif isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant) and name:
            found[name] = str(part.value.value)
    return found


def examples() -> Iterator[str]:
    """The bytes of an example of each message."""
    for name, message in golden.every().items():
        digits = encode(message).hex()
        yield from (f"### Example: {name}", "", f"{len(digits) // 2} bytes.", "", "```text")
        yield from (digits[start : start + DIGITS] for start in range(0, len(digits), DIGITS))
        yield from ("```", "")


def algorithms() -> Iterator[str]:
    """What each algorithm of the library submits, and what its rows are."""
    yield from ("| rule | client steps, and the tensors that they submit | content | minimum |", "|---|---|---|---|")
    for name, cls in registry.algorithms().items():
        if not cls.__module__.startswith("fedpareto."):
            continue
        spec = Draft({"algorithm": name, "problem": "convex", "clients": CLIENTS}, {}).finish()
        terms = terms_of(spec)
        steps = spec.algorithm.reply_shapes(settings_of(spec)[0])
        said = "; ".join(f"`{step}`: {', '.join(shapes) or 'nothing'}" for step, shapes in steps.items())
        yield f"| `{name}` | {said} | {spelled(terms.format.content)} | {terms.aggregation.minimum} |"
    yield ""


PARTS = {
    "algorithms": algorithms,
    "messages": messages,
    "rows": tables,
    "words": words,
    "refusals": refusals,
    "examples": examples,
}


def written(text: str) -> str:
    """The document with its tables as the code has them."""
    return PART.sub(lambda part: f"{part[1]}{part[2]}\n{chr(10).join(PARTS[part[1]]())}\n", text)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
