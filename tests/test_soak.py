"""What tools/soak.py measures and how it cuts connections; the soak itself takes hours."""

from __future__ import annotations

import importlib
import json
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from fedpareto.spec.draft import Draft

pytest.importorskip("resource", reason="the tool limits files as Linux does")
pytest.importorskip("flwr")

sys.path.append(str(Path(__file__).parents[1] / "tools"))
growth = importlib.import_module("soak_growth")
faults = importlib.import_module("soak_faults")
chaos = importlib.import_module("soak_chaos")

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


# -- chaos ----------------------------------------------------------------------------------------------------------


def kept(folder: Path, **changes):
    """A folder with one run in it."""
    run = folder / "a run"
    run.mkdir(parents=True)
    row = {"round": 1, "hypervolume": 0.5, "seconds": 2.0} | changes
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (run / "columns.bin").write_bytes(b"columns")
    return folder


def test_laps_differ_in_any_number_but_times(tmp_path):
    undisturbed = kept(tmp_path / "undisturbed")
    assert chaos.differences(kept(tmp_path / "slower", seconds=9.0), undisturbed) == []
    (found,) = chaos.differences(kept(tmp_path / "worse", hypervolume=0.4), undisturbed)
    assert found.endswith("metrics.jsonl")
    less = kept(tmp_path / "less")
    (less / "a run" / "columns.bin").unlink()
    (missing,) = chaos.differences(less, undisturbed)
    assert "columns.bin is not in" in missing
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    assert chaos.differences(tmp_path / "one", tmp_path / "other"), "nothing kept is no success"


@pytest.mark.parametrize(
    ("said", "code", "wrong"),
    [
        ("Error: no space left on device\n", 2, None),
        ("", -9, None),
        ("run: runs/one\n", 0, None),
        ("", 2, "0 lines"),
        ("Error: one\nError: two\n", 2, "2 lines"),
        ("Traceback (most recent call last):\nOSError: disk\n", 0, "a traceback: OSError: disk"),
    ],
)
def test_an_error_is_one_line(said, code, wrong):
    found = chaos.complaint(said, code)
    assert found is None if wrong is None else wrong in found


def test_every_kind_of_work_is_a_spec_that_runs_and_can_be_continued(tmp_path):
    for kind, text in chaos.SPECS.items():
        spec, out = tmp_path / f"{kind}.yaml", tmp_path / kind
        spec.write_text(text)
        first = chaos.command(kind, spec, out)
        out.mkdir()
        (out / "spec.yaml").write_text(text)
        again = chaos.command(kind, spec, out)
        assert again == first if kind in ("sweep", "tune") else again[:2] == ["resume", str(out)]
        if kind not in ("sweep", "tune"):
            Draft.read(spec).finish()
