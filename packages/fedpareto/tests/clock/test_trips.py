"""Simulated time and energy against what is computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from round_trips import trips

from fedpareto.clock.devices import Devices
from fedpareto.clock.trips import PACKET

TWO = np.array([0, 1])


def test_times_of_two_clients_of_speeds_1_and_3_are_exact():
    fleet = Devices("equal", speed=(1.0, 3.0), down=(4.0,), up=(2.0,), latency=(0.25,), loss=(0.0,)).fleet(TWO, 0)
    found = trips(fleet, TWO, 10.0, operations=6.0, bytes_down=8.0, bytes_up=8.0)
    assert found.received.tolist() == [12.25, 12.25]  # 10 + 1/4 + 8/4
    assert found.computed.tolist() == [18.25, 14.25]  # 6/1 and 6/3 later
    assert found.arrived.tolist() == [22.5, 18.5]  # 1/4 + 8/2 later


def test_energy_is_power_times_seconds_of_computing_and_of_transfer():
    machines = Devices(
        "equal", speed=(1.0, 3.0), down=(4.0,), up=(2.0,), loss=(0.0,), compute_watts=(5.0, 7.0), radio_watts=(0.5,)
    )
    found = trips(machines.fleet(TWO, 0), TWO, 0.0, operations=6.0, bytes_down=8.0, bytes_up=8.0)
    assert found.joules.tolist() == [5 * 6 + 0.5 * (2 + 4), 7 * 2 + 0.5 * (2 + 4)]


def test_a_factor_multiplies_the_speed():
    given, relative = (Devices("equal", speed=(1.0, 3.0)), Devices("equal", speed=(1.0,), factor=(1.0, 3.0)))
    assert given.fleet(TWO, 0).speed.tolist() == relative.fleet(TWO, 0).speed.tolist() == [1.0, 3.0]


def test_without_devices_work_takes_neither_time_nor_energy():
    found = trips(Devices().fleet(TWO, 0), TWO, np.array([0.0, 5.0]), 1e15, 1e12, 1e12)
    assert found.arrived.tolist() == [0.0, 5.0]
    assert found.joules.tolist() == [0.0, 0.0]


def test_each_packet_is_sent_1_over_1_minus_loss_times_on_average():
    everyone = np.arange(20_000)
    for loss, packets in ((0.1, 1), (0.3, 7), (0.5, 400)):
        machines = Devices("equal", speed=(np.inf,), down=(1.0,), up=(1.0,), latency=(0.0,), loss=(loss,))
        size = PACKET * packets
        found = trips(machines.fleet(everyone, 3), everyone, 0.0, 0.0, size, size)
        for seconds in (found.received, found.arrived - found.received):
            tries = seconds / size
            assert tries.min() > 1 - 1e-9
            # The variance of a packet's number of tries is p / (1 − p)².
            tolerance = 5 * np.sqrt(loss / (1 - loss) ** 2 / packets / len(everyone))
            assert abs(tries.mean() - 1 / (1 - loss)) < tolerance


def test_draws_do_not_depend_on_the_other_rows_and_differ_by_client_number_and_seed():
    clients = np.arange(50)
    machines = Devices("equal", loss=(0.3,))
    fleet = machines.fleet(clients, 7)
    whole = trips(fleet, clients, 0.0, 1e9, 1e6, 1e6, number=4).arrived
    some = np.array([31, 2, 17])
    assert trips(fleet, some, 0.0, 1e9, 1e6, 1e6, number=np.array([4, 4, 4])).arrived.tolist() == whole[some].tolist()
    others = [
        trips(fleet, clients, 0.0, 1e9, 1e6, 1e6, number=5).arrived,
        trips(fleet, clients, 0.0, 1e9, 1e6, 1e6, number=6).arrived,
        trips(fleet, clients, 0.0, 1e9, 1e6, 1e6, number=400).arrived,
        trips(machines.fleet(clients, 8), clients, 0.0, 1e9, 1e6, 1e6, number=4).arrived,
    ]
    for other in others:
        assert (other != whole).mean() > 0.8
    assert len(set(whole.tolist())) > 40


def test_what_is_expected_is_the_mean_of_what_comes():
    everyone = np.arange(5_000)
    fleet = Devices("equal", loss=(0.2,), latency=(0.5,)).fleet(everyone, 0)
    seconds, joules = fleet.expected(1e11, 1e6, 1e5)
    found = trips(fleet, everyone, 0.0, 1e11, 1e6, 1e5)
    assert found.arrived.mean() == pytest.approx(seconds[0], rel=1e-3)
    assert found.joules.mean() == pytest.approx(joules[0], rel=1e-3)


def test_what_is_found_for_the_next_tasks_at_once_is_what_each_takes_by_itself():
    clients = np.arange(4)
    machines = Devices("equal", loss=(0.3, 0.0, 0.1, 0.3))
    fleet, alone = (machines.fleet(clients, 7) for _ in range(2))
    for number, size in [(number, 1e6) for number in range(1, 20)] + [(5, 2e6), (5, 1e6)]:
        for row in clients if number % 3 else clients[[1, 3]]:
            found = trips(fleet, np.array([row]), 0.0, 1e9, size, size, number=np.array([number]))
            assert found.arrived == trips(alone, np.array([row]), 0.0, 1e9, size, size, number=number).arrived
