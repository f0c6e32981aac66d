# wasmill's few commands. Each says what it needs, does it, and is quick the second time.
#
# All Rust is built with one profile and one set of packages (scripts/env), so that nothing heavy is built twice.
# `--bins --examples` stands for "what runs, with the features the tests have": with the binaries alone cargo would
# choose other features and build half the dependencies again for the tests.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

KILLS ?= 30
ENV := . scripts/env;

.PHONY: help setup build guests lint test demo example cases kill-test test-hostile bench-count bench-state clean

help: ## Show this list
	@printf 'wasmill: stateful stream operators as WebAssembly components\n\n'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
	@printf '\nArtefacts go to $$CARGO_TARGET_DIR, or ./target; with CI set, to ~/.cache/wasmill/target.\n'

setup: ## Make this machine ready: compiler, libclang, the wasm32 target
	@scripts/setup

build: setup ## Build the host
	@$(ENV) say "building the host (15 minutes the first time on two cores; after that only what changed)"; \
	cargo build "$${wasmill_packages[@]}" --lib --bins --examples

guests: setup ## Build the examples' operators to WebAssembly
	@scripts/guests

lint: ## Check formatting, clippy and, where installed, cargo-deny
	@scripts/setup lint
	@cargo fmt --all --check
	@$(ENV) say "clippy"; cargo clippy "$${wasmill_packages[@]}" --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --offline check bans licenses sources; \
	else echo "cargo-deny is not installed: licences not checked (CONTRIBUTING.md says how)"; fi

test: ## Build all and run every test
	@scripts/setup python probes servers
	@$(MAKE) build guests
	@scripts/probes
	@scripts/servers
	@$(ENV) say "tests"; cargo test "$${wasmill_packages[@]}"
	@scripts/probes --skipped
	@scripts/servers --skipped

demo: ## Fetch 336,776 flights, stream them, kill the job half-way, compare
	@scripts/setup fetch
	@$(MAKE) build guests
	@examples/flights/fetch.py
	@$(ENV) examples/flights/demo.py --wasmill "$$CARGO_TARGET_DIR/release/wasmill"

example: build guests ## Run an example and show what comes out: make example NAME=sessions
	@$(ENV) folder=examples/$(NAME); \
	[ -n "$(NAME)" ] && [ -d $$folder/expected ] || fail "there is no example '$(NAME)'" "examples: $$(cd examples && echo */expected | sed 's,/expected,,g')"; \
	rm -rf $$folder/run; \
	"$$CARGO_TARGET_DIR/release/wasmill" run $$folder/pipeline.toml; \
	for expected in $$folder/expected/*.jsonl; do \
	  sink=$$folder/run/$$(basename $$expected .jsonl); say $$sink; \
	  if [ -d $$sink ]; then find $$sink -type f -not -path '*/.*' | sort | xargs cat; fi; \
	done

cases: build guests ## Run the cases of docs/cases.md, faults that such systems have had, and tell how many hold
	@scripts/setup python
	@$(ENV) scripts/cases "$${wasmill_packages[@]}"

kill-test: build guests ## Kill a running job KILLS=30 times at parallelism 1, 2 and 4 and compare its output
	@$(ENV) WASMILL_KILLS=$(KILLS) cargo test "$${wasmill_packages[@]}" --test kill -- --nocapture

test-hostile: build guests ## Run components that do harm on purpose, each in a process of its own, and tell what became of each
	@$(ENV) cargo test "$${wasmill_packages[@]}" --test hostile -- --nocapture

bench-count: build guests ## Measure a keyed count: nanoseconds a record, in WebAssembly and native
	@$(ENV) "$$CARGO_TARGET_DIR/release/bench-count"

bench-state: build guests ## Measure an access of state: in memory and past it, beside a hash map and RocksDB
	@$(ENV) "$$CARGO_TARGET_DIR/release/bench-state"

clean: ## Remove what runs and builds left in the clone (not the heavy artefacts of CI's cache)
	@$(ENV) if [ "$$CARGO_TARGET_DIR" = "$$PWD/target" ]; then rm -rf target; fi
	@rm -rf examples/*/run examples/*/data examples/*/*.wasm
