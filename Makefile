# Every target does its own set-up; `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint format clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## system packages (as root), tracefs, virtual environment, Python packages
	@PYTHON=$(PYTHON) scripts/setup.sh

demo: setup ## record a real training run and report on it
	@scripts/demo.sh

test: setup ## every test; kernel tests where the kernel is in reach
	@$(BIN)/python -m pytest

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

clean: ## remove what the build and the tests left
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
