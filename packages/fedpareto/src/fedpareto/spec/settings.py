"""The public settings of a run, made from its spec without any data."""

from __future__ import annotations

from dataclasses import replace

from fedpareto.contract.algorithm import Setting
from fedpareto.contract.federation import setting_of
from fedpareto.moo.preferences import is_common
from fedpareto.spec.spec import Spec


def settings_of(spec: Spec) -> list[Setting]:
    """Return the setting of each seed, with the attackers that take part in every round."""
    common = is_common(spec.preferences)
    settings = []
    for seed in spec.seeds:
        preferences = spec.preferences_of(seed) if common else None
        shared = None if preferences is None else tuple(preferences[0].tolist())
        one = setting_of(spec.problem, range(spec.clients), seed, spec.rounds, spec.participation, shared)
        one = replace(one, evaluate_every=spec.evaluate_every)
        if spec.devices.kind != "none":
            one = replace(one, widths=spec.devices.fleet(one.clients, seed).width)
        if spec.attack.always:
            one = replace(one, regulars=tuple(sorted(spec.attack.attackers(one.clients, seed))))
        settings.append(one)
    return settings


def first_setting(spec: Spec) -> Setting:
    """Return a setting of as few clients as the algorithm can begin with, to see early whether it can: two, or all of a
    graph.
    """
    graph = spec.algorithm.neighbours(spec.clients)
    clients = min(spec.clients, 2) if graph is None else spec.clients
    return setting_of(spec.problem, range(clients), spec.seeds[0], spec.rounds)


def begun_as(spec: Spec, setting: Setting) -> Setting:
    """Return the setting with which an algorithm begins: it asks all clients where a policy or a selection chooses."""
    participation = 1.0 if spec.chooses else setting.participation
    return replace(setting, repeats=len(spec.seeds), participation=participation, waits=spec.policy.waits)
