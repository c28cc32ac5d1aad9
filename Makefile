# crossbyte: everything a contributor runs. `make` alone lists the targets.
#
#   STRICT=1      compiler warnings in native/ are errors (as in .ci/run)
#   PYTHON=...    the interpreter that makes .venv; otherwise the newest one found, 3.11 or later
#   PYTEST_ARGS=  more arguments for pytest, e.g. PYTEST_ARGS="-k lasso"
#   SCREENSHOTS=  a folder in which `make test-browser` keeps pictures of every page

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules
# Parallel targets would write to one .venv at the same time.
.NOTPARALLEL:

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.crossbyte-installed
BENCH_STAMP := $(VENV)/.crossbyte-bench-installed
RAY_STAMP := $(VENV)/.crossbyte-ray-installed
# The package is installed in editable form: Python sources are read from src/, so only these need a new install.
BUILD_INPUTS := pyproject.toml CMakeLists.txt src/crossbyte/__init__.py native $(wildcard native/*)
NATIVE_SOURCES := $(wildcard native/*.cpp native/*.h native/*.hpp)
PYTHON_SOURCES := $(wildcard src tests benchmarks campaigns examples scripts)
, := ,
STRICT ?=
PYTEST_ARGS ?=
SCREENSHOTS ?=
# Two processes, or more where there are more cores; idle ones take over tests of the others.
PYTEST := $(BIN)/python -m pytest -x -q -n auto --dist worksteal

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start hundreds of processes, which would otherwise compile every module again where a machine sets this.
unexport PYTHONDONTWRITEBYTECODE

# A shim or a system Python may be on PATH and still not run, or lack the parts that make a virtual environment.
FIND_PYTHON = for candidate in "$(PYTHON)" python3.13 python3.12 python3.11 python3 python; do \
  if [ -n "$$candidate" ] && "$$candidate" -c \
    'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
    echo "$$candidate"; exit 0; fi; done; \
  echo "make: no Python 3.11 or later (with venv and ensurepip) found on PATH; install one or set PYTHON=" >&2; exit 1

# Can C++17 be compiled against this Python? Then a build that loses the extension is an error, not a fallback.
CAN_COMPILE = printf '\#include <Python.h>\n\#include <vector>\nint main() {}\n' | \
  $${CXX:-c++} -x c++ -std=c++17 -fsyntax-only \
  -I"$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')" - >/dev/null 2>&1

# $(call install,extras)
define install
if $(CAN_COMPILE); then \
  echo "== installing crossbyte[$(1)] with its native extension"; \
  CROSSBYTE_REQUIRE_NATIVE=1 $(BIN)/python -m pip install --quiet --editable '.[$(1)]' \
    $(if $(STRICT),--config-settings=cmake.define.CROSSBYTE_WERROR=ON); \
else \
  echo "== no working C++ compiler: installing crossbyte[$(1)] in pure Python"; \
  CROSSBYTE_PURE_PYTHON=1 $(BIN)/python -m pip install --quiet --editable '.[$(1)]'; \
fi
endef

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: venv
venv: $(STAMP) ## create .venv and install the package for development (the other targets do it when needed)

# An existing .venv is kept when it works; a broken one or one of an older Python is made anew. The stamp bears
# the time at which the install began, so that an edit made meanwhile still counts.
$(STAMP): $(BUILD_INPUTS)
	@if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  python="$$($(FIND_PYTHON))"; echo "== making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV); fi
	@touch $@.begun
	@$(call install,dev)
	@mv $@.begun $@

$(BENCH_STAMP): $(STAMP)
	@$(call install,dev$(,)faiss)
	@touch $@

.PHONY: demo
demo: $(STAMP) ## see crossbyte at work
	@$(BIN)/python -m crossbyte.demo

.PHONY: test
test: $(STAMP) ## the tests, in minutes
	$(PYTEST) -m "not long" $(PYTEST_ARGS)

.PHONY: test-all
test-all: test ## the tests, the long ones, and all of them once more without the native extension
	$(PYTEST) -m long $(PYTEST_ARGS)
	CROSSBYTE_NO_NATIVE=1 $(PYTEST) -m "not long" $(PYTEST_ARGS)

.PHONY: test-sanitizers
test-sanitizers: $(STAMP) ## the kernel tests under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
	$(BIN)/python scripts/sanitizers.py address
	$(BIN)/python scripts/sanitizers.py thread

# Debian's Chromium where there is none yet and we may install it; elsewhere the message says what is needed.
FIND_CHROMIUM = if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then \
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "== installing Chromium and its driver"; \
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver >/dev/null; \
  else echo "make: the browser tests need chromium and chromedriver on PATH; install both" >&2; exit 1; fi; fi

.PHONY: test-browser
test-browser: $(STAMP) ## the page, in a real browser without a window
	@$(FIND_CHROMIUM)
	CROSSBYTE_SCREENSHOTS="$(SCREENSHOTS)" $(BIN)/python -m pytest -x -q tests/browser $(PYTEST_ARGS)

$(RAY_STAMP): $(STAMP)
	@$(call install,dev$(,)ray)
	@touch $@

.PHONY: test-cluster
test-cluster: $(RAY_STAMP) ## what runs on Ray, with a cluster that it starts here by itself
	$(BIN)/python -m pytest -x -q tests/cluster $(PYTEST_ARGS)

.PHONY: check
check: $(STAMP) ## formatting, lint and types; changes nothing
	$(BIN)/ruff format --check $(PYTHON_SOURCES)
	$(BIN)/ruff check $(PYTHON_SOURCES)
	$(BIN)/mypy
	$(if $(NATIVE_SOURCES),$(BIN)/clang-format --dry-run -Werror $(NATIVE_SOURCES))

.PHONY: format
format: $(STAMP) ## format Python and C++, and mend what ruff can mend
	$(BIN)/ruff check --fix-only --quiet $(PYTHON_SOURCES)
	$(BIN)/ruff format $(PYTHON_SOURCES)
	$(if $(NATIVE_SOURCES),$(BIN)/clang-format -i $(NATIVE_SOURCES))

.PHONY: bench
bench: $(BENCH_STAMP) ## the benchmarks (they read the data in ../shared and compare with FAISS)
	$(BIN)/python -m benchmarks

# Both tools live in an environment of their own: what they need is nothing of ours, and must not be audited as ours.
AUDIT := build/audit

$(AUDIT)/bin/pip-audit:
	@$(BIN)/python -m venv $(AUDIT)
	@$(AUDIT)/bin/python -m pip install --quiet 'pip-audit>=2.10,<3' 'cyclonedx-bom>=7.3,<8'

.PHONY: audit
audit: $(STAMP) $(AUDIT)/bin/pip-audit ## look up published weaknesses of everything that is installed (asks the network)
	$(AUDIT)/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" --skip-editable

.PHONY: sbom
sbom: $(STAMP) $(AUDIT)/bin/pip-audit ## write the software bill of materials of a release, build/crossbyte.cdx.json
	@$(BIN)/python -m venv --clear build/release && build/release/bin/python -m pip install --quiet .
	$(AUDIT)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file build/crossbyte.cdx.json build/release/bin/python

.PHONY: campaigns
campaigns: $(STAMP) ## long searches for what could be lost, torn or wrong; a night, and resumable
	$(BIN)/python -m campaigns

.PHONY: clean
clean: ## remove the environment and everything built
	rm -rf $(VENV) src/crossbyte/_native*.so build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks campaigns examples scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
