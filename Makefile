PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n 2 --dist loadgroup
# Nearly all of the suite's time is compilation of small programs: compile them quickly. Results are the same to
# rounding; speed is the benchmarks' business, and they run fully optimized. (Flags of the pinned jaxlib.)
# One thread for LAPACK: its own threads and those of XLA wait for each other where cores are few.
FLAGS := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1
QUICK := OPENBLAS_NUM_THREADS=1 JAX_TRACEBACK_IN_LOCATIONS_LIMIT=0 XLA_FLAGS="$(FLAGS)"

.PHONY: help test thorough lint demo bench notebooks pictures docs clean

help:
	@echo "make demo       guided tour: fits models on real data, writes pictures to demo/"
	@echo "make test       lint, then every test"
	@echo "make thorough   every member of every registry in every precision (half an hour)"
	@echo "make bench      benchmarks against peers; results in benchmarks/results/"
	@echo "make notebooks  run the notebooks and store their output"
	@echo "make pictures   draw the pictures of the README and the tour again"
	@echo "make docs       the documentation as a site in build/site; any warning is a failure"

$(VENV)/installed: pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: $(VENV)/installed
	$(BIN)/python -m probml_jax demo

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

test: lint
	$(QUICK) $(BIN)/python -m pytest $(PYTEST_ARGS)

thorough: lint
	$(QUICK) $(BIN)/python -m pytest $(PYTEST_ARGS) -m "thorough or not thorough"

bench: $(VENV)/installed
	$(BIN)/python -m benchmarks

notebooks: $(VENV)/installed
	$(BIN)/python notebooks/run.py

pictures: $(VENV)/installed
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/tour_pictures.py

docs: $(VENV)/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) .cache demo build dist
