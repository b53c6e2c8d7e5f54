"""What tools/soak.py measures and how it cuts connections; the soak itself takes hours."""

from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("resource", reason="the tool limits files as Linux does")
pytest.importorskip("flwr")

sys.path.append(str(Path(__file__).parents[1] / "tools"))
growth = importlib.import_module("soak_growth")
faults = importlib.import_module("soak_faults")

SECONDS = np.arange(0.0, 3600.0, 5.0)


def test_a_line_has_its_slope_whatever_the_level_of_each_life():
    lives = [list(zip(SECONDS, level + 7.0 * SECONDS / 3600, strict=True)) for level in (100.0, 500.0)]
    found = growth.slope(lives)
    assert found.value == pytest.approx(7.0)
    assert found.width == pytest.approx(0.0, abs=1e-6)
    assert (found.lives, found.grows, found.largest) == (2, True, pytest.approx(507.0, abs=0.1))


def test_what_happens_while_a_process_warms_up_does_not_count():
    values = np.where(SECONDS < growth.WARM_UP, SECONDS, growth.WARM_UP)
    found = growth.slope([list(zip(SECONDS, values, strict=True))])
    assert (found.value, found.grows) == (pytest.approx(0.0, abs=1e-9), False)


def test_intervals_cover_the_truth_though_neighbours_resemble_each_other():
    random, covered = np.random.default_rng(0), 0
    for _ in range(200):
        noise = np.zeros(len(SECONDS))
        for place in range(1, len(noise)):
            noise[place] = 0.8 * noise[place - 1] + random.normal()
        found = growth.slope([list(zip(SECONDS, 3.0 * SECONDS / 3600 + noise, strict=True))])
        covered += abs(found.value - 3.0) <= found.width
    assert covered / 200 > 0.9


def test_too_short_a_life_has_no_slope():
    assert growth.slope([[(0.0, 1.0), (5.0, 2.0)]]) is None


def test_the_proxy_passes_on_until_it_cuts():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as free:
        outside = free.getsockname()[1]
        free.close()
        proxy = faults.Proxy(outside, server.getsockname()[1])
        with socket.create_connection(("127.0.0.1", outside)) as here:
            there, _ = server.accept()
            with there:
                here.sendall(b"question")
                assert there.recv(100) == b"question"
                there.sendall(b"answer")
                assert here.recv(100) == b"answer"
                proxy.cut()
                with pytest.raises(ConnectionResetError):
                    here.recv(100)
        proxy.close()
