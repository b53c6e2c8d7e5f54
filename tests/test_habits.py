"""What users of other tools expect: tab completion, JSON, quiet commands, and tables that fit 80 columns."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.main import get_command

from fedpareto.cli import app, completion, data, lists
from fedpareto.cli.completion import SCRIPTS, candidates, names_of
from fedpareto.config import described
from fedpareto.contract import registry
from fedpareto.record import reading
from fedpareto.report import across, likeness, terminal
from fedpareto.report.comparison import comparison

QUICK = ("--problem", "convex", "--clients", "3", "--rounds", "1", "--set", "threads=1", "--set", "chunk=8", "-q")


def completed(*words: str) -> list[str]:
    return candidates(get_command(app), list(words))


# -- completion ----------------------------------------------------------------------------------------------------


def test_names_are_completed_as_the_registry_knows_them() -> None:
    assert sorted(names_of("algorithms")) == sorted(registry.algorithms())
    assert sorted(names_of("problems")) == sorted(registry.problems())


def test_a_line_is_completed_where_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/one", "runs/two", "else"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "runs/one/spec.yaml").touch()
    (tmp_path / "runs/two/spec.yaml").touch()
    assert completed("re") == ["reproduce", "resume"]
    assert {"run", "show", "data"} <= set(completed(""))
    assert completed("run", "fedpref-c") == ["fedpref-clustering"]
    assert completed("run", "fedavg+") == ["fedavg+ft", "fedavg+safe"]
    assert completed("run", "--prob") == ["--problem"]
    assert completed("run", "--problem", "conv") == ["convex"]
    assert completed("run", "--problem", "convex", "fedpro") == ["fedprox"]
    assert completed("run", "-q", "fedpro") == ["fedprox"]
    assert completed("run", "--engine", "flower-s") == ["flower-sim"]
    assert completed("algorithms", "mof") == ["mofld"]
    assert completed("problems", "synth") == ["synthetic"]
    assert completed("data", "fe") == ["fetch"]
    assert completed("data", "fetch", "adult", "comp") == ["compas"]
    assert completed("show", "") == ["runs/one", "runs/two"]
    assert completed("compare", "runs/one", "runs/t") == ["runs/two"]
    assert completed("reproduce", "thesis-5.4") == ["thesis-5.4"]
    assert completed("completion", "p") == ["powershell"]
    assert completed("run", "--csv", "") == []  # The shell's own files.


def test_completing_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; from fedpareto.cli import main\n"
        "for words in (['run', 'fedp'], ['run', '--problem', ''], ['data', 'fetch', ''], ['reproduce', '']):\n"
        "    sys.argv = ['fedpareto', '_complete', *words]\n"
        "    main()\n"
        "print([name for name in ('torch', 'pandas', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    printed = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, cwd=tmp_path).stdout
    assert printed.splitlines()[-1] == "[]"
    assert {"fedpref", "convex", "adult", "thesis-5.4"} <= set(printed.splitlines())


@pytest.mark.parametrize("shell", list(SCRIPTS))
def test_every_shell_gets_its_lines(shell: str, fedpareto: Callable[..., Any]) -> None:
    answer = fedpareto("completion", shell)
    assert answer.code == 0
    assert f"fedpareto {completion.COMPLETE}" in answer.out


def test_bash_completes_with_its_lines(tmp_path: Path) -> None:
    """A shell in which `fedpareto` prints the words that it was asked with."""
    lines = [
        "fedpareto() { printf '%s\\n' \"$@\"; }",
        SCRIPTS[completion.Shell.BASH],
        "COMP_WORDS=(fedpareto run --problem 'two words'); COMP_CWORD=3; _fedpareto",
        "printf '[%s]' \"${COMPREPLY[@]}\"",
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout == "[_complete][run][--problem][two words]"


def test_the_package_is_a_command_too() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "fedpareto", "--version"]
    said = subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout
    assert said.startswith("fedpareto ")


# -- JSON, and nothing else ------------------------------------------------------------------------------------------


def test_listings_are_json_with_stable_keys(fedpareto: Callable[..., Any]) -> None:
    def said(*arguments: str) -> Any:
        answer = fedpareto(*arguments)
        assert answer.code == 0, answer.err
        assert answer.err == ""
        return json.loads(answer.out)

    algorithms = said("algorithms", "--json")
    assert [one["name"] for one in algorithms] == list(registry.algorithms())
    assert set(algorithms[0]) == {
        *("name", "about", "level", "family", "place", "box", "method", "objectives", "personal")
    }
    one = said("algorithms", "fedpref", "--json")
    assert set(one) == {*algorithms[0], "parameters"}
    assert set(one["parameters"][0]) == {"name", "type", "choices", "default", "needed", "meaning"}
    problems = said("problems", "--json")
    assert set(problems[0]) == {"name", "about", "objectives", "model_size", "known_front"}
    assert set(said("problems", "table", "--json")) == {"name", "about", "parameters", "models"}
    sets = said("data", "list", "--json")
    assert set(sets) == {"folder", "sets"}
    assert set(sets["sets"][0]) == {"name", "about", "bytes", "terms", "here", "files"}
    assert set(said("reproduce", "--json", "-")[0]) == {"name", "about"}


def test_show_and_compare_speak_json(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        fedpareto("run", "fedavg", *QUICK, "--out", name)
    shown = json.loads(fedpareto("show", "one", "--json").out)
    assert shown["status"] == "finished"
    assert shown["metrics"]["hypervolume"]["mean"] == pytest.approx(
        json.loads((tmp_path / "one/solutions.json").read_bytes())[0]["indicators"]["hypervolume"]
    )
    compared = json.loads(fedpareto("compare", "one", "two", "--out", "both", "--json").out)
    assert Path(compared["page"]).is_file()
    assert compared["rows"] == json.loads((tmp_path / "both/table.json").read_bytes())["rows"]
    quiet = fedpareto("compare", "one", "two", "--out", "both", "-q")
    assert [line.split(":")[0] for line in quiet.out.splitlines()] == ["page"]


# -- 80 columns ------------------------------------------------------------------------------------------------------


def fits(*shown: Any, width: int = 80) -> list[str]:
    """The lines, none too long, and no word cut into letters."""
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=True, color_system=None).print(*shown)
    lines = stream.getvalue().splitlines()
    assert max(map(cell_len, lines)) <= width
    cells = [cell.strip() for line in lines for cell in line.strip("│┃ ").replace("┃", "│").split("│")]
    words = [cell for cell in cells if cell]
    assert sum(len(word) == 1 and word.isalpha() for word in words) <= len(words) / 20, "words are cut into letters"
    return lines


def plain_algorithms() -> list[dict[str, Any]]:
    return [described.algorithm(name, cls) for name, cls in registry.algorithms().items()]


def test_listings_fit_80_columns() -> None:
    found = fits(lists.algorithm_table(plain_algorithms(), 80))
    assert all(any(name in line for line in found) for name in registry.algorithms())
    problems = [described.problem(name, cls) for name, cls in registry.problems().items()]
    found = fits(lists.problem_table(problems, 80))
    assert all(any(name in line for line in found) for name in registry.problems())
    long = {"about": "What it is. " * 9, "terms": "CC BY 4.0", "bytes": 12_345_678, "here": True}
    files = ["law-school/law_school_clean.csv"] * 3
    fits(data.data_table([{"name": "law-school-20798", "files": files, **long}], 80))


@pytest.mark.parametrize("name", ["fedpref", "mofld", "praffl"])
def test_parameters_fit_80_columns(name: str) -> None:
    fits(lists.parameter_table(registry.algorithm_class(name)))


def test_a_comparison_of_many_runs_fits_80_columns(fedpareto: Callable[..., Any], tmp_path: Path) -> None:
    names = ["fedavg", "fedpref-clustering-of-long-name", "local", "fedprox"]
    for name in names:
        fedpareto("run", "fedavg", *QUICK, "--seeds", "2", "--out", name)
    records = likeness.comparable([reading.load(tmp_path / name) for name in names])
    lines = fits(comparison(records).to_rich(80))
    assert sum("hypervolume" in line for line in lines) > 1  # In several tables below each other.
    assert all(sum(name in line for line in lines) for name in ("fedpref-clus", "fedprox", "local"))
    fits(across.in_terminal(records))
    fits(terminal.show(records[0], 80))
