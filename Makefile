# Every target does its own set-up; `make` without a target lists all targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# Three processes: one runs the tests of the kernel and Docker one after another, two run all others
# with a lower priority (tests/support/turns.py).
PYTEST := $(BIN)/python -m pytest --numprocesses 3 --dist loadscope

# Hundreds of processes import the same modules: they keep their bytecode, also where Python is told
# not to, as in many containers. pytest writes the assertions of 500 files anew without it.
unexport PYTHONDONTWRITEBYTECODE

# The time that `make fuzz` gives each of its targets.
MINUTES ?= 1

# The cases of `make oracles`: times those of `make test`, and the number of the first one.
FACTOR ?= 4
SEED   ?= $(shell date +%Y%m%d)

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-kernels test-layers test-wheel image cover fuzz oracles bench lint format clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## system packages (as root), tracefs, virtual environment, Python packages
	@PYTHON=$(PYTHON) scripts/setup.sh

demo: setup ## record a real training run and report on it
	@scripts/demo.sh

check: lint ## lint, and the quick tests that need no kernel, Docker or browser
	@$(PYTEST) -m "not kernel and not docker and not browser and not slow" $(PYTEST_ARGS)

test: setup ## every test; kernel tests if the machine allows them (PYTEST_ARGS="-k name")
	@$(PYTEST) $(PYTEST_ARGS)

test-kernels: setup ## other kernels, in QEMU: some minutes each (KERNELS_ARGS="sid --write FILE")
	@$(BIN)/python -m scripts.kernels $(KERNELS_ARGS)

test-layers: setup ## stacked devices and real flush layers, in QEMU: some minutes (LAYERS_ARGS)
	@$(BIN)/python -m scripts.layers $(LAYERS_ARGS)

test-wheel: setup ## the wheel, installed in a minimal Debian (as root, with debootstrap): a minute
	@$(BIN)/python -m scripts.packaging.wheel $(WHEEL_ARGS)

image: setup ## a container image of the tracer, for the Docker daemon (IMAGE_ARGS="--tag NAME")
	@$(BIN)/python -m scripts.packaging.image $(IMAGE_ARGS)

cover: setup ## every test, with coverage of lines and branches
	@$(PYTEST) --cov --cov-report= $(PYTEST_ARGS); status=$$?; \
		$(BIN)/coverage report --skip-covered; exit $$status

fuzz: setup ## fuzz every reader with damaged input, MINUTES=1 each (FUZZ_ARGS="--seed 5 packs")
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES) $(FUZZ_ARGS)

oracles: setup ## the oracles with FACTOR=4 times the cases, other ones each day: 6 min
	@echo "FACTOR=$(FACTOR) SEED=$(SEED)"
	@TRACER_ORACLE_FACTOR=$(FACTOR) TRACER_ORACLE_SEED=$(SEED) $(PYTEST) tests/oracles $(PYTEST_ARGS)

bench: setup ## every benchmark, as JSON
	@for file in benchmarks/*.py; do echo "$$file"; $(BIN)/python $$file --json || exit; done

lint: setup ## ruff, mypy, and the layering of the packages
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: setup ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove the outputs of builds and tests
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
