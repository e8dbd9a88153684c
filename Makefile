# make run     create the environment, install, and predict the first scenario
# make test    install what the tests need and run them, all but the slow ones
# make slow    run the slow ones
# make thorough  three of half a minute and more, every pair of features by itself, and twenty times
#              as many examples of what holds for all
# make check   all tests but those, and format, lint, strict types and import contracts
# make floors  install the wheel with the oldest dependencies that it allows, and ask the README's
#              questions in an empty folder
# make wheels  dist/: the wheel for every platform, and that of this one with the event loop compiled
#              (three CPU minutes, a C compiler), which then takes the tests of its modules
# make bench   how fast the simulator is, as one JSON line; with MILLION=1 also the memory that a
#              million requests take
# make docs    the documentation as a site that opens from the disk: .docs/site/index.html
# make notebooks   run the notebooks and write what GitHub shows of them (needs Chromium)
# make validation  calibrate/evidence.json anew, from the published measurements in MEASURED, all that
#              quotes it, and runs/trust.html: the bands drawn, with every measurement
# make bands       sim/catalog/spreads.yaml anew, from the same: how far predictions are usually off

PYTHON ?= python3
VENV := .venv
TORCH ?= torch==2.13.0
MEASURED ?= ../shared/data/measured
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

.PHONY: run test thorough slow check lint floors wheels bench docs notebooks validation bands format browser clean

run: $(VENV)/installed
	$(BIN)/infersim run scenarios/chat.yaml

# The tests start the command hundreds of times: with bytecode it is compiled once, wherever that is
# switched off. A worker that has nothing left to do takes half of what is left to another one, and
# has one core: threads of its own would wait for those of the others. Memory that arrays leave is
# kept for the next ones (glibc): given back and fetched again, it is cleared again by the kernel.
run test slow thorough wheels bench: export PYTHONDONTWRITEBYTECODE :=
test slow thorough: export OMP_NUM_THREADS := 1
test slow thorough: export OPENBLAS_NUM_THREADS := 1
test slow thorough: export MALLOC_TRIM_THRESHOLD_ := 268435456
test slow thorough: export MALLOC_MMAP_THRESHOLD_ := 33554432
test slow thorough: $(VENV)/installed-dev browser
	$(BIN)/python -m pytest -n auto --dist worksteal -q \
		$(if $(filter thorough,$@),-m "thorough or hypothesis" --hypothesis-profile many,\
		-m "$(if $(filter test,$@),not slow,slow) and not thorough")

check: lint test slow floors

lint: $(VENV)/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

floors: $(VENV)/installed-dev
	$(BIN)/python -m tests.installed

wheels: $(VENV)/installed-dev
	$(BIN)/python -m hatchling build -c -t wheel -d dist
	HATCH_BUILD_HOOK_ENABLE_CUSTOM=true $(BIN)/python -m hatchling build -t wheel -d dist
	$(BIN)/python -m tests.compiled

bench: $(VENV)/installed
	@$(BIN)/python -m tests.bench $(if $(MILLION),--million)

notebooks: $(VENV)/installed-dev browser
	$(BIN)/python -m notebooks.build

docs: $(VENV)/installed-dev
	$(PIP) --editable '.[docs]'
	$(BIN)/python -m notebooks.site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

validation: $(VENV)/installed
	$(BIN)/infersim score $(wildcard $(MEASURED)/*.csv) $(patsubst %/requests.jsonl,%,\
		$(wildcard $(MEASURED)/*/requests.jsonl)) --output calibrate/evidence.json \
		--trust runs/trust.html
	$(BIN)/python -m calibrate.scoring.pages

bands: $(VENV)/installed
	$(BIN)/infersim score $(wildcard $(MEASURED)/*.csv) --learn-bands sim/catalog/spreads.yaml

format: $(VENV)/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "infersim needs Python 3.11 or later; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(PIP) --editable .
	@touch $@

# An open range of torch may bring gigabytes of CUDA; TORCH= tests without it, on what is left.
$(VENV)/installed-dev: $(VENV)/installed
	$(if $(TORCH),$(PIP) '$(TORCH)')
	$(PIP) --editable '.[dev]'
	@touch $@

# Reports are tested in a real browser. Where none can be installed those tests say so and are skipped.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
			apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium >/dev/null; } || \
		echo "no Chromium: the browser tests will be skipped" >&2

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
