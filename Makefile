# make demo and make test are all a newcomer needs; each builds .venv first if it is not there.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PIP := $(BIN)/pip --quiet --disable-pip-version-check
# Where Box2D has no wheel, it is built: that takes a C++ compiler and a minute.
BUILD_BOX2D := ; platform_machine == 'aarch64' or python_version >= '3.14'

.PHONY: install demo test lint types bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedpareto needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt torch numpy
	$(PIP) install --constraint constraints.txt setuptools "swig$(BUILD_BOX2D)"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --constraint constraints.txt --no-build-isolation --use-pep517 "box2d-py$(BUILD_BOX2D)"
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
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
