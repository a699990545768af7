# Every target sets up what it needs: a .venv of its own, made once and again whenever its description changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench bench-federation clean

help:  ## show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "fedlu needs Python 3.10 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (a minute or two, once)"
	@PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

setup: $(READY)  ## make the environment that the other targets use

demo: $(READY)  ## a real medical graph (UMLS): two federations of it, described; embeddings learned over one
	@rm -rf demo && mkdir demo
	$(BIN)/fedlu partition umls --clients 3 --by cluster --forget 0.01 --out demo/umls-cluster
	$(BIN)/fedlu partition umls --clients 3 --by random --forget 0.01 --out demo/umls-random
	$(BIN)/fedlu describe demo/umls-cluster demo/umls-random --plot demo/degrees.png
	$(BIN)/fedlu learn demo/umls-random --set rounds=20 --set warm_rounds=8 --out demo/run

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict

test: lint  ## lint, then all tests
	$(BIN)/python -m pytest

format: $(READY)  ## let ruff format and mend the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)  ## measure speed; tables on the screen, JSON under benchmarks/results
	$(BIN)/python -m benchmarks.ranking
	$(BIN)/python -m benchmarks.training

bench-federation: $(READY)  ## measure what an exchange between machines costs, and 100 clients in one process
	$(BIN)/python -m benchmarks.federation

clean:  ## remove the environment and everything generated
	rm -rf $(VENV) demo benchmarks/results .mypy_cache .ruff_cache .pytest_cache .hypothesis
