"""A library that is missing is named with the extra that brings it, in Python and on the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fedpareto
from fedpareto.config import extras
from fedpareto.config.errors import UserError


@pytest.fixture
def without(monkeypatch):
    """`without("pandas")`: importing it fails as where it is not installed."""

    def hide(library):
        for name in [name for name in sys.modules if name.partition(".")[0] == library]:
            monkeypatch.delitem(sys.modules, name)

        class Hidden:
            @staticmethod
            def find_spec(name, path=None, target=None):
                if name.partition(".")[0] == library:
                    raise ModuleNotFoundError(f"No module named '{name}'", name=name)

        monkeypatch.setattr(sys, "meta_path", [Hidden, *sys.meta_path])

    return hide


TABLE = "age,gender,hired\n" + "".join(f"{20 + row},{'fm'[row % 2]},{row % 3 // 2}\n" for row in range(60))


def test_a_table_without_pandas_is_one_line(without, fedpareto, tmp_path):
    (tmp_path / "people.csv").write_text(TABLE)
    without("pandas")
    answer = fedpareto("run", "fedavg", "--csv", "people.csv", "--label", "hired", "--sensitive", "gender", "--quiet")
    assert answer.code == 2
    assert answer.err == "Error: tables need pandas; try: pip install 'fedpareto[tables]'\n"


def test_python_says_the_same(without, tmp_path):
    (tmp_path / "people.csv").write_text(TABLE)
    table = fedpareto.table(tmp_path / "people.csv", label="hired", sensitive="gender")
    without("pandas")
    with pytest.raises(UserError, match=r"tables need pandas; try: pip install 'fedpareto\[tables\]'"):
        fedpareto.run(table, "fedavg", clients=2, rounds=1)


def test_the_demo_says_before_it_trains_that_pictures_need_a_library(tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; sys.argv = ['fedpareto', 'demo']"
    code += "; from fedpareto.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: pictures need matplotlib; try: pip install 'fedpareto[plots]'\n"
    assert not list(tmp_path.iterdir())


def test_any_other_module_that_is_missing_stays_a_fault():
    with pytest.raises(ModuleNotFoundError), extras.named():
        import no_such_module  # noqa: F401
