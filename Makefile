# `make demo` shows it, `make test` proves it; both need only Python 3.11+ and make.

PYTHON  ?= python3
WORKERS ?= 2
BIN     := .venv/bin
READY   := .venv/ready
LOCK    := requirements/dev.txt

.DEFAULT_GOAL := help
.PHONY: help demo test coverage crash models lint style types layers format wheel lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## run the demonstration, on a private server of its own
	$(BIN)/tallystick demo

test: $(READY) ## run every test
	$(BIN)/pytest -n $(WORKERS)

coverage: $(READY) ## every test, traced (nearly twice as long), and the least that the trunk keeps
	$(BIN)/coverage erase
	$(BIN)/pytest -n $(WORKERS) --cov --cov-report=
	$(BIN)/coverage report --include='tallystick/jobs/*' --fail-under=95

crash: $(READY) ## the whole crash matrix, as a table and into docs/
	$(BIN)/python -m tests.crash

models: $(READY) ## search the models of the protocol exhaustively (needs spin and gcc)
	$(BIN)/python -m models.check --jobs $(WORKERS)

lint: style types layers ## all that can be said without running it

style: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/mypy
	@command -v node >/dev/null || $(BIN)/python -m pip install --quiet 'pyright[nodejs]'
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

layers: $(READY)
	$(BIN)/lint-imports --no-logo

format: $(READY) ## mend what can be mended by machine
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The wheel is built from the sdist, so neither can hold what the other lacks, and is tried where
# the source tree cannot be imported.
wheel: $(READY) ## build sdist and wheel, and run the demonstration from the wheel alone
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	@set -eu; \
	place=$$(mktemp -d); trap 'rm -rf "$$place"' EXIT; \
	wheel=$$(echo "$$PWD"/dist/*.whl); lock="$$PWD/$(LOCK)"; \
	$(BIN)/python -m zipfile -l "$$wheel" | awk 'NR > 1 { print $$1 }' > "$$place/names"; \
	if grep -vE '^tallystick(/|-[0-9.]+\.dist-info/)' "$$place/names"; then \
	  echo 'The wheel holds more than the package (see above).' >&2; exit 1; fi; \
	for must in '^tallystick/py.typed$$' '^tallystick/jobs/lua/.*\.lua$$' \
	  '^tallystick/metrics/dashboards/.*\.json$$' \
	  '^tallystick/metrics/rules/tallystick.*\.yaml$$' '^tallystick/metrics/rules/alertmanager.yaml$$'; do \
	  grep -qE "$$must" "$$place/names" || { echo "The wheel lacks $$must." >&2; exit 1; }; done; \
	$(BIN)/python -m venv "$$place/venv"; \
	"$$place/venv/bin/python" -m pip install --quiet -c "$$lock" "$$wheel"; \
	cd "$$place"; "$$place/venv/bin/tallystick" rules --to rules >/dev/null; test -s rules/alertmanager.yaml; \
	TALLYSTICK_DATA_DIR="$$place/data" "$$place/venv/bin/tallystick" demo --story clean

lock: $(READY) ## resolve the dependencies anew, for every platform and Python
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --extra dev --upgrade \
	  --custom-compile-command "make lock" --no-annotate pyproject.toml -o $(LOCK)

clean: ## remove what these targets made
	rm -rf .venv dist .coverage .coverage.* htmlcov
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find tallystick tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tallystick needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c $(LOCK) -e '.[dev]'
	@touch $@
