# Everything on a fresh machine with only Python (>= 3.11) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# Without bytecode every process that a test or a person starts would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: up test types tests robustness test-pythons docs clean

up: $(VENV)/.installed ## start a cluster; Ctrl-C stops it; options: make up ARGS="--port 7443"
	$(BIN)/setpoint up $(ARGS)

test: $(VENV)/.dev ## the whole suite: style, types, tests
	$(BIN)/ruff check src tests tools bench examples
	$(BIN)/ruff format --check --quiet src tests tools bench examples
	$(MAKE) -j2 types tests

types: $(VENV)/.dev
	$(BIN)/mypy

# In the order of the folders: those with the long files come first, so that nobody works alone at the end.
tests: $(VENV)/.dev
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not alone and not real"
	$(BIN)/pytest -m alone tests/robustness
	$(BIN)/pytest -n 4 --dist loadfile -m real tests/real

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
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) $(VENV)-3.* dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis
