"""The spec of a deployment: preferences are known to the nodes alone, and the schema is beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedpareto.config.errors import UserError
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import PRIVATE, Spec
from fedpareto_flower.deploy.names import SCHEMA, SPEC


@dataclass(frozen=True)
class PrivateSpec(Spec):
    """A spec of a federation whose preferences are known to the nodes alone."""

    preferences: Any = field(default=PRIVATE, kw_only=True)

    def preferences_of(self, seed: int) -> None:
        """They are not known here."""

    def to_mapping(self) -> dict[str, Any]:
        """Leave out the place of the schema: a deployment that was moved, or is seen by a container, is the same."""
        plain = super().to_mapping()
        return plain | {"problem": plain["problem"] | {"schema": SCHEMA}}


def load_spec(folder: Path) -> PrivateSpec:
    """The spec of a folder, with the schema beside it, wherever the folder is now."""
    draft = Draft.of_record(folder / SPEC)
    problem = draft.values.get("problem")
    if not isinstance(problem, dict) or problem.get("name") != "silo":
        raise UserError(f"{folder / SPEC}: the problem of a deployment is 'silo'")
    values = {**draft.values, "problem": {**problem, "schema": str(folder.resolve() / SCHEMA)}}
    return finish(Draft(values, draft.where))


def finish(draft: Draft) -> PrivateSpec:
    """The spec that a draft means, whose preferences can be nothing but private."""
    values = dict(draft.values)
    if values.pop("preferences", PRIVATE) != PRIVATE:
        raise UserError(f"preferences: in a deployment they are {PRIVATE}; each node gives its own when it joins")
    spec = Draft(values, draft.where).finish()
    return PrivateSpec(**{one.name: getattr(spec, one.name) for one in fields(spec)} | {"preferences": PRIVATE})
