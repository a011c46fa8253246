# make demo      see what rhovec does
# make quick     the tests for daily work: the language, the engine and the command line, a minute
# make test      all tests, under ten minutes on two cores
# make soak      kill loops, long fuzzing and large sizes, minutes; writes results/soak.*
# make lint      formatting, style and types
# make bench     the exact engine against other libraries: same work, same run
# make agreement agreement with other libraries: conventions, and rtamt through the translation
# make package   wheel and sdist, and the wheel tried in an environment of its own
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo quick test chromium soak lint bench agreement package clean

demo: $(VENV)/user
	$(BIN)/rhovec demo

QUICK := tests/formula tests/robustness/test_cpu.py tests/test_architecture.py tests/test_traces.py \
  tests/test_measure.py tests/test_compare.py tests/test_library.py tests/test_cli.py \
  tests/test_cli_compare.py tests/test_cli_similarity.py
LARGE := levels or depth or deep or memory or long_traces or brute_force or picture or every_operator \
  or any_text or cover

quick: $(VENV)/developer
	$(BIN)/python -m pytest -x --hypothesis-profile=quick -k "not ($(LARGE))" $(QUICK)

test: $(VENV)/developer chromium
	$(BIN)/python -m pytest -n auto --dist loadfile

# Pages are tried in a browser; without one, these tests fail and say so.
chromium:
	@for name in $${CHROMIUM:-chromium} chromium-browser google-chrome; do \
	  command -v $$name > /dev/null && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; \
	else \
	  echo "The tests of pages need Chromium: sudo apt-get install chromium, or CHROMIUM=path" >&2; \
	fi

soak: $(VENV)/developer
	$(BIN)/python -m pytest -m soak -s tests/soak

lint: $(VENV)/developer
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/developer
	$(BIN)/python benchmarks/robustness.py

agreement: $(VENV)/developer
	$(BIN)/python benchmarks/agreement.py
	$(BIN)/python benchmarks/translation.py

# PYTHON=python3.13 tries it with another Python.
package: $(VENV)/developer
	rm -rf dist $(VENV)/package
	$(BIN)/python -m hatchling build -d dist
	$(PYTHON) -m venv $(VENV)/package
	$(VENV)/package/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(VENV)/package/bin/python -I tests/installed.py

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
