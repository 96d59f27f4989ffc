# Everything a newcomer needs: `make lab`, `make test`. Both set themselves up in .venv, without root, as often as called.
.DEFAULT_GOAL := help
BIN := .venv/bin
export ENGINE KUBERNETES PURSER_TIER
# Thousands of processes start: without it each compiles Purser anew, and each worker of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-lab lab test gate lint format cluster-test image docs clean

help:  ## Show these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup:
	@scripts/setup

setup-lab:
	@scripts/setup lab

lab: setup-lab  ## Start a cluster on this machine: API server, nodes with simulated GPUs, Purser. ARGS="--help" shows options
	@$(BIN)/purser lab $(ARGS)

test: setup  ## Run the fast test suite (no root, no Kubernetes needed)
	@$(BIN)/python -m tests.gate --fast

gate: setup  ## Run the gate on a clean clone of HEAD, as CI does. LANES="unit lab" runs a part of it
	@$(BIN)/python -m tests.gate --clone $(LANES)

lint: setup  ## Linters, import rules and type checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: setup  ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

cluster-test: setup  ## Tests on a real Kubernetes (root on Debian 12; builds it once, about 15 minutes). KUBERNETES=1.32.x names another release
	$(BIN)/python -m tests.cluster.kubernetes.build
	PURSER_CLUSTER=1 $(BIN)/python -m pytest tests/cluster -p no:randomly -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

image:  ## Build the image with docker, podman or buildah; with syft, its bill of materials too. ENGINE=podman names one; ARGS are the build's, e.g. --build-arg=BASE=...
	@scripts/image $(ARGS)

docs: setup  ## Build the documentation site into site/
	$(BIN)/mkdocs build --strict

clean:  ## Remove everything that setup and builds made
	rm -rf .venv site dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
