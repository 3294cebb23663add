# Two commands do all the set-up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
ROUNDS ?= 20

ifneq ($(filter command environment,$(firstword $(origin PYTHON))),)
ifneq ($(wildcard $(BIN)/python),)
ifneq ($(shell $(BIN)/python -V),$(shell $(PYTHON) -V))
$(error $(VENV) has $(shell $(BIN)/python -V), and $(PYTHON) is $(shell $(PYTHON) -V): add VENV=.venv-other for a second environment, or remove $(VENV))
endif
endif
endif

.PHONY: help install dev demo takeovers scale soak test thorough lint prose accuracy pictures examples format measure overhead detection phases quiet explore compare clean
.DEFAULT_GOAL := help

help: ## Show this help
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

# Standard output belongs to the programs, so installing talks on standard error. pip would compile
# all modules on one core.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "unicron needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V): try make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "creating $(VENV)" >&2; $(PYTHON) -m venv $(VENV) >&2; }
	@echo "installing unicron into $(VENV); torch is large, this takes minutes the first time" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(1)]' >&2
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib 2>/dev/null || true
endef

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,ranks)
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(call install,dev)
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed ## Create the virtual environment and install

dev: $(VENV)/.dev ## The same, with what tests and linters need

demo: $(VENV)/.installed ## Watch two tasks train, break them, see them heal (ARGS="--headless ...")
	@exec $(BIN)/unicron-console --demo $(ARGS)

test: $(VENV)/.dev ## Run the tests; gets an OpenSSH server, faketime, Prometheus and Chromium where it can
	@.ci/install-sshd
	@.ci/unpack-package $(VENV)/prometheus prometheus
	@.ci/unpack-package $(VENV)/chromium chromium-headless-shell --with-libraries
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(ARGS)

phases: $(VENV)/.dev ## Break ranks in every phase of an iteration; hours (ARGS="--seed 1" for a part)
	@$(BIN)/python -m tests.campaigns.phases $(ARGS)

quiet: $(VENV)/.dev ## Train undisturbed on a busy machine; counts false alarms; half an hour
	@$(BIN)/python -m tests.campaigns.quiet $(ARGS)

takeovers: $(VENV)/.dev ## Kill the controller 20 times under training; 15 minutes (ARGS="--kills 5 --seed 1")
	@.ci/install-sshd
	@$(BIN)/python -m tests.campaigns.takeovers $(ARGS)

scale: $(VENV)/.dev ## A controller with 1,000 modelled nodes over SSH for MINUTES=1 (ARGS="--nodes 300")
	@MINUTES=$(or $(MINUTES),1) $(BIN)/python -m tests.campaigns.scale $(ARGS)

soak: $(VENV)/.dev ## Faults at random under training for MINUTES=20 (ARGS="--kill-every 5" kills the controller, too)
	@.ci/install-sshd
	@MINUTES=$(or $(MINUTES),20) $(BIN)/python -m tests.campaigns.soak $(ARGS)

thorough: $(VENV)/.dev ## The tests' further combinations of layouts, faults and files; minutes
	@.ci/install-sshd
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m thorough $(ARGS)

explore: $(VENV)/.dev ## Property tests with new examples, again and again (ROUNDS=20); ARGS for some
	@for round in $$(seq $(ROUNDS)); do echo "round $$round of $(ROUNDS)" >&2; \
	  $(BIN)/python -m pytest -n 2 --timeout 900 --hypothesis-profile fresh $(or $(ARGS),tests/property) || exit 1; \
	done

lint: $(VENV)/.dev ## ruff, mypy, import-linter, and the prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/*.py
	$(BIN)/lint-imports
	@$(BIN)/python tools/rooms.py
	@$(BIN)/python tools/prose.py --check >/dev/null

prose: $(VENV)/.dev ## Count sentences that are hard to read (ARGS="--list controller")
	@$(BIN)/python tools/prose.py $(ARGS)

accuracy: $(VENV)/.dev ## Accuracy of unicron classify on labelled texts and logs (ARGS="FILE.jsonl --healthy LOG...")
	@$(BIN)/python tools/classify_accuracy.py $(ARGS)

pictures: $(VENV)/.dev ## Make the README's pictures of the console from a cluster that runs for this
	@.ci/install-sshd
	@$(BIN)/python -m tools.console_pictures

examples: $(VENV)/.dev ## Run the examples of docs/simulation.md again, and write what they print into it
	@$(BIN)/python tools/page_examples.py docs/simulation.md

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

measure: $(VENV)/.dev ## Measure agent, start-up and recovery of the demo; prints JSON
	@$(BIN)/python benchmarks/demo_times.py $(ARGS)

overhead: $(VENV)/.dev ## What faults and their absence cost; three hours (ARGS=--write-docs)
	@$(BIN)/python benchmarks/kill_to_commit.py $(ARGS)
	@$(BIN)/python benchmarks/iteration_cost.py $(ARGS)
	@$(BIN)/python benchmarks/agent_cost.py $(ARGS)
	@$(BIN)/python benchmarks/memory_checkpoint_cost.py $(ARGS)
	@$(BIN)/python benchmarks/disk_checkpoint_cost.py $(ARGS)

detection: $(VENV)/.dev ## How long faults go unseen, 20 of each kind (ARGS=--write-docs)
	@$(BIN)/python benchmarks/detection_times.py $(ARGS)

compare: ## Compare recovery with the alternatives; hours (ARGS="--quick" for minutes)
	@$(PYTHON) benchmarks/recovery_comparison.py $(ARGS)

clean: ## Remove what installing and testing made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
