# make demo   what rhovec does, on this machine
# make test   all tests
# make lint   formatting, style and types
# make bench  exact engine against other libraries, same work, same run
# make compare  agreement with other libraries
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench compare clean

demo: $(VENV)/user
	$(BIN)/rhovec demo

test: $(VENV)/developer
	$(BIN)/python -m pytest

lint: $(VENV)/developer
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/developer
	$(BIN)/python benchmarks/robustness.py

compare: $(VENV)/developer
	$(BIN)/python benchmarks/compare.py

clean:
	rm -rf $(VENV) .peers

# The stamps say what is installed; each is made again when the requirements change.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/user: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	touch $@

# torch first and alone: with the pinned build in place, nothing else asks for another one.
$(VENV)/developer: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) torch
	$(PIP) --editable ".[dev]"
	touch $@ $(VENV)/user
