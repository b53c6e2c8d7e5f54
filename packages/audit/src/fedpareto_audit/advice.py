"""Conclusions from an audit's figures, in sentences that need no table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LITTLE = 0.1
"""A tenth of the way from guessing to knowing is as good as guessing."""
NEAR_EXACT = 20.0
"""Decibels above the mean image at which an image counts as known."""

WITHHELD = "and privacy.objectives=withheld ends it"

Measure = Mapping[str, Any]

GUESSING = "(guessing: {guess:.2f})"
LEARNT = {
    "preference from updates, error": "a curious server learns a client's preference from its update to within "
    f"{{value:.2f}} {GUESSING}",
    "preference from objectives, error": f"reported objectives tell a preference to within {{value:.2f}} {GUESSING}",
    "membership from update, AUC": "one update tells a client's rows from strangers with an AUC of "
    f"{{value:.2f}} {GUESSING}",
    "membership from final model, AUC": "the final models tell rows that were trained on from strangers with an AUC of "
    f"{{value:.2f}} {GUESSING}",
}


def advice(record: Mapping[str, Any]) -> list[str]:
    """Write one sentence for each attack that succeeds, and one for all that do not."""
    sentences, harmless = [], []
    for measure in record["measures"]:
        name = measure["name"]
        words = _learnt(measure)
        if words is None or "as set" not in measure["values"]:
            continue
        if leaked(measure, "as set") <= LITTLE:
            harmless.append(name)
        else:
            more = f", {WITHHELD}" if "objectives" in name else ""
            sentences.append(f"At these settings {words}; {_remedy(record, measure)}{more}.")
    if harmless:
        sentences.append(f"About as good as guessing: {'; '.join(harmless)}.")
    return sentences


def leaked(measure: Measure, protection: str) -> float:
    """Return how far an attack gets on the way from guessing, 0, to knowing, 1."""
    value, guess, name = measure["values"][protection]["mean"], measure["guess"], measure["name"]
    if name.startswith("preference"):
        return float((guess - value) / guess) if guess else 0.0
    if name.endswith("PSNR"):
        return float((value - guess) / NEAR_EXACT)
    return float((value - guess) / (1 - guess)) if guess < 1 else 0.0


def _learnt(measure: Measure) -> str | None:
    """Name what the attacker learns; None for a measure that says the same as another."""
    name, guess = measure["name"], measure["guess"]
    value = measure["values"].get("as set", {}).get("mean", guess)
    if name in LEARNT:
        return LEARNT[name].format(value=value, guess=guess)
    if name.startswith("whole rows"):
        return f"a gradient of {name.removeprefix('whole rows from ')} gives {value:.0%} of them away exactly"
    if name.endswith("PSNR"):
        of = name.removeprefix("images from ").removesuffix(", PSNR")
        return f"a gradient of {of} gives images away with {value:.0f} dB (the mean image: {guess:.0f} dB)"
    return None


def _remedy(record: Mapping[str, Any], measure: Measure) -> str:
    """Name the protection that costs least among those that bring an attack to guessing."""
    useful = record["usefulness"]
    sign = 1 if useful["maximise"] else -1
    enough = []
    for name in record["protections"][1:]:
        if name in measure["values"] and leaked(measure, name) <= LITTLE:
            cost = sign * (useful["values"]["as set"]["mean"] - useful["values"][name]["mean"])
            enough.append((max(cost, 0.0), name))
    if not enough:
        tried = [name for name in record["protections"][1:] if name in measure["values"]]
        return f"none of {', '.join(tried)} brings that to guessing" if tried else "no protection was tried"
    cost, name = min(enough)
    return f"{_in_words(name)} brings that to the level of guessing and costs {_points(cost, useful)}"


def _in_words(protection: str) -> str:
    if protection.startswith("noise="):
        return f"privacy.kind=local with {protection}"
    return "a secure sum" if protection == "secure-sum" else protection


def _points(cost: float, useful: Mapping[str, Any]) -> str:
    values = [entry["mean"] for entry in useful["values"].values()]
    if min(values) >= 0 and max(values) <= 1:
        return f"{100 * cost:.1f} points of {useful['name']}" if cost >= 0.0005 else "nothing"
    return f"{cost:.3g} of {useful['name']}"
