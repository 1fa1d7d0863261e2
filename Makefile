# Every target makes its own virtual environment first; the second time that costs nothing.
#   make quickstart   a federation learns digits, in a minute
#   make check        everything that must hold: format, lint, types, tests (the same in CI)
#   make test         the default test suite (WORKERS=0 to run it in one process; ARGS="-k name" to choose)
#   make test-long    those of its tests that take over a second; CI runs both (make test-times finds anew which these are)
#   make test-flower  the same for what runs on Flower, in an environment of its own: Flower pins older versions of typer and rich
#   make test-wheel   the sdist and the wheel from it, whole, and tried in a bare environment outside the checkout; minutes
#   make docs         the documentation site, into site/, and a check of all its links (make docs-serve to look at it)
#   make test-lowest  what everything stands on, with the lowest versions that are allowed, in an environment of its own
#   make test-extras  each extra alone, in a bare environment: its one feature, and the words without it; many minutes
#   make bench        every speed that is aimed at: ours, the other, the ratio and the one asked for (ARGS="start" for some)
#   make bench-peers  the same work on Flower, pfl, fluke and PFLlib, each in an environment of its own, beside ours
PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
ARGS ?=
BIN := $(VENV)/bin
RUN := $(BIN)/polyrhythm run
QUICKSTART := --clients 20 --partition "dirichlet(alpha=0.3)" --method "fedavg(cohort=10)" --rounds 30 --seed 0
# What an installation is made from: the native engine is compiled anew when its sources change.
BUILT_FROM := pyproject.toml build_backend/backend.py constraints.txt CMakeLists.txt $(wildcard src/polyrhythm/engines/native/*.cpp src/polyrhythm/engines/native/*.h)
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart test test-long test-times test-flower test-wheel test-lowest test-extras check style types docs docs-serve bench bench-peers format clean

quickstart: $(VENV)/.user
	@echo '$$ polyrhythm run --data digits $(QUICKSTART)'
	@$(RUN) --data digits $(QUICKSTART)
	@echo
	@echo 'The same on Fashion-MNIST:'
	@echo '$$ $(RUN) --data fashion-mnist $(QUICKSTART)'

test: $(VENV)/.developer
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(ARGS)

TIMED := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal

test-long: $(VENV)/.developer
	$(TIMED) -m "long and not slow" $(ARGS)

test-times: $(VENV)/.developer
	mkdir -p build
	$(TIMED) -m "not slow" --junitxml build/tests.xml $(ARGS)
	$(BIN)/python tests/durations.py build/tests.xml

# What needs flwr, and the command line on the versions of typer and rich that Flower pins.
test-flower: .venv-flower/.installed
	.venv-flower/bin/python -m pytest --numprocesses $(WORKERS) -m "not slow" tests/deployment/test_on_flower.py tests/deployment/test_wire.py tests/deployment/local tests/deployment/test_federating.py tests/test_golden.py::test_the_numbers_on_flower_are_those_of_the_simulation tests/cli tests/config $(ARGS)

test-wheel: $(VENV)/.developer
	$(BIN)/python tests/shipping/building.py

# What tests alone need has its newest versions; torch and whatever else is declared has its lowest.
# Compiling, torch 2.6 imports the setuptools of a new environment, which wants to be imported before Python's distutils.
LOWEST := tests/base tests/methods tests/config tests/engines tests/data tests/cli

test-lowest: .venv-lowest/.installed
	SETUPTOOLS_USE_DISTUTILS=stdlib .venv-lowest/bin/python -m pytest --numprocesses $(WORKERS) --dist worksteal -m "not slow" $(LOWEST) $(ARGS)

.venv-lowest/.installed: $(BUILT_FROM) constraints-lowest.txt
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt --editable '.[test]'
	@touch $@

test-extras: $(VENV)/.developer
	$(BIN)/python tests/shipping/extras.py $(ARGS)

check: style types test test-long

style: $(VENV)/.developer
	$(BIN)/ruff format --check
	$(BIN)/ruff check

types: $(VENV)/.developer
	$(BIN)/mypy

format: $(VENV)/.developer
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# The package itself is read and not installed: neither torch nor a compiler is needed.
docs: .venv-docs/.installed
	.venv-docs/bin/mkdocs build --strict
	.venv-docs/bin/python docs/site/check_links.py site

docs-serve: .venv-docs/.installed
	.venv-docs/bin/mkdocs serve

# Why not its successor yet is in docs/decisions.md.
docs docs-serve: export NO_MKDOCS_2_WARNING := 1

bench: $(VENV)/.developer
	@$(BIN)/python benchmarks/targets.py $(ARGS)

bench-peers: $(VENV)/.developer
	@$(BIN)/python benchmarks/peers.py $(ARGS)

clean:
	rm -rf $(VENV) .venv-flower .venv-lowest .venv-docs build site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

.venv-flower/.installed: $(BUILT_FROM)
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[flower,test]'
	@touch $@

.venv-docs/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	$(PYTHON) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > .venv-docs/wanted.txt
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --requirement .venv-docs/wanted.txt
	@touch $@

$(VENV)/.user: $(BUILT_FROM) | $(BIN)/python
	@echo 'Installing polyrhythm and what it needs into $(VENV), and building its native engine. PyTorch is large:'
	@echo 'the first time this takes minutes.'
	$(INSTALL) --editable .
	@touch $@

$(VENV)/.developer: $(BUILT_FROM) | $(BIN)/python
	@echo 'Installing polyrhythm, what it needs and what its tests need into $(VENV): minutes the first time.'
	$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.user
