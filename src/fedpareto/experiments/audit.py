"""`fedpareto audit`: attacks on one's own configuration, with it as it is and with protections, in one record."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedpareto import __version__
from fedpareto.core.problem import SupervisedProblem
from fedpareto.engines.flower.options import FlowerOptions
from fedpareto.errors import UnknownName, UserError
from fedpareto.experiments.audit_advice import advice
from fedpareto.experiments.audit_attacks import Found, infer_members, infer_preferences
from fedpareto.experiments.audit_inversion import reconstruct
from fedpareto.experiments.audit_world import Effort, World
from fedpareto.experiments.draft import Draft
from fedpareto.experiments.interrupts import Stopped
from fedpareto.experiments.parallel import ONE_TO_A_CORE
from fedpareto.experiments.spec import PRIVATE, Spec
from fedpareto.files import json_text, write_atomically

FILE, PICTURE = "audit.json", "audit.png"
ATTACKS: Mapping[str, Callable[[World, bool], Found]] = {
    "preference": infer_preferences,
    "membership": infer_members,
    "inversion": reconstruct,
}
AS_SET, SECURE_SUM, NOISE = "as set", "secure-sum", "noise"
PROTECTIONS = ("noise=0.01", "noise=0.1", "noise=1", SECURE_SUM)
"""What is tried beside the configuration itself, unless the user says otherwise."""


@dataclass(frozen=True)
class Protection:
    """One way to protect a federation."""

    name: str
    settings: tuple[str, ...] = ()
    """What it sets in the spec."""
    summed: bool = False
    """Whether the server sees only the sum of all replies."""

    @classmethod
    def parse(cls, text: str) -> Protection:
        """`noise=0.1`, `secure-sum`, or a parameter of the spec such as `batch_size=512`."""
        name, equals, value = (part.strip() for part in text.partition("="))
        if name == NOISE and equals:
            return cls(f"{NOISE}={value}", ("privacy.kind=local", f"privacy.noise={value}"))
        if text == SECURE_SUM:
            return cls(SECURE_SUM, summed=True)
        if not equals:
            raise UserError(
                f"--protect {text}: write noise=0.1, {SECURE_SUM}, or a parameter of the spec such as batch_size=512"
            )
        return cls(text, (text,))


@dataclass(frozen=True)
class Audit:
    """What is to be attacked, by what, under which protections."""

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
        """As it is set."""
        return self.base.finish()

    @cached_property
    def specs(self) -> dict[str, Spec | str]:
        """Of each protection, by name; or why there is none."""
        return {AS_SET: self.spec, **{one.name: self._spec(one) for one in self.protections}}

    def _spec(self, protection: Protection) -> Spec | str:
        if protection.summed:
            return self.spec if self.spec.algorithm.needs == "weighted sum" else NEEDS_ROWS
        try:
            return Draft(self.base.values).with_settings(protection.settings).finish()
        except UserError as problem:
            return str(problem).removeprefix(f"--set {protection.settings[0]}: ")

    def fits(self, attack: str) -> str:
        """Why an attack has no meaning here; empty if it has."""
        if attack == "preference" and len(self.spec.problem.objectives) < 2:
            return f"'{self.spec.problem.name}' has one objective, so there is nothing to prefer"
        if attack == "preference" and self.spec.federation(self.spec.seeds[0]).common_preference is not None:
            return "all clients share one preference, which is public"
        return ""


NEEDS_ROWS = "its server works with each client's own update, so it cannot do with a sum"


def _must_fit(spec: Spec) -> None:
    """Raises UserError if there is nothing to attack."""
    if not isinstance(spec.problem, SupervisedProblem):
        raise UserError(f"an audit needs clients with rows; '{spec.problem.name}' has none")
    if spec.preferences == PRIVATE or isinstance(spec.engine, FlowerOptions):
        raise UserError(
            "an audit trains all clients on this machine, and the rows of a deployment are elsewhere; audit the same "
            "spec on rows that you have, with --set engine=local"
        )
    if not any(spec.algorithm.reply_shapes(_small(spec)).values()):
        raise UserError(f"the clients of {spec.algorithm.name} send nothing, so a server learns nothing from them")


def _small(spec: Spec) -> Any:
    from fedpareto.core.federation import setting_of

    return setting_of(spec.problem, range(2), spec.seeds[0], spec.rounds)


# -- the work ------------------------------------------------------------------------------------------------------


def read(path: Path, settings: Sequence[str]) -> Draft:
    """The draft of a spec file or of a run's folder, with `key=value` texts applied."""
    if path.is_dir():
        from fedpareto.experiments.store import RunFolder

        draft = Draft(RunFolder(path).spec().to_mapping())
    else:
        draft = Draft.read(path)
    return draft.with_settings(settings).with_engine(ONE_TO_A_CORE)


def run(audit: Audit, out: Path, one_more: Callable[[], None], stop: Callable[[], bool]) -> dict[str, Any]:
    """All attacks under all protections for all seeds; writes the record and the picture."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"the folder {out} cannot be made: {problem.strerror or problem}") from None
    unfit = {attack: why for attack in audit.attacks if (why := audit.fits(attack))}
    if len(unfit) == len(audit.attacks):
        raise UserError(f"no attack fits: {'; '.join(unfit.values())}")
    results: dict[str, list[Found]] = {}
    useful: dict[str, list[float]] = {}
    protections = {AS_SET: Protection(AS_SET), **{one.name: one for one in audit.protections}}
    for name, spec in audit.specs.items():
        for seed in spec.seeds if isinstance(spec, Spec) else ():
            if stop():
                raise Stopped("stopped")
            assert isinstance(spec, Spec), "looked at above"
            found, value = _one(audit, spec, seed, protections[name].summed, unfit)
            results.setdefault(name, []).append(found)
            useful.setdefault(name, []).append(value)
            one_more()
    record = _record(audit, results, useful, unfit)
    write_atomically(out / FILE, json_text(record, indent=1) + "\n")
    _draw(record, out)
    return record


def cells(audit: Audit) -> int:
    """How many worlds are attacked."""
    return sum(len(spec.seeds) for spec in audit.specs.values() if isinstance(spec, Spec))


def _one(audit: Audit, spec: Spec, seed: int, summed: bool, unfit: dict[str, str]) -> tuple[Found, float]:
    """One world; an attack that turns out not to fit is noted with its reason."""
    world = World(spec, seed, audit.effort)
    world.play()
    found: Found = {}
    for attack in audit.attacks:
        if attack in unfit:
            continue
        try:
            found |= ATTACKS[attack](world, summed)
        except UserError as problem:
            unfit[attack] = str(problem)
    return found, world.usefulness()


def _record(
    audit: Audit, results: Mapping[str, list[Found]], useful: Mapping[str, list[float]], unfit: Mapping[str, str]
) -> dict[str, Any]:
    names = list(dict.fromkeys(name for found in results.values() for one in found for name in one))
    goal = audit.spec.problem.objectives[0]
    measures = []
    for name in names:
        guesses = [one[name][1] for one in results[AS_SET] if name in one]
        measures.append(
            {
                "name": name,
                "guess": statistics.fmean(guesses),
                "values": {
                    protection: _summary([one[name][0] for one in found if name in one])
                    for protection, found in results.items()
                    if any(name in one for one in found)
                },
            }
        )
    record = {
        "fedpareto": __version__,
        "spec": audit.spec.to_mapping(),
        "effort": asdict(audit.effort),
        "protections": list(audit.specs),
        "refused": {name: why for name, why in audit.specs.items() if isinstance(why, str)},
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
    """Mean and deviation over seeds."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "deviation": deviation, "seeds": list(values)}


def _draw(record: Mapping[str, Any], out: Path) -> None:
    from fedpareto.report.audit_figure import audit_figure, render

    figure = audit_figure(record)
    for kind in ("png", "svg"):
        write_atomically((out / PICTURE).with_suffix(f".{kind}"), render(figure, kind))
