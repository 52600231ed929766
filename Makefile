# Everything on a fresh machine with only Python (>= 3.11) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without bytecode every process that a test or a person starts would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up test types tests unit-tests alone-tests process-tests real-tests robustness test-pythons docs clean

up: $(VENV)/.installed ## start a cluster; Ctrl-C stops it; options: make up ARGS="--port 7443"
	$(BIN)/setpoint up $(ARGS)

test: $(VENV)/.dev ## the whole suite: style, types, tests
	$(BIN)/ruff check src tests tools bench examples
	$(BIN)/ruff format --check --quiet src tests tools bench examples
	$(MAKE) -j3 types unit-tests real-tests
	$(MAKE) process-tests

types: $(VENV)/.dev
	nice -n 10 $(BIN)/mypy

tests: $(VENV)/.dev ## all tests
	$(MAKE) -j2 unit-tests real-tests
	$(MAKE) process-tests

# These need the processor and hardly ever wait: they use what the tests with deadlines leave of it.
unit-tests: $(VENV)/.dev
	nice -n 5 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not alone" \
	  tests/architecture tests/contracts tests/examples tests/robustness tests/unit

# These have deadlines of seconds, so they run one after the other. They wait for processes and containers most of the
# time: more of them run at once than there are cores.
alone-tests: $(VENV)/.dev
	$(BIN)/pytest -m alone tests/robustness

real-tests: alone-tests
	$(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder tests/real

# Browsers need the processor for themselves, or what they show within a second takes longer. All of these wait a third of
# the time, so that three at once keep two cores busy.
process-tests: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder tests/page tests/scenarios tests/interop

robustness: $(VENV)/.dev ## faults in a control plane of three machines; options: make robustness ARGS="--faults 300"
	$(BIN)/python -m tests.robustness $(ARGS)

test-pythons: ## the unit tests on the other supported versions of Python that are installed
	$(PYTHON) tools/test_pythons.py

docs: $(VENV)/.dev ## the documentation as a static site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html, or for the search too: $(PYTHON) -m http.server -d site"

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Setpoint needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name one with make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	$(BIN)/python -m compileall -q src tests/support # once, not in each of the processes that start at the same time
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) $(VENV)-3.* dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis
