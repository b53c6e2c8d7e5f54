# make demo and make test are all a newcomer needs; each builds .venv first if it is not there.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
DOCS := .venv/.installed-docs
export NO_MKDOCS_2_WARNING := 1
PIP := $(BIN)/pip --quiet --disable-pip-version-check
# Where Box2D has no wheel, it is built: that takes a C++ compiler and a minute.
BUILD_BOX2D := ; platform_machine == 'aarch64' or python_version >= '3.14'

.PHONY: install demo test lint types docs docs-serve bench clean

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
	$(BIN)/codespell

types: install
	$(BIN)/mypy

# Strict: a broken link or a missing heading is an error. Notebooks are executed.
docs: $(DOCS)
	$(BIN)/mkdocs build --strict --quiet

docs-serve: $(DOCS)
	$(BIN)/mkdocs serve --strict --dev-addr 127.0.0.1:8001

$(DOCS): $(INSTALLED)
	$(PIP) install --constraint constraints.txt --editable '.[docs]'
	@touch $@

bench: install
	$(BIN)/python benchmarks/engine.py

clean:
	rm -rf .venv runs site build dist .pytest_cache .mypy_cache .ruff_cache src/*.egg-info
