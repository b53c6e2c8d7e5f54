"""Mishaps of a mission, as people write them: `lost sat-1-3 at 12`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedpareto.config.errors import UnknownName, UserError

KINDS = {
    "lost": "a satellite is gone for good",
    "dead": "a station hears nobody any more",
    "flip": "a bit flips in what a satellite holds of the model",
    "server": "the server falls silent, and a stand-by takes over",
}
"""Kinds of mishaps."""
EXAMPLES = {"lost": "lost sat-1-3 at 12", "dead": "dead svalbard at 20", "flip": "flip sat-2-1 at 30"}
TEXT = re.compile(r"(?P<kind>[a-z]+)(?:\s+(?P<who>\S+))?\s+at\s+(?P<hours>[-+.\d\w]+)")


@dataclass(frozen=True)
class Mishap:
    """One event."""

    kind: str
    who: str
    """A satellite or a station by name; of the server nothing."""
    hours: float

    @classmethod
    def parse(cls, text: str) -> Mishap:
        found = TEXT.fullmatch(text.strip())
        if found is None:
            raise UserError(f"engine: mishaps has '{text}'; right is, say, 'lost sat-1-3 at 12', in hours")
        kind, who = found["kind"], found["who"] or ""
        if kind not in KINDS:
            raise UnknownName("mishap", kind, KINDS)
        if bool(who) == (kind == "server"):
            example = EXAMPLES.get(kind, "server at 36")
            raise UserError(f"engine: mishaps has '{text}'; right is, say, '{example}'")
        try:
            hours = float(found["hours"])
        except ValueError:
            hours = math.nan
        if not 0 <= hours < math.inf:
            raise UserError(f"engine: mishaps has '{text}'; its time is a number of hours from 0 on")
        return cls(kind, who, hours)

    @property
    def seconds(self) -> float:
        return 3600 * self.hours

    def must_happen(self, satellites: tuple[str, ...], stations: tuple[str, ...], seconds: float) -> None:
        """Raises UserError if there is nobody of that name, or the mission is over before."""
        known = {"lost": satellites, "flip": satellites, "dead": stations}.get(self.kind)
        if known is not None and self.who not in known:
            kind = "station" if self.kind == "dead" else "satellite"
            raise UserError(
                f"engine: mishaps has '{self}', but there is no {kind} of that name; they are {known[0]} to {known[-1]}"
            )
        if self.seconds >= seconds:
            raise UserError(f"engine: mishaps has '{self}', but the mission is over after {seconds / 3600:g} hours")

    def __str__(self) -> str:
        return f"{self.kind} {self.who} at {self.hours:g}".replace("  ", " ")
