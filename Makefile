# Each target first makes .venv if it is missing, out of date, or was moved here from elsewhere.
#
#   make compare ARGS="--budget 10m"    ARGS is passed to the command that a target runs

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(CURDIR)/.venv/bin:$(PATH)
ifeq ($(shell id -u),0)
# As .venv/bin/activate does: Open MPI refuses root without both.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
endif

ARGS ?=
READY := .venv/ready
# Scripts in .venv hold its absolute path, so a .venv that was made elsewhere is out of date.
made_here = $(if $(filter $(CURDIR),$(shell head -n 1 $(1) 2>/dev/null)),,remake)
SET_UP_BY := scripts/setup scripts/horovod.lock scripts/horovod.cmake scripts/check_horovod.py \
		scripts/configure_mpi.py

.PHONY: help setup compare tax estimator site test test-all test-fast check lock clean remake

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY) ## make .venv (every other target does so by itself)

$(READY): requirements.lock $(SET_UP_BY) scripts/listen.c setup.cfg pyproject.toml $(call made_here,$(READY))
	@scripts/setup

compare: $(READY) ## Horovod against tf.distribute on this machine, and a report
	@ringside compare $(ARGS)

tax: $(READY) ## what Ringside itself costs, against hand-written scripts
	@python benchmarks/tax.py $(ARGS)

# It needs no .venv, but one of its own: TensorFlow 2.15 is the last with an Estimator, Python 3.11 the last for that.
OLD := estimator/.venv

estimator: $(OLD)/ready ## one model through TensorFlow 2.15's Estimator under each stack, against serial
	@$(OLD)/bin/python estimator/compare.py

$(OLD)/ready: estimator/requirements.lock $(SET_UP_BY) $(call made_here,$(OLD)/ready)
	@scripts/setup estimator 3.11

# Three on two cores: much of what is tested waits, for a launcher, a lost host, or a deadline.
PYTEST := pytest -n 3 --dist loadfile --no-loadscope-reorder

test: $(READY) ## every test that is not marked nightly, three files at a time
	@$(PYTEST) -m "not nightly" $(ARGS) tests

test-all: $(READY) ## every test, also those marked nightly
	@$(PYTEST) $(ARGS) tests

test-fast: $(READY) ## tests without TensorFlow and long simulations, in a minute
	@pytest -n 2 -m "not slow and not nightly" $(ARGS) tests/unit

site: $(READY) ## the pages of docs/ as a site: build/site/index.html, to be read without a network
	@NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --site-dir build/site

check: $(READY) site ## format, lint, types, who imports whom, links, words; builds the site
	@ruff format --check .
	@ruff check .
	@mypy
	@lint-imports
	@python scripts/check_links.py
	@python scripts/check_words.py

# uv is installed only for this command. Its version decides the text of the lock, so it is pinned here.
# Versions of the present lock are kept if they still fit; ARGS=--upgrade takes the newest.
# --universal: for every Python from 3.11 on.
lock: ## requirements.in -> requirements.lock, the same in estimator/, and scripts/horovod.lock
	@temporary=$$(mktemp -d); trap 'rm -rf "$$temporary"' EXIT; \
	$${PYTHON:-python3} -m venv "$$temporary"; \
	"$$temporary/bin/pip" install --quiet uv==0.13.8; \
	export UV_CUSTOM_COMPILE_COMMAND="make lock"; \
	"$$temporary/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-annotate $(ARGS) requirements.in --output-file requirements.lock; \
	"$$temporary/bin/uv" pip compile --quiet --python-version 3.11 --generate-hashes \
		--no-annotate $(ARGS) estimator/requirements.in --output-file estimator/requirements.lock; \
	grep -o '^horovod==[^ ]*' scripts/horovod.lock | "$$temporary/bin/uv" pip compile --quiet \
		--python-version 3.11 --generate-hashes --no-deps - --output-file scripts/horovod.lock

clean: ## remove each .venv and caches (compiled wheels of Horovod stay in the user's cache)
	rm -rf .venv $(OLD) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
