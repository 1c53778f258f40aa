# python3 and make are all that is needed: the first target that needs it makes .venv.
.DEFAULT_GOAL := help
BIN := .venv/bin
# Hypothesis draws the same examples each time, so that a change is judged and not luck; "make test DRAWS=default" draws anew.
DRAWS ?= ci
# Tests start hundreds of processes: without bytecode on the disk each would compile all modules anew.
export PYTHONDONTWRITEBYTECODE =
MANIFESTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)

.PHONY: help demo test slow third-party newest lint wheels bench docs formal clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 13

.venv/.stamp: $(MANIFESTS) .ci/bootstrap.py
	@python3 .ci/bootstrap.py
	@touch $@

demo: .venv/.stamp  ## solve, verify and explain the embedded city
	@$(BIN)/python docs/examples/city/demo.py

test: .venv/.stamp  ## the whole suite
	@$(BIN)/python -m pytest -q -n auto --hypothesis-profile $(DRAWS)

slow: .venv/.stamp  ## the tests that take minutes each
	@$(BIN)/python -m pytest -q -n auto -m slow

third-party: .venv/.stamp  ## a new plugin and a third party's, in a clean environment with built wheels
	@$(BIN)/python -m pytest -q -m slow tests/third_party

newest: .venv/.stamp  ## demo, JSON and kit with the newest versions, and on each Python; before each release
	@$(BIN)/python .ci/newest.py
	@$(BIN)/python .ci/pythons.py

lint: .venv/.stamp  ## ruff and strict types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

docs: .venv/.stamp  ## the documentation as pages, in site/
	@$(BIN)/mkdocs build --strict --quiet

formal: .venv/.stamp  ## prove docs/proof by Coq and build privopt-kernel; installs Debian's packages where it may
	@python3 .ci/formal.py

wheels: .venv/.stamp  ## all wheels, the same bytes each time, and a bill of what they stand on, in dist/
	@$(BIN)/python .ci/wheels.py

bench: .venv/.stamp  ## our solvers against others on the same instances; writes docs/benchmarks.md
	@$(BIN)/python tests/bench/bench_optimal.py

clean:  ## everything that make made
	rm -rf .venv .tools uv.lock demo-out site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
