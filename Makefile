# The commands of a working day. `make demo` and `make test` need nothing but Debian 12 or 13 and root or sudo.
# Variables: JOBS=<n> parallel compilers, BENCH=<name>, FORCE=1 runs tests again that have passed on this very tree,
# PYTHON=<interpreter for .venv>, SKIP_PACKAGES=1 leaves system packages alone.

SHELL := /bin/bash
.DEFAULT_GOAL := help
JOBS ?= $(shell nproc)
BUILD := build
PY := .venv/bin/python
BENCHES := $(filter-out _%,$(patsubst tests/bench/%.py,%,$(wildcard tests/bench/*.py)))

.PHONY: help setup build demo test serve bench lint format clean

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' Makefile | awk -F'|' '{ printf "make %-7s %s\n", $$1, $$2 }'

setup: ## system packages, .venv and the Python packages: only what is missing
	@bash deploy/setup.sh

build: setup ## setup, then everything into build/, linked into .venv as the package stepone
	@if [ ! -f $(BUILD)/build.ninja ] || [ CMakePresets.json -nt $(BUILD)/build.ninja ] || \
	    [ .venv/requirements.stamp -nt $(BUILD)/build.ninja ]; then \
	  echo "== Configure: cmake --preset release"; cmake --preset release; fi
	@echo "== Build: ninja with $(JOBS) jobs into $(BUILD)/"
	@cmake --build --preset release --parallel $(JOBS)
	@$(PY) deploy/link_package.py $(BUILD)

demo: build ## build, then a small GPT-2 with transformers.Trainer: eager, through the service, and from its cache
	@$(PY) -m stepone.demo

test: build ## build, then all tests: ctest, then pytest
	@$(PY) tests/run.py --build $(BUILD) --jobs $(JOBS) $(if $(FORCE),--force)

serve: build ## build, then a server in the foreground with deploy/config/dev.toml
	@$(BUILD)/bin/stepone-server --config deploy/config/dev.toml

bench: ## build (its output on standard error), then JSON lines of BENCH=name, or of all benchmarks
	@$(MAKE) --no-print-directory build 1>&2
	@for bench in $(or $(BENCH),$(BENCHES)); do \
	  [ -f tests/bench/$$bench.py ] || { echo "no benchmark $$bench; there are: $(BENCHES)" >&2; exit 2; }; \
	  echo "== Benchmark: $$bench" >&2; $(PY) tests/bench/$$bench.py || exit 1; \
	done

lint: setup ## layering, file lists and sizes, getenv, format, words
	@$(PY) tests/lint/run.py

format: setup ## formats all C++ in place, as lint wants it
	@git ls-files -z '*.h' '*.cc' | xargs -0 clang-format-19 -i

clean: ## removes what build and test made; .venv and the compiler cache stay
	@rm -rf $(BUILD) build-dev build-asan build-tsan
