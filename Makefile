# Every target sets up what it needs: a .venv of its own, made once and again whenever its description changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE # else each of the many processes that tests start compiles all that it loads

.DEFAULT_GOAL := help
.PHONY: help setup demo chromium loops test test-deployment lint format bench bench-federation docs clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "fedlu needs Python 3.10 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (a minute or two, once)"
	@$(PIP) pip  # the one that Python brings takes twice as long for the rest
	@$(PIP) -e '.[dev]'
	@touch $@

setup: $(READY)  ## make the environment that the other targets use

demo: $(READY)  ## the whole story on a medical graph (UMLS): learn alone and together, forget, audit, report
	$(BIN)/fedlu demo --out demo

chromium: $(READY)
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	  echo "installing chromium for the browser tests" && { apt-get install -qq -y --no-install-recommends chromium >/dev/null || \
	  { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; }; }; } || \
	  echo "no chromium, and apt-get cannot bring it: the browser tests will be skipped"

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

loops: $(READY)
	@$(BIN)/python -m tests.loops

test: chromium  ## lint, then all tests, four files at a time: some wait more than they work
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint loops
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-deployment: $(READY)  ## also the long stories: FLARE stopped and taken up, the walk-through; all loops compiled anew
	FEDLU_LONG_TESTS=1 $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder tests/flare tests/results/test_compiling.py

format: $(READY)  ## let ruff format and mend the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure speed; tables on the screen, JSON under benchmarks/results
	$(BIN)/python -m benchmarks.ranking
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.scaling

docs: $(READY)  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench-federation: $(READY)  ## measure what an exchange between machines costs, and 100 clients in one process
	$(BIN)/python -m benchmarks.federation

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) demo site benchmarks/results .mypy_cache .ruff_cache .pytest_cache .hypothesis
