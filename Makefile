# Needs python3.11 (with venv), git and make; tests need a C++ compiler. Everything else is installed into .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin

# What was installed, and from which state of these files: a stamp older than one of them is made again.
INPUTS := pyproject.toml setup.py constraints.txt $(wildcard tracekit/read/decode/native/*.?pp tracekit/render/perfetto/*.?pp)
DEMO_READY := $(VENV)/.ready-demo
TEST_READY := $(VENV)/.ready-test
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Images for containers set it. Then each of the hundreds of processes that tests start would compile tracekit again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-torch fuzz sanitized gpu check docs package-check reports notebook bench studies clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO_READY) ## Train a small model on two processes and analyse it (installs core and torch)
	$(BIN)/tracekit demo

# Tests run in as many processes at a time; CI has two processors.
WORKERS := 2

test: $(TEST_READY) ## Run the tests of every change (installs every extra, 2 GB)
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not long and not gpu'

test-all: $(TEST_READY) ## Run all tests: with fuzzing and the cross-checks, but for those of `make gpu`
	$(BIN)/python -m pytest -n $(WORKERS) -m 'not gpu' --hypothesis-profile 'new examples'

# Apart from CI, which has the one version of constraints.txt.
test-torch: ## Run the tests that record with another torch, in an environment of its own (5 GB): TORCH=2.15.0
	@test -n "$(TORCH)" || { echo "which version? For example: make test-torch TORCH=2.15.0" >&2; exit 2; }
	WORKERS=$(WORKERS) .ci/test-torch $(TORCH) $(PYTHON)

# Each of the three runs so long. Inputs follow from the seed, which findings name.
MINUTES := 20
SEED := $(shell date +%s)
FUZZ = --minutes $(MINUTES) --seed $(SEED)
SANITIZED = $(BIN)/python -m tests.fuzz.sanitized build/sanitized

fuzz: $(TEST_READY) ## Mutate traces and columns until time is over: MINUTES=60; what is found stays in build/fuzz
	failed=0; \
	$(SANITIZED) tests.fuzz.decoders $(FUZZ) tests/data/*/*.gz tests/data/*/*/*.gz || failed=1; \
	$(SANITIZED) tests.fuzz.encoder $(FUZZ) || failed=1; \
	$(BIN)/python -m tests.fuzz.command_line $(FUZZ) || failed=1; \
	exit $$failed

sanitized: $(TEST_READY) ## Build both extensions with AddressSanitizer and UndefinedBehaviorSanitizer, in build/sanitized
	$(SANITIZED)

# One after the other: two tests at a time on one device would change what they measure.
gpu: $(TEST_READY) ## Run the tests that need GPUs and write reports/gpu; without a GPU they say so and nothing is written
	$(BIN)/python -m pytest -n 0 -m gpu -p tests.gpu.report tests/gpu

check: $(TEST_READY) ## Lint, format, types, seams, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

# The variable is of the theme, which advertises its successor at each build. With `--quiet` a warning would not fail.
docs: $(TEST_READY) ## Write what docs/ has of the code, and build docs and gallery as a site in build/site
	$(BIN)/python -m docs.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

package-check: $(TEST_READY) ## Build wheel and sdist, run each in an empty environment, with newest and oldest versions
	WORKERS=$(WORKERS) .ci/package-check $(BIN)/python

# RUNS='ddp fsdp' runs only these again
reports: $(TEST_READY) ## Run the probes again and rebuild the gallery in reports/
	$(BIN)/python reports/rebuild.py $(RUNS)

notebook: $(TEST_READY) ## Run docs/notebook.ipynb again and write what it shows
	$(BIN)/python -m tests.notebook

# BENCH='growth --quick', for example, or BENCH='--tracelens DIR'
bench: $(TEST_READY) ## Measure what analysing costs: against HTA, the limit, growth (needs TRACEKIT_REAL_TRACES)
	$(BIN)/python -m benchmarks --json build/bench.json $(BENCH)

# GPU_JOBS= makes the study of simulated GPU jobs a full one (up to 40 minutes), REAL_JOBS= that of processes (15)
GPU_JOBS := --quick
REAL_JOBS := --quick

studies: $(TEST_READY) ## Measure what recording and matching cost, and how often reports and verdicts are right
	$(BIN)/python -m benchmarks.studies.capture_overhead
	$(BIN)/python -m benchmarks.studies.across_ranks
	$(BIN)/python -m benchmarks.studies.real_jobs $(REAL_JOBS)
	$(BIN)/python -m benchmarks.studies.healthy_pipelines
	$(BIN)/python -m benchmarks.studies.gpu_jobs $(GPU_JOBS)
	$(BIN)/python -m benchmarks.studies.certainty
	$(BIN)/python -m benchmarks.studies.compare_runs --quick
	$(BIN)/python -m benchmarks.studies.damaged_runs

clean: ## Remove the environment, build output and caches; recordings stay
	rm -rf $(VENV) .venv-torch-* build dist *.egg-info .coverage* .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(DEMO_READY): $(INPUTS) | $(BIN)/python
	$(INSTALL) --editable . torch
	touch $@

# The extra dev holds the demo's torch, too. DeepSpeed's setup imports torch, so it comes second and without an environment of its
# own to be built in; none of its C++ operators are built.
$(TEST_READY): $(INPUTS) | $(BIN)/python
	$(INSTALL) --editable '.[all,dev,docs]'
	DS_BUILD_OPS=0 $(INSTALL) --no-build-isolation deepspeed
	touch $@ $(DEMO_READY)
