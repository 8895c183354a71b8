# `make demo` and `make test` work on a bare machine with Python >= 3.11: they make .venv and install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT ?= out

.PHONY: demo test test-long bench validate lint docs clean

demo: $(VENV)/.installed
	@mkdir -p $(OUT)
	$(BIN)/jaxperf rank llama-3-70b --devices 'all(memory >= 24 GB, memory_bandwidth >= 300 GB/s)' --slo ttft=2s,tpot=50ms --plot $(OUT)/ranking.png
	$(BIN)/jaxperf sweep benchmarks/million.yaml -o $(OUT)/million.parquet --plot $(OUT)/pareto.png

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

test-long: $(VENV)/.installed
	$(BIN)/python -m pytest -n auto --dist loadfile -m long

bench: $(VENV)-bench/.installed
	$(VENV)-bench/bin/python -m benchmarks

validate: $(VENV)/.installed
	$(BIN)/python -m pytest -m validation

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

docs: $(VENV)/.installed-dev
	$(BIN)/mkdocs build --strict

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@

# Of its own: llm-analysis needs a transformers older than the one the tests check against.
$(VENV)-bench/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/python -m pip install --quiet --editable '.[bench]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench $(OUT) build dist
