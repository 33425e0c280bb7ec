# One command per task. Each target does its own set-up, so a fresh clone needs only `make`.
.DEFAULT_GOAL := help
.PHONY: help venv java demo test slow check format docs proto bench sim soak clean

DEMO_SECONDS ?= 30
BENCH ?= full
SOAK_SECONDS ?= 600
SOAK_SEEDS ?= 10000
SEEDS ?= 1000
SEED ?= 1
# Twice the cores of a small machine: many tests wait for processes, not for a core.
PYTEST_WORKERS ?= 4

# Where the environment forbids keeping compiled code, every process that a target starts would compile
# all sources anew, which doubles what the start of a broker costs.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMP := .venv/.complete
# What the distribution was called before it was penstock-mq, which an old .venv may still hold.
FORMER_NAME := penstock

help: ## Show this list.
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

venv: $(STAMP) ## Make .venv with every extra; made again only when pyproject.toml changes.

# The first interpreter that runs and is new enough wins; one that was compiled without profiles (as pyenv
# does unless it is asked otherwise) only if there is no other, since everything takes half as long again with
# it. Every extra that pyproject.toml names is installed, so that a new extra needs no change here.
# FORMER_NAME goes first: two distributions with the same package would share its files and the command, and
# the stale one would name a version.
$(STAMP): pyproject.toml
	@python=""; any=""; \
	for candidate in python3 /usr/bin/python3 /usr/local/bin/python3 python3.13 python3.12 python3.11; do \
	  $$candidate -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  any=$${any:-$$candidate}; \
	  if $$candidate -P src/penstock/cli/interpreter.py; then python=$$candidate; break; fi; \
	done; \
	python=$${python:-$$any}; \
	if [ -z "$$python" ]; then \
	  echo "Penstock needs Python 3.11 or newer on PATH, with its module venv, and none was found." >&2; exit 1; \
	fi; \
	set -e; \
	echo "Making .venv with every extra, Spark among them: almost 2 GB, a few minutes the first time."; \
	$$python -m venv .venv; \
	$(BIN)/python -m pip uninstall --quiet --quiet --disable-pip-version-check --yes $(FORMER_NAME); \
	extras=$$($(BIN)/python -c 'import tomllib; print(",".join(tomllib.load(open("pyproject.toml", "rb"))["project"].get("optional-dependencies", {})))'); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$$extras]"; \
	test -x $(BIN)/penstock; \
	touch $(STAMP)

# The JDK wheels on PyPI lack a module that Spark needs, so it has to come from the system.
java: $(STAMP) ## See to it that there is a Java 17 or newer, which Spark needs.
	@if $(BIN)/python -m penstock.spark.java >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -qq --yes --no-install-recommends openjdk-17-jre-headless; \
	else $(BIN)/python -m penstock.spark.java; fi

# Where Java is missing and can't be installed, that is said, and the demonstration does without Spark.
demo: $(STAMP) ## Run the live demonstration for DEMO_SECONDS (default 30).
	@$(MAKE) --no-print-directory java || true
	@DEMO_SECONDS=$(DEMO_SECONDS) $(BIN)/penstock demo

PYTEST := $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist loadgroup --no-loadscope-reorder

test: java ## Run every test but those that are slow and the soaks: ten minutes.
	$(PYTEST) tests

slow: java ## Run the slow tests, as CI does after the others.
	$(PYTEST) --slow -m slow tests

check: $(STAMP) ## Check format, lint, types and the direction of imports.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP) ## Rewrite the sources in the project's format.
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## Write the reference pages that follow from the code, and the dashboards.
	$(BIN)/python -m tests.reference_pages
	$(BIN)/python -m tests.dashboards

# The description that messages.py is built from, and their types.
GRPC := src/penstock/frontdoor/grpc
proto: $(STAMP) ## Compile the gRPC interface, after a change of penstock_v1.proto.
	$(BIN)/python -m grpc_tools.protoc -I $(GRPC) --pyi_out=$(GRPC) \
	  --descriptor_set_out=$(GRPC)/penstock_v1.binpb penstock_v1.proto
	mv $(GRPC)/penstock_v1_pb2.pyi $(GRPC)/messages.pyi

bench: java ## Measure the named workloads; BENCH=quick for a smoke run.
	$(BIN)/python -m benchmarks --mode $(BENCH)

sim: $(STAMP) ## Simulate core, replicas, nodes, queues and locks: SEEDS seeds (1000) from SEED (1) each.
	$(BIN)/python -m tests.sim --seeds $(SEEDS) --seed $(SEED)

# A run of replicas or whole nodes takes about ten times as long as one of the core alone.
soak: java ## Simulate SOAK_SEEDS seeds (10000, half of it for nodes) and run the long tests.
	$(BIN)/python -m tests.sim --layer core --seeds $(SOAK_SEEDS)
	$(BIN)/python -m tests.sim --layer replicas --seeds $$(($(SOAK_SEEDS) / 2))
	$(BIN)/python -m tests.sim --layer nodes --seeds $$(($(SOAK_SEEDS) / 2))
	$(BIN)/python -m tests.sim --layer queues --seeds $$(($(SOAK_SEEDS) / 4))
	$(BIN)/python -m tests.sim --layer locks --seeds $$(($(SOAK_SEEDS) / 4))
	$(BIN)/python -m tests.sim --layer power-cut --seeds $$(($(SOAK_SEEDS) / 10))
	$(BIN)/python -m tests.sim --layer flipped-tail --seeds $$(($(SOAK_SEEDS) / 10))
	$(BIN)/python -m tests.sim --layer two-flipped-tails --seeds $$(($(SOAK_SEEDS) / 10))
	SOAK_SECONDS=$(SOAK_SECONDS) OUTAGE_SECONDS=60 $(BIN)/python -m pytest --soak -m soak tests

clean: ## Remove everything that the targets above made.
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf benchmarks/results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
