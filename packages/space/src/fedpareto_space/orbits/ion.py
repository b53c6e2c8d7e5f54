"""Contact plans as text of ION, NASA's implementation of bundles: `a contact +t0 +t1 n1 n2 rate` (ionrc(5)).

ION's rates are bytes a second, its ranges light seconds. It reads whole seconds only: write `plan.whole()` for it. The
names of nodes are kept in comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fedpareto.config.errors import UserError
from fedpareto.config.files import read_bytes
from fedpareto_space.orbits.plans import Contact, ContactPlan, Range, in_order

NAME = re.compile(r"# node (\d+) is (\S.*)")
MOMENT = "%Y/%m/%d-%H:%M:%S"
ELSEWHERE = frozenset("1ehilmrstvwx?^")
"""Commands of an `ionrc` file that add nothing to a plan."""


def to_text(plan: ContactPlan) -> str:
    """A plan as ION's commands; numbers are written in full, so that reading them gives the same plan."""
    lines = [f"# node {node} is {name}" for node, name in plan.names.items()]
    lines += [f"a contact {_times(one)} {one.a} {one.b} {_number(one.rate / 8)}" for one in plan.contacts]
    lines += [f"a range {_times(one)} {one.a} {one.b} {_number(one.seconds)}" for one in plan.ranges]
    return "".join(f"{line}\n" for line in lines)


def _times(one: Contact | Range) -> str:
    return f"+{_number(one.start)} +{_number(one.end)}"


def _number(value: float) -> str:
    """The shortest text that is read as this number, without an exponent."""
    if value == int(value):
        return str(int(value))
    return np.format_float_positional(value, trim="-")


def read(path: Path) -> ContactPlan:
    return from_text(read_bytes(path).decode("utf-8", errors="replace"), str(path))


def from_text(text: str, where: str = "plan") -> ContactPlan:
    """The plan in ION's commands; what is wrong comes with its line.

    Other commands of an `ionrc` file are passed over.
    """
    reader = _Reader()
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            reader.take(line)
        except (ValueError, TypeError) as problem:
            raise UserError(f"{where}, line {number}: {problem}") from None
    if not reader.contacts:
        raise UserError(f"{where} holds no contacts; one is, say, 'a contact +0 +600 1 2 1200'")
    return ContactPlan(in_order(reader.contacts), in_order(reader.ranges), reader.names)


@dataclass
class _Reader:
    """Contacts, ranges and names that were read so far."""

    contacts: list[Contact] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    origin: datetime | None = None
    """Moment from which seconds are counted, …"""
    ahead: float = 0.0
    """… and how much later those of the next lines begin."""

    def take(self, line: str) -> None:
        words = line.split()
        if (named := NAME.fullmatch(line.strip())) is not None:
            self.names[int(named[1])] = named[2].strip()
        elif not words or line.startswith("#") or words[0] in ELSEWHERE:
            return
        elif words[0] == "@" and len(words) == 2:
            self._begin(words[1])
        elif words[:2] == ["a", "contact"] and len(words) in (7, 8):
            self._contact(words[2:])
        elif words[:2] == ["a", "range"] and len(words) == 7:
            start, end, a, b, seconds = words[2:]
            self.ranges.append(Range(self._time(start), self._time(end), int(a), int(b), float(seconds)))
        else:
            raise UserError(f"'{line.strip()[:60]}' is not understood; right is, say, 'a contact +0 +600 1 2 1200'")

    def _contact(self, words: list[str]) -> None:
        start, end, a, b, rate, *confidence = words
        if confidence and float(confidence[0]) != 1:
            raise UserError(
                f"a contact with a confidence of {confidence[0]}; only certain ones (1) can be planned with"
            )
        self.contacts.append(Contact(self._time(start), self._time(end), int(a), int(b), 8 * float(rate)))

    def _begin(self, text: str) -> None:
        if text.startswith("+"):
            self.ahead += float(text)
            return
        moment = _moment(text)
        self.origin = self.origin or moment
        self.ahead = (moment - self.origin).total_seconds()

    def _time(self, text: str) -> float:
        if text.startswith("+"):
            return self.ahead + float(text)
        if self.origin is None:
            raise UserError(f"{text} is an absolute time; a line '@ {text}' before it would say where seconds begin")
        return (_moment(text) - self.origin).total_seconds()


def _moment(text: str) -> datetime:
    try:
        return datetime.strptime(text, MOMENT).replace(tzinfo=UTC)
    except ValueError:
        raise UserError(f"'{text}' is no time; right is +600 or 2026/01/31-12:00:00") from None
