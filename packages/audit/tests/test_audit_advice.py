"""The advice of an audit: the cheapest protection that brings an attack to guessing, in words with figures."""

from __future__ import annotations

from fedpareto_audit.advice import advice, leaked


def record(values, guess, name="preference from updates, error", accuracy=(0.85, 0.82, 0.70)):
    names = ["as set", "noise=0.1", "noise=1"]

    def each(numbers):
        return {protection: {"mean": number} for protection, number in zip(names, numbers, strict=True)}

    measure = {"name": name, "guess": guess, "values": each(values)}
    useful = {"name": "accuracy", "maximise": True, "values": each(accuracy)}
    return {"protections": names, "measures": [measure], "usefulness": useful}


def test_the_cheapest_of_those_that_are_enough_is_advised():
    assert advice(record((0.06, 0.24, 0.25), 0.25)) == [
        "At these settings a curious server learns a client's preference from its update to within 0.06 (guessing: "
        "0.25); privacy.kind=local with noise=0.1 brings that to the level of guessing and costs 3.0 points "
        "of accuracy."
    ]
    (dearer,) = advice(record((0.06, 0.12, 0.25), 0.25))
    assert dearer.endswith(
        "privacy.kind=local with noise=1 brings that to the level of guessing and costs 15.0 points of accuracy."
    )
    (none,) = advice(record((0.06, 0.12, 0.15), 0.25))
    assert none.endswith("none of noise=0.1, noise=1 brings that to guessing.")


def test_what_is_as_good_as_guessing_is_said_to_be():
    assert advice(record((0.52, 0.51, 0.5), 0.5, "membership from update, AUC")) == [
        "About as good as guessing: membership from update, AUC."
    ]


def test_leaking_is_nothing_at_guessing_and_one_at_knowing():
    for name, knowing in (("preference from updates, error", 0.0), ("membership from update, AUC", 1.0)):
        measured = record((0.5, knowing, 0.5), 0.5, name)["measures"][0]
        assert leaked(measured, "as set") == 0
        assert leaked(measured, "noise=0.1") == 1
