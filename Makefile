# Everything a developer or a newcomer runs. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SGLANG_VERSIONS ?= 0.5.23 0.5.4
# Where torch comes from for the SGLang environments; set it where the usual index offers CUDA builds only:
#   make sglang-env TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=

.PHONY: help demo demo-sglang test coverage test-stories lint format bench bench-detect bench-attribution sglang-env clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/stamp: pyproject.toml constraints.txt deploy/sglang-plugin/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --constraint constraints.txt --group dev --editable . --editable deploy/sglang-plugin
	touch $@

demo: $(VENV)/stamp ## show the daemon finding a slowdown in recorded cycles of a real SGLang
	$(BIN)/cyclewatch demo

sglang-env: $(VENV)/stamp ## install the real SGLang for the CPU (about 2.7 GB a version)
	for version in $(SGLANG_VERSIONS); do \
		$(BIN)/python tests/sglang_cpu/build_env.py $$version .sglang/$$version $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX)) || exit 1; \
	done

demo-sglang: sglang-env ## the same against a real SGLang on the CPU
	PYTHONPATH=tests $(BIN)/python -m sglang_cpu.demo

test: $(VENV)/stamp ## run every test; builds the SGLang environments when it can
	-$(MAKE) sglang-env
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit --numprocesses=2
	$(BIN)/python -m pytest tests/integration -m "not sglang and not story" --numprocesses=3 --dist=loadfile  # they wait more than they work
	$(BIN)/python -m pytest tests/integration -m "sglang and not story" --durations=0 --durations-min=5

coverage: $(VENV)/stamp ## run the unit tests again, twice as slowly, and tell what they do not reach
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest tests/unit --numprocesses=2 --cov --cov-report=term --cov-fail-under=85

test-stories: sglang-env ## run the long tests: the real SGLang, and a database that goes away
	$(BIN)/python -m pytest -m story -s

lint: $(VENV)/stamp ## check style, types and the order of the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks deploy/sglang-plugin/cyclewatch_sglang.py deploy/grafana
	$(BIN)/lint-imports

format: $(VENV)/stamp ## put the code into its form
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/stamp ## measure the costs, side by side with what else one might use
	$(BIN)/python benchmarks/hook_cost.py
	$(BIN)/python benchmarks/reader_cost.py
	$(BIN)/python benchmarks/inquiry_cost.py
	$(BIN)/python benchmarks/host_cost.py
	$(BIN)/python benchmarks/gpu_cost.py
	$(BIN)/python benchmarks/probe_cost.py
	$(BIN)/python benchmarks/store_upkeep.py
	$(BIN)/python benchmarks/store_years.py
	$(BIN)/python benchmarks/spool_start.py
	$(BIN)/python benchmarks/daemon_memory.py
	$(BIN)/python benchmarks/daemon_cost.py
	$(BIN)/python benchmarks/metrics_page.py
	$(BIN)/python benchmarks/incident_passes.py
	$(BIN)/pip install --quiet --constraint constraints.txt --group bench-profiles
	$(BIN)/python benchmarks/profile_parse.py
	$(BIN)/python benchmarks/kernel_compare.py

# Part of it: make bench-detect BENCH_DETECT="power --quick --only ours"
bench-detect: $(VENV)/stamp ## hold the detection against its peers and against what is possible
	$(BIN)/pip install --quiet --constraint constraints.txt --group bench-detect
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps apache-otava # pyproject.toml says why
	PYTHONPATH=benchmarks $(BIN)/python -m detect $(BENCH_DETECT)

# Part of it: make bench-attribution BENCH_ATTRIBUTION="--seeds 5 --only straggler --wrong"
bench-attribution: $(VENV)/stamp ## count how often the right cause is named, on simulated faults
	PYTHONPATH=benchmarks $(BIN)/python -m attribution $(BENCH_ATTRIBUTION)

clean: ## remove what the targets above made
	rm -rf $(VENV) .sglang .demo .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
