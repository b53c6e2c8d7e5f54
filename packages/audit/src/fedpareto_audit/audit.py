"""`fedpareto audit`: attacks on one's own configuration, with it as it is and with protections, in one record."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpareto.campaigns.parallel import ONE_TO_A_CORE, Jobs, Pieces, side_by_side
from fedpareto.config.errors import UnknownName, UserError
from fedpareto.config.files import json_text, make_folder, write_atomically
from fedpareto.config.version import VERSION
from fedpareto.contract.federation import setting_of
from fedpareto.contract.problem import SupervisedProblem
from fedpareto.spec.draft import Draft
from fedpareto.spec.spec import PRIVATE, Spec
from fedpareto_audit.advice import advice
from fedpareto_audit.inversion_attack import reconstruct
from fedpareto_audit.membership_attack import infer_members
from fedpareto_audit.preference_attack import infer_preferences
from fedpareto_audit.world import Effort, Found, World

FILE, PICTURE = "audit.json", "audit.png"
ATTACKS: Mapping[str, Callable[[World, bool], Found]] = {
    "preference": infer_preferences,
    "membership": infer_members,
    "inversion": reconstruct,
}
AS_SET, SECURE_SUM, NOISE = "as set", "secure-sum", "noise"


@dataclass(frozen=True)
class Protection:
    """One way to protect a federation."""

    name: str
    settings: tuple[str, ...] = ()
    """Settings of the spec."""

    @classmethod
    def parse(cls, text: str) -> Protection:
        """`noise=0.1`, `secure-sum`, a parameter of the spec such as `batch_size=512`, or several of them with +."""
        settings: list[str] = []
        for part in text.split("+"):
            name, equals, value = (word.strip() for word in part.partition("="))
            if name == NOISE and equals:
                settings += ["privacy.kind=local", f"privacy.noise={value}"]
            elif equals:
                settings.append(part)
            elif part == SECURE_SUM:
                settings.append("secure_sum.kind=masked")
            else:
                raise UserError(
                    f"--protect {text}: write noise=0.1, {SECURE_SUM}, a parameter of the spec such as batch_size=512, "
                    f"or several as in noise=0.1+{SECURE_SUM}"
                )
        return cls(text, tuple(settings))


@dataclass(frozen=True)
class Audit:
    """The plan of an audit: a configuration, attacks and protections."""

    base: Draft
    attacks: tuple[str, ...] = tuple(ATTACKS)
    protections: tuple[Protection, ...] = ()
    effort: Effort = Effort()

    def __post_init__(self) -> None:
        for attack in self.attacks:
            if attack not in ATTACKS:
                raise UnknownName("attack", attack, ATTACKS)
        _must_fit(self.spec)

    @cached_property
    def spec(self) -> Spec:
        """The spec as it is trained: masks are left out, since a sum is the same without."""
        return _unmasked(self.base).finish()

    @cached_property
    def refused(self) -> dict[str, str]:
        """Protections that this configuration cannot have, and why."""
        found = {}
        for one in self.protections:
            try:
                self._draft(one).finish()
            except UserError as problem:
                found[one.name] = re.sub("^--set [^ ]*: ", "", str(problem))
        return found

    def _draft(self, protection: Protection) -> Draft:
        return Draft(self.base.values).with_settings(protection.settings)

    @cached_property
    def worlds(self) -> list[dict[str, Any]]:
        """Trainings as plain values: protections that only change what the server sees share one."""
        kinds: list[dict[str, Any]] = []
        for one in (Protection(AS_SET), *self.protections):
            if one.name in self.refused:
                continue
            values = _unmasked(self._draft(one)).values
            summed = self._draft(one).finish().secure_sum.kind != "none"
            known = next((kind for kind in kinds if kind["draft"] == values), None)
            if known is None:
                kinds.append({"draft": values, "views": {one.name: summed}})
            else:
                known["views"][one.name] = summed
        attacks = [attack for attack in self.attacks if not self.fits(attack)]
        more = {"attacks": attacks, "effort": self.effort}
        return [{**kind, **more, "seed": seed} for seed in self.spec.seeds for kind in kinds]

    def fits(self, attack: str) -> str:
        """Say why an attack has no meaning here; empty if it has."""
        if attack == "preference" and len(self.spec.problem.objectives) < 2:
            return f"'{self.spec.problem.name}' has one objective, so there is nothing to prefer"
        if attack == "preference" and self.spec.federation(self.spec.seeds[0]).common_preference is not None:
            return "all clients share one preference, which is public"
        return ""


def _unmasked(draft: Draft) -> Draft:
    return Draft({**draft.values, "secure_sum": "none"}, draft.where)


def _must_fit(spec: Spec) -> None:
    if not isinstance(spec.problem, SupervisedProblem):
        raise UserError(f"an audit needs clients with rows; '{spec.problem.name}' has none")
    if spec.preferences == PRIVATE or spec.engine.remote:
        raise UserError(
            "an audit trains all clients on this machine, and the rows of a deployment are elsewhere; audit the same "
            "spec on rows that you have, with --set engine=local"
        )
    small = setting_of(spec.problem, range(2), spec.seeds[0], spec.rounds)
    if not any(spec.algorithm.reply_shapes(small).values()):
        raise UserError(f"the clients of {spec.algorithm.name} send nothing, so a server learns nothing from them")


# -- the work ------------------------------------------------------------------------------------------------------


def read(path: Path, settings: Sequence[str]) -> Draft:
    """Read the draft of a spec file or of a run's folder, with `key=value` texts applied."""
    if path.is_dir():
        from fedpareto.record.store import RunFolder

        draft = Draft(RunFolder(path).spec().to_mapping())
    else:
        draft = Draft.read(path)
    # An attack reads updates by a step size that it knows.
    return Draft({**draft.values, "step": "fixed"}, draft.where).with_settings(settings).with_engine(ONE_TO_A_CORE)


def run(audit: Audit, out: Path, jobs: Jobs, one_more: Callable[[], None], stop: Callable[[], bool]) -> dict[str, Any]:
    """Run all attacks under all protections for all seeds; write the record and the picture."""
    unfit = {attack: why for attack in audit.attacks if (why := audit.fits(attack))}
    if len(unfit) == len(audit.attacks):
        raise UserError(f"no attack fits: {'; '.join(unfit.values())}")
    make_folder(out)
    answers: dict[int, Answer] = {}
    for number, answer in side_by_side(Pieces(_attacked, audit.worlds, out), jobs, stop):
        answers[number] = answer
        unfit |= answer.unfit
        one_more()
    record = _record(audit, [answers[number] for number in sorted(answers)], unfit)
    write_atomically(out / FILE, json_text(record, indent=1) + "\n")
    _draw(record, out)
    return record


@dataclass(frozen=True)
class Answer:
    """The findings in one world."""

    found: Mapping[str, Found]
    """Findings by protection."""
    useful: float
    unfit: Mapping[str, str]
    """Attacks that turned out to have no meaning here, and why."""


def _attacked(out: Path, world: Mapping[str, Any], stop: Callable[[], bool]) -> Answer:
    ready = World(Draft(world["draft"]).finish(), world["seed"], world["effort"])
    ready.play(stop)
    found: dict[str, Found] = {}
    unfit: dict[str, str] = {}
    for name, summed in world["views"].items():
        found[name] = {}
        for attack in world["attacks"]:
            try:
                found[name] |= ATTACKS[attack](ready, summed)
            except UserError as problem:
                unfit[attack] = str(problem)
    return Answer(found, ready.usefulness(), unfit)


def _record(audit: Audit, answers: Sequence[Answer], unfit: Mapping[str, str]) -> dict[str, Any]:
    results: dict[str, list[Found]] = {}
    useful: dict[str, list[float]] = {}
    for answer in answers:
        for name, found in answer.found.items():
            results.setdefault(name, []).append(found)
            useful.setdefault(name, []).append(answer.useful)
    names = list(dict.fromkeys(name for found in results.values() for one in found for name in one))
    goal = audit.spec.problem.objectives[0]
    measures = [
        {
            "name": name,
            "guess": statistics.fmean(one[name][1] for found in results.values() for one in found if name in one),
            "values": {
                protection: _summary([one[name][0] for one in found if name in one])
                for protection, found in results.items()
                if any(name in one for one in found)
            },
        }
        for name in names
    ]
    record = {
        "fedpareto": VERSION,
        "spec": audit.base.finish().to_mapping(),
        "effort": asdict(audit.effort),
        "protections": [AS_SET, *(one.name for one in audit.protections)],
        "refused": audit.refused,
        "unfit": dict(unfit),
        "measures": measures,
        "usefulness": {
            "name": goal.name,
            "maximise": goal.maximise,
            "values": {protection: _summary(values) for protection, values in useful.items()},
        },
    }
    return {**record, "advice": advice(record)}


def _summary(values: Sequence[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "deviation": deviation, "seeds": list(values)}


def _draw(record: Mapping[str, Any], out: Path) -> None:
    from fedpareto_audit.figures import audit_figure, render

    figure = audit_figure(record)
    for kind in ("png", "svg"):
        write_atomically((out / PICTURE).with_suffix(f".{kind}"), render(figure, kind))
