# make demo and make test are all a newcomer needs; each builds .venv first if it is not there.
# make demo installs what running takes; make test, and all the others, add to the same environment what they need.
# The packages are in packages/, each with a pyproject.toml; that of the root has the groups of those who work on them.
PYTHON ?= python3
BIN := .venv/bin
CORE := .venv/.core
INSTALLED := .venv/.installed
DOCS := .venv/.installed-docs
CONSTRAINTS := .venv/constraints.txt
PROJECTS := pyproject.toml $(wildcard packages/*/pyproject.toml)
# What running the demo and the page takes.
RUNNING := fedpareto[tables,plots] serve page
# All packages, with every extra that brings a package of others; a test says if one is missing here.
EVERYTHING := \
	fedpareto[tables,plots,parquet,sql,privacy,secure,tensorboard,mlflow,morl,search,tune,compiled] \
	serve[onnx] flower[simulation] audit page papers ray space
editable = $(foreach package,$(1),--editable 'packages/$(package)')
export NO_MKDOCS_2_WARNING := 1
# Bytecode is written when a module is first imported: compiling all of it takes a minute, and most is never used.
# Where an environment forbids to write it, every process that a test starts would compile all its modules anew.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip --disable-pip-version-check install --no-compile --constraint $(CONSTRAINTS)
# On Linux the torch of PyPI comes with several GB of CUDA libraries; this index has it without them. A torch in
# a folder of wheels that pip is configured with goes first. With a GPU: make install TORCH_INDEX=
TORCH_INDEX ?= $(if $(filter Linux,$(shell uname -s)),https://download.pytorch.org/whl/cpu)
# Where Box2D has no wheel, it is built: that takes a C++ compiler and a minute.
WITHOUT_BOX2D := ; platform_machine == 'aarch64' or python_version >= '3.14'

.PHONY: install demo test lint types docs docs-serve lock build sbom sign release-check audit-deps wheel-check bench fuzz \
	mutants soak chaos clean

install: $(INSTALLED)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedpareto needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12")'
	@echo "[1/3] A new environment in .venv"
	$(PYTHON) -m venv .venv

# pip gets the versions without the hashes: the torch of another index has others.
$(CONSTRAINTS): requirements.lock tools/lock.py | $(BIN)/python
	$(BIN)/python tools/lock.py > $@

$(CORE): $(PROJECTS) $(CONSTRAINTS)
	@$(PIP) --quiet setuptools
	@echo "[2/3] PyTorch: 200 MB, or several GB with the libraries for a GPU"
	@$(PIP) --no-deps --no-index torch 2>/dev/null || $(PIP) --no-deps $(addprefix --extra-index-url ,$(TORCH_INDEX)) torch
	@echo "[3/3] fedpareto and what else it needs to run: 120 MB"
	$(PIP) --no-build-isolation $(call editable,$(RUNNING))
	@touch $@

$(INSTALLED): $(CORE)
	@echo "[+] All packages, and what tests, lint and types need: 400 MB"
	@$(PIP) --quiet 'pip>=25.1' # knows groups; Python 3.11 and 3.12 bring an older one
	$(PIP) "swig==4.5.1$(WITHOUT_BOX2D)"
	PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) --no-build-isolation --use-pep517 "box2d-py==2.3.8$(WITHOUT_BOX2D)"
	$(PIP) --no-build-isolation $(call editable,$(EVERYTHING)) --group dev
	@touch $@

demo: $(CORE)
	$(BIN)/fedpareto demo

# Everything, or the tests of a package: make test PACKAGE=space PYTEST='-k cfdp'
test: install
	@tools/browser.sh || true
	$(BIN)/python -m pytest -n auto $(PACKAGE:%=packages/%/tests) $(PYTEST)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/prose.py --most 0

types: install
	$(BIN)/mypy

# Strict: a broken link or a missing heading is an error. Notebooks are executed.
docs: $(DOCS)
	$(BIN)/mkdocs build --strict --quiet

docs-serve: $(DOCS)
	$(BIN)/mkdocs serve --strict --dev-addr 127.0.0.1:8001

$(DOCS): $(INSTALLED)
	$(PIP) --group docs
	@touch $@

# After changing dependencies in a pyproject.toml. Newer versions of all: make lock LOCK=--upgrade
# One file for all packages, extras and groups; our own packages are not in it.
lock: $(BIN)/uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11.5 --all-extras --generate-hashes --no-annotate --no-header $(LOCK) \
		$(addprefix --group ,dev docs bench) $$(sed -n 's/^name = "\(.*\)"/--no-emit-package \1/p' packages/*/pyproject.toml) \
		--output-file requirements.lock packages/*/pyproject.toml

$(BIN)/uv: | $(CONSTRAINTS)
	$(PIP) uv

# A wheel and an sdist of each package: the same bytes on every machine and every day, without a network.
build: $(INSTALLED)
	rm -rf dist build
	$(BIN)/python tools/build_dist.py
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

# The bill of materials of requirements.lock, in CycloneDX.
sbom: $(INSTALLED)
	$(BIN)/python tools/sbom.py

# make sign KEY=~/.ssh/fedpareto-release: the list of hashes, and the signature over it.
sign: build
	$(BIN)/python tools/sbom.py
	$(BIN)/python tools/release.py sign --key $(KEY)

# Signature, hashes and bill of materials of what is in dist, and whether this checkout gives the same bytes.
release-check: $(INSTALLED)
	$(BIN)/python tools/release.py check --rebuild $(addprefix --signers ,$(SIGNERS))

# Known holes of the versions in requirements.lock, by the advisories of PyPI: this one needs a network.
audit-deps: $(BIN)/uv
	@$(BIN)/uv tool run --quiet pip-audit --strict --require-hashes --disable-pip --requirement requirements.lock || \
		{ echo "audit-deps: known holes are in a table above; anything else above means that no database was reached, so nothing is known"; exit 1; }

# The core's wheel in a new environment, alone, then with others: make wheel-check PYTHON=python3.12 WITH='torch==2.6.0'
wheel-check: build
	$(BIN)/python tools/check_wheel.py --python $(PYTHON) $(WITH)

bench: install
	$(BIN)/python benchmarks/engine.py

# Damaged and hostile input for every reader of files and messages: make fuzz N=1000000 JOBS=8
N ?= 10000
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
fuzz: install
	$(BIN)/python tools/fuzz.py --inputs $(N) --jobs $(JOBS) --keep found

# Single changes of the code that a test should notice: make mutants N=300 SEED=7 JOBS=16 ROOM=algorithms
SEED ?= 0
mutants: install
	$(BIN)/python tools/mutants.py --number $(N) --seed $(SEED) --jobs $(JOBS) $(addprefix --room ,$(ROOM)) \
		$(addprefix --patches ,$(PATCHES)) $(addprefix --map ,$(MAP)) $(addprefix --seconds ,$(SECONDS))

# A run and a federation of three nodes under kills, cut connections, full disks and clocks that jump.
HOURS ?= 3
soak: install
	$(BIN)/python tools/soak.py --hours $(HOURS) --out soak

# kill -9 at random moments of everything that resumes, full disks, few descriptors, frozen processes:
# make chaos KILLS=20 KINDS='run federation'
KILLS ?= 20
chaos: install
	OMP_NUM_THREADS=1 $(BIN)/python tools/soak.py --kills $(KILLS) --faults --forks --seed $(SEED) --out chaos $(if $(KINDS),--only $(KINDS))

clean:
	rm -rf .venv runs site build dist .pytest_cache .mypy_cache .ruff_cache packages/*/src/*.egg-info packages/*/build
