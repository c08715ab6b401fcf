# Everything runs in .venv, which is made on first use from any Python >= 3.11 that works.
# Modules are run with `python -m`, so that a moved checkout does not trip over old shebangs.

VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PYTHON := $(BIN)/python
# Where to look for a Python to make .venv from; override with BASE_PYTHON=/path/to/python.
BASE_PYTHON ?= python3.13 python3.12 python3.11 python3 python

.DEFAULT_GOAL := help
.PHONY: help run demo test test-all test-cuda test-pythons lint format bench dist docs screenshots java chromium clean distclean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | \
	  while IFS=@ read -r name text; do printf '%-18s %s\n' "$$name" "$$text"; done

run: $(READY) java  ## Run the pipeline on Spark: a synthetic market feed against alerts
	@$(PYTHON) -m boxmatch pipeline run $(ARGS)

demo: $(READY)  ## Run the engine alone: 100,000 ticks against 1,000,000 subscriptions
	@$(PYTHON) -m boxmatch demo $(ARGS)

# Java starts Spark in half the time if its classes are archived; without, tests are slower.
ARCHIVE := $(VENV)/spark.jsa
$(ARCHIVE): $(READY) | java
	@$(PYTHON) tests/spark/class_archive.py $@ >/dev/null 2>&1 || true

# A file of tests runs in one process. Files go out in their order, of which the last are short.
PYTEST := $(PYTHON) -m pytest -q -n logical --dist loadfile --no-loadscope-reorder

test: $(READY) java chromium  ## Lint, check types, run the tests (what CI runs)
	@$(MAKE) --no-print-directory -j2 lint $(ARCHIVE)
	@$(PYTEST) -m "not slow" $(ARGS)

CARD_SUITES := tests/cuda tests/indexes/test_conformance.py tests/indexes/test_large.py tests/indexes/test_skipped_predicates.py

test-all: $(READY) java chromium  ## The same, including the slow tests, then on the other installed Pythons
	@$(MAKE) --no-print-directory -j2 lint $(ARCHIVE)
	@$(PYTEST) $(ARGS)
	@$(MAKE) --no-print-directory test-pythons

# Each gets an environment of its own, .venv-3.12 for example; those of pyenv are found too.
test-pythons: $(READY)  ## Run the tests on the other supported Pythons that are installed
	@mine=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'); \
	for version in 3.11 3.12 3.13; do \
	  if [ $$version = $$mine ]; then continue; fi; \
	  python=$$(command -v python$$version || ls -d "$$HOME"/.pyenv/versions/$$version.*/bin/python 2>/dev/null | tail -1); \
	  if [ -z "$$python" ]; then echo "Python $$version is not installed, so it is not tested" >&2; continue; fi; \
	  echo "Python $$version"; \
	  $(MAKE) --no-print-directory test VENV=.venv-$$version BASE_PYTHON="$$python" || exit 1; \
	done

test-cuda: $(READY)  ## Run the suites of the indexes and of matching on the graphics card of this machine
	@BOXMATCH_TEST_DEVICE=cuda $(PYTHON) -m pytest -q -k "tile or card" $(CARD_SUITES) $(ARGS)

lint: $(READY)  ## Check style, format and types
	@$(PYTHON) -m ruff check
	@$(PYTHON) -m ruff format --check
	@$(PYTHON) -m mypy

format: $(READY)  ## Format the code and apply the safe fixes
	@$(PYTHON) -m ruff check --fix
	@$(PYTHON) -m ruff format

bench: $(READY)  ## Run the default benchmark; ARGS="cpp --json out.jsonl" for others
	@$(PYTHON) -m boxmatch bench $(ARGS)

dist: $(READY)  ## Build the source distributions and wheels of boxmatch and boxmatch-bench into dist/
	@$(PYTHON) -m build --no-isolation --outdir dist $(ARGS) .
	@$(PYTHON) -m build --no-isolation --outdir dist $(ARGS) bench

docs: $(READY)  ## Build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build $(ARGS)
	@echo "site/index.html is the first page; to search, serve it: $(PYTHON) -m http.server --directory site"

screenshots: $(READY) chromium  ## Take the pictures of the dashboard in docs/images/
	@$(PYTHON) docs/screenshots.py $(ARGS)

# What pip cannot install, a Debian package and what needs it: root gets it, others are told.
define system_package
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
  echo "Installing $(1) with apt-get (once, a minute or so)"; \
  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends $(1); } >/dev/null 2>&1 \
    || { echo "apt-get cannot install $(1): $(2)" >&2; exit 1; }; \
else \
  echo "$(2): install it (on Debian and Ubuntu: apt install $(1))" >&2; \
  exit 1; \
fi
endef

java:
	@if [ -z "$$JAVA_HOME" ] && ! command -v java >/dev/null 2>&1; then \
	  $(call system_package,openjdk-17-jre-headless,Spark needs Java 17 or later on the PATH or at JAVA_HOME); \
	fi

chromium:
	@if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1; then \
	  $(call system_package,chromium,the tests of the dashboard need Chromium); \
	fi

clean:  ## Remove caches and build output, keep .venv
	@rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find src bench tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean  ## Remove the virtual environments as well
	@rm -rf $(VENV) .venv-*

# The stamp is written last, so a set-up that was cut short is done again; so is one of a checkout
# that was moved since, or whose Python is gone. An existing .venv is kept as long as its Python
# and pip run.
ifneq ($(shell test -x $(PYTHON) && cat $(READY) 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

$(READY): pyproject.toml bench/pyproject.toml
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then :; else \
	  base=; \
	  for p in $(BASE_PYTHON); do \
	    if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	    then base="$$p"; break; fi; \
	  done; \
	  if [ -z "$$base" ]; then \
	    echo "boxmatch needs Python 3.11 or later: install it, or name it with make BASE_PYTHON=/path/to/python" >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$("$$base" --version)"; \
	  "$$base" -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	    rm -rf $(VENV); \
	    echo "$$base cannot make virtual environments: install its venv module (on Debian and Ubuntu: apt install python3-venv)" >&2; \
	    exit 1; \
	  }; \
	fi
	@echo "Installing boxmatch and its development tools into $(VENV) (once, a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --editable bench || { \
	  echo "pip cannot install what $(VENV) needs (above is why; it needs the network): make again goes on from here" >&2; \
	  exit 1; \
	}
	@echo '$(CURDIR)' >$@
