# make demo and make test are all a newcomer needs; each builds .venv first if it is not there.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: install demo test lint types bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedpareto needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch numpy
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: install
	$(BIN)/fedpareto demo

test: install
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

bench: install
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .venv runs build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
