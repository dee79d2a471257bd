# Two commands: `make run` to run the curriculum here, `make test` to check everything. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The first interpreter of a supported version; `make PYTHON=/path/to/python3.12 run` overrides it.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for p in python3 python3.12 python3.13 python3.11; do \
	command -v $$p >/dev/null && $$p -c '$(SUPPORTED)' && echo $$p && break; done)
# How many processes run the tests, a core and a gigabyte each; none starts threads of its own. `make JOBS=1 test` runs one.
# nproc counts threads where OMP_NUM_THREADS is set, as on many clusters.
JOBS ?= $(shell n=$$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc); echo $$((n < 4 ? n : 4)))
test: export OMP_NUM_THREADS := 1
# Quieter, and never a question in the middle of a long set-up.
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

PIP_LOCK := UV_CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/uv pip compile --quiet --python-platform linux --python-version 3.11 \
	--annotation-style line

# pip with a line every ten seconds: its last step and how much is in place. What it wrote is shown when it fails.
define INSTALL
( while sleep 10 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
	echo "  $$(grep -E 'Collecting|Downloading|Installing' $(VENV)/pip.log | tail -n 1 | sed 's/^ *//; s/-[a-z0-9]*-[a-z0-9]*-[^ ]*whl//; s/ collected packages:.*//' \
	| cut -c 1-90), $$(du -sm $(VENV) 2>/dev/null | cut -f 1) MB in place" || true; done ) & \
ticker=$$!; trap "kill $$ticker 2>/dev/null || true" EXIT; \
$(BIN)/python -u -m pip install --progress-bar off $(1) > $(VENV)/pip.log 2>&1 || { tail -n 20 $(VENV)/pip.log >&2; exit 1; }
endef

.PHONY: help run test lab book lock setup browser check-python clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## set up, run every notebook on this machine, build the book
	@$(BIN)/python -m cutetut run
	@$(MAKE) --no-print-directory book

test: $(READY) browser ## set up, run every check
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --durations=10 $(if $(filter-out 1,$(JOBS)),-n $(JOBS) --dist loadscope)

lab: $(READY) ## open JupyterLab on the notebooks (LAB="--no-browser --ip=0.0.0.0": options for it)
	@# Not in notebooks/ itself: their links to the book's pages lead out of it.
	$(BIN)/jupyter lab $(LAB) $(if $(filter 0,$(shell id -u)),--allow-root) --LabApp.default_url=/lab/tree/notebooks

book: $(READY) ## build the book from the recorded outputs
	@# --all: a page that failed is not read again by a partial build, which would then succeed without it.
	@$(BIN)/jupyter-book build . --all -W -n --keep-going --quiet
	@echo "The book: file://$(CURDIR)/_build/html/index.html"

lock: $(READY) ## after a change to pyproject.toml: pin all packages, new ones too (UPGRADE=--upgrade for newer versions)
	@$(BIN)/python -m pip install --quiet uv==0.13.9
	$(PIP_LOCK) $(UPGRADE) --extra course --extra book --extra test pyproject.toml -o requirements.txt
	$(PIP_LOCK) $(UPGRADE) --group docs -c requirements.txt -o book/requirements.txt

setup: $(READY)

clean: ## remove what was built (not .venv)
	rm -rf _build .cache

# A set-up that was interrupted leaves $(VENV)/.installing behind; the next one then starts afresh.
# Where the system's Python already has a torch that sees a GPU, or with SYSTEM_TORCH=1, that torch is used.
$(READY): requirements.txt pyproject.toml
	@$(MAKE) --no-print-directory check-python
	@if [ -e $(VENV)/.installing ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		flags=; \
		if [ -n "$(SYSTEM_TORCH)" ] \
			|| $(PYTHON) -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then \
			echo "Using this Python's torch$(if $(SYSTEM_TORCH),, which sees a GPU)."; flags=--system-site-packages; fi; \
		echo "Creating $(VENV) with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv --clear $$flags $(VENV); \
	fi
	@touch $(VENV)/.installing
	@echo "Installing the pinned packages (the first time takes some minutes)"
	@if grep -q 'include-system-site-packages = true' $(VENV)/pyvenv.cfg; then \
		grep -v '^torch==' requirements.txt; else cat requirements.txt; fi > $(VENV)/requirements.txt
	@$(call INSTALL,-r $(VENV)/requirements.txt)
	@$(call INSTALL,--no-deps -e .)
	@rm $(VENV)/.installing
	@touch $@

check-python:
	@if ! "$(PYTHON)" -c '$(SUPPORTED)' 2>/dev/null; then \
		asked="$(or $(PYTHON),python3)"; found=$$("$$asked" --version 2>/dev/null | head -n 1 || true); \
		echo "cutetut needs Python 3.11, 3.12 or 3.13; $$asked is $${found:-not a Python here}." >&2; \
		echo "Install one of them, then: make PYTHON=/path/to/python3.12 run" >&2; exit 1; fi

# Sees to it that the tests have a browser: the machine's own, else one that npm and PyPI carry.
browser: $(READY)
	@PYTHONPATH=.:book/_ext $(BIN)/python -m tests.book.browser
