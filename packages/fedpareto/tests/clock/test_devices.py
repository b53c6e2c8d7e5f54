"""What can be said about machines, and what cannot."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fedpareto.clock.devices import Devices
from fedpareto.clock.machines import COLUMNS, TIERS
from fedpareto.config.errors import UserError
from fedpareto.config.parameters import build

CLIENTS = np.array([0, 1, 2, 5])


def test_a_tier_has_the_share_of_clients_that_was_said_and_its_own_numbers():
    machines = Devices("tiers", shares=(0.5, 0.3, 0.2), spread=0.0, width=(0.25, 0.5, 1.0))
    fleet = machines.fleet(np.arange(1_000), 0)
    assert np.bincount(fleet.tier).tolist() == [500, 300, 200]
    for number, (name, width) in enumerate(zip(machines.tiers, (0.25, 0.5, 1.0), strict=True)):
        for column in set(COLUMNS) - {"width"}:
            assert set(getattr(fleet, column)[fleet.tier == number]) == {getattr(TIERS[name], column)}
        assert set(fleet.width[fleet.tier == number]) == {width}
    assert (machines.fleet(np.arange(1_000), 0).tier == fleet.tier).all()
    assert (machines.fleet(np.arange(1_000), 1).tier != fleet.tier).any()


def test_logarithms_of_speed_and_links_have_the_spread_that_was_said():
    fleet = Devices("lognormal", speed=(8.0,), down=(2.0,), up=(1.0,), spread=0.7).fleet(np.arange(10_000), 0)
    logarithms = np.log([fleet.speed / 8, fleet.down / 2, fleet.up])
    assert logarithms.std(axis=1) == pytest.approx(0.7, rel=0.03)
    assert logarithms.mean(axis=1) == pytest.approx(0.0, abs=0.03)
    assert np.corrcoef(logarithms) == pytest.approx(np.eye(3), abs=0.04)


def test_a_client_has_the_same_machine_whoever_else_there_is():
    machines = Devices("lognormal")
    few, many = machines.fleet(CLIENTS, 4), machines.fleet(np.arange(100), 4)
    assert few.speed.tolist() == many.speed[CLIENTS].tolist()


def test_a_file_says_what_it_has_and_the_rest_is_as_given(tmp_path):
    path = tmp_path / "devices.csv"
    path.write_text("client,speed,loss\n5,4e9,0\n0,1e9,0.1\n\n2,3e9,0.5\n1,2e9,0.25\n", encoding="utf-8")
    fleet = Devices("file", file=str(path), up=(7.0,), factor=(10.0,)).fleet(CLIENTS, 0)
    assert fleet.speed.tolist() == [1e10, 2e10, 3e10, 4e10]
    assert fleet.loss.tolist() == [0.1, 0.25, 0.5, 0.0]
    assert fleet.up.tolist() == [7.0] * 4
    assert fleet.down.tolist() == [TIERS["laptops"].down] * 4


WRONG = {
    "speed is -1; it is above 0, or inf": {"speed": -1},
    "speed has 0; each is above 0, or inf": {"speed": [1, 0]},
    "speed is nan": {"speed": float("nan")},
    "down is -3": {"down": -3},
    "up is 0": {"up": 0},
    "factor is inf": {"factor": float("inf")},
    "latency is -0.1; it is at least 0": {"latency": -0.1},
    "latency is inf": {"latency": float("inf")},
    "loss is 1; it is at least 0 and below 1": {"loss": 1},
    "loss is -0.1": {"loss": -0.1},
    "memory is 0": {"memory": 0},
    "radio_watts is -1": {"radio_watts": -1},
    "width is 0; it is above 0 and at most 1": {"width": 0},
    "width is 1.5": {"width": 1.5},
    "spread is -1": {"spread": -1},
    "period is 0": {"period": 0},
    "present is 0": {"present": 0},
    "present is empty": {"present": []},
    "phase is -1": {"phase": -1},
    "unknown tier of devices 'phone'; did you mean 'phones'?": {"tiers": ["phone", "servers"], "shares": [0.5, 0.5]},
    "each is named once and has one": {"tiers": ["phones", "servers"]},
    "tiers are phones, phones": {"tiers": ["phones", "phones"], "shares": [0.5, 0.5]},
    "the sum of shares is 0.9; it is 1": {"shares": [0.5, 0.3, 0.1]},
    "shares has -0.1; each is at least 0 and at most 1": {"shares": [0.6, 0.5, -0.1]},
    "speed is given, but kind is none": {"kind": "none", "speed": 1},
    "availability is given, but kind is none": {"kind": "none", "availability": "periodic"},
    "kind is file, but none is named": {"kind": "file"},
    "file is 'devices.csv', but kind is equal": {"file": "devices.csv"},
    "unknown value of devices: kind 'laptops'": {"kind": "laptops"},
}


@pytest.mark.parametrize("says", WRONG)
def test_numbers_that_cannot_be_are_refused_in_one_line(says):
    with pytest.raises(UserError, match=re.escape(says)) as refused:
        build(Devices, {"kind": "equal", **WRONG[says]}, "devices")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", [*COLUMNS, "factor", "present", "phase"])
def test_a_list_of_another_length_than_the_clients_is_refused(name):
    machines = Devices("equal", availability="periodic", **{name: (0.5, 0.5, 0.5)})
    says = f"devices: {name} has 3 numbers; it is one for all, or one for each of 4 clients"
    with pytest.raises(UserError, match=says):
        machines.fleet(CLIENTS, 0)


def test_with_tiers_a_list_is_one_number_for_each_tier():
    with pytest.raises(UserError, match="width has 4 numbers; it is one for all, or one for each of 3 tiers"):
        Devices("tiers", width=(0.5, 0.5, 0.5, 1.0)).fleet(CLIENTS, 0)


def test_too_little_memory_is_told():
    fleet = Devices("equal", memory=(1e6, 4e6, 2e6, 3e6)).fleet(CLIENTS, 0)
    fleet.must_hold(np.array([1e6, 3e6, 2e6, 3e6]))
    says = "client 0 (and 1 more) has 1e+06 bytes of memory; training takes at least 2.5e+06"
    with pytest.raises(UserError, match=re.escape(says)):
        fleet.must_hold(2.5e6)


MACHINES = {
    "line 3: speed is missing": "client,speed\n0,1\n1,\n2,1\n5,1\n",
    "line 3: it has 1 cells; the first line has 2": "client,speed\n0,1\n1\n2,1\n5,1\n",
    "line 2: speed is 'fast'; it is a number": "client,speed\n0,fast\n",
    "line 2: speed is 'nan'": "client,speed\n0,nan\n",
    "line 2: speed is -4; it is above 0, or inf": "client,speed\n0,-4\n",
    "line 2: there is no client '3'; they are 0 to 5": "client,speed\n3,1\n",
    "line 2: there is no client 'me'": "client,speed\nme,1\n",
    "line 4: client 1 is there a second time": "client,speed\n0,1\n1,1\n1,1\n",
    "there is no line for client 2 and 1 more": "client,speed\n0,1\n1,1\n",
    "there is no column 'client'": "speed,up\n1,1\n",
    "unknown column in": "client,sped\n0,1\n",
    "the column 'speed' is there twice": "client,speed,speed\n0,1,1\n",
    "there is no column 'client' in its first line, ''": "",
    "unexpected end of data": 'client,speed\n0,"1\n',
    "it is not UTF-8 text": b"client,speed\n\xff,1\n",
    "cannot be read": None,
}
TRACES = {
    "line 3: end is missing": "client,start,end\n0,0,5\n1,3,\n",
    "line 2: start is 'now'": "client,start,end\n0,now,5\n",
    "line 2: it is from 5 to 3; a start is at least 0 and before its end": "client,start,end\n0,5,3\n",
    "line 2: it is from 5 to 5": "client,start,end\n0,5,5\n",
    "line 2: it is from -1 to 5": "client,start,end\n0,-1,5\n",
    "line 2: it starts at 3, but the same client is present from 1 to 4 by line 4": (
        "client,start,end\n0,3,5\n1,0,9\n0,1,4\n2,0,9\n5,0,9\n"
    ),
    "line 2: there is no client '7'": "client,start,end\n7,0,5\n",
    "there is no line for client 2 and 1 more": "client,start,end\n0,0,5\n1,0,5\n",
    "there is no column 'end'": "client,start\n0,0\n",
    "unknown column in": "client,start,end,stop\n0,0,1,1\n",
    "it ends at 101, after the period of 100 that repeats": "client,start,end\n0,0,101\n",
}


@pytest.mark.parametrize(
    ("says", "content", "kind"),
    [(*wrong, "file") for wrong in MACHINES.items()] + [(*wrong, "trace") for wrong in TRACES.items()],
)
def test_a_file_with_gaps_or_strangers_is_refused_with_its_line(says, content, kind, tmp_path):
    path = tmp_path / "some.csv"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    more = {"kind": "file", "file": str(path)} if kind == "file" else {"kind": "equal", "availability": str(path)}
    with pytest.raises(UserError, match=re.escape(says)) as refused:
        Devices(**more, period=100.0, repeats=True).fleet(CLIENTS, 0)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
