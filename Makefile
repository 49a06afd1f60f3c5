# Two commands do everything, set-up included: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check bench docs fuzz kills study clean

demo: .venv/demo
	$(BIN)/layerscout demo

test: check
	$(BIN)/pytest -n auto

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: .venv/dev
	$(BIN)/python bench/scan.py --write docs/benchmarks.md
	$(BIN)/python bench/tune.py --write docs/benchmarks-tuning.md
	$(BIN)/python bench/methods.py --write docs/benchmarks-methods.md
	$(BIN)/python bench/scores.py --write docs/benchmarks-scores.md
	$(BIN)/python bench/compare.py --write docs/benchmarks-compare.md
	$(BIN)/python bench/study.py --write docs/benchmarks-study.md

# Loaders and notations against files that nobody wrote by hand; about ten minutes.
fuzz: .venv/dev
	FUZZ_EFFORT=50 $(BIN)/pytest -n auto tests/test_fuzz.py

# SIGKILL at random moments, 30 times for each kind of work; about twenty minutes.
kills: .venv/dev
	$(BIN)/python bench/kills.py --write docs/kills.md

docs: .venv/dev
	$(BIN)/python -m typer layerscout.cli utils docs --name layerscout --title 'All options' --output docs/cli.md
	$(BIN)/python -m mkdocs build --strict --site-dir build/docs

study: .venv/dev
	$(BIN)/python bench/trunk_dropout.py --write docs/trunk-dropout.md
	$(BIN)/python bench/estimator.py --write docs/estimator.md

# The picture in README.
docs/scan.svg: .venv/demo
	$(BIN)/layerscout scan demo demo --output layerscout-demo --plot $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

# A stamp a set of extras: installing again is skipped until the requirements change.
.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo]'
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch .venv/demo $@
