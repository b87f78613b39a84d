# `make help` lists the targets. A target first makes what it needs (virtual environment, locked packages, compiled module), and
# only if the inputs have changed: the stamps are in the virtual environment.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV ?= .venv
CARGO ?= cargo

BIN := $(VENV)/bin
RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
RUST_FILES := $(shell find src -name '*.rs' 2>/dev/null)
NEXTEST := $(shell command -v cargo-nextest 2>/dev/null)
# Inputs of the compiled module.
MODULE_FILES := $(RUST_FILES) Cargo.toml Cargo.lock pyproject.toml
# Python tests that take a few seconds together.
QUICK := $(patsubst %,tests/python/%.py,kmeans/test_reference kmeans/test_unit_weights project/test_lint project/test_readme \
  quality/test_metrics rows/test_row_counts rows/test_vectors seeding/test_seeding)
# The kernel tests run again under these instruction sets, which are below the best one of the machine.
ISAS := scalar $(shell grep -qsw avx2 /proc/cpuinfo && echo avx2) \
	$(shell grep -qsw avx_vnni /proc/cpuinfo && echo avxvnni) $(shell grep -qsw avx512_vnni /proc/cpuinfo && echo avx512)

# Seconds for each target of `make fuzz`, and its random seed; minutes of `make soak`.
FUZZ_SECONDS ?= 60
FUZZ_SEED ?= $(shell date +%s)
SOAK_MINUTES ?= 60
# Files of `make mutants`, and tests of `make miri`: without those that write large files hundreds of times.
MUTANTS ?= src/persist/*.rs
MIRI_TESTS ?= persist:: data::npy data::raw data::memory data::csr whole_file stats:: --skip fault --skip kill --skip threads

# Systems and processors with a wheel, except the one that `make test` runs on.
TARGETS := aarch64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-apple-darwin x86_64-apple-darwin x86_64-pc-windows-msvc

export VIRTUAL_ENV := $(abspath $(VENV))
export PYO3_PYTHON := $(VIRTUAL_ENV)/bin/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

.PHONY: help check-tools venv build demo docs gallery-pictures check test test-rust test-python test-core test-lowest lint lint-rust lint-python msrv cross fmt bench claims peers wheel \
  neon asan miri fuzz soak mutants notices clean package release-check

help: ## This list.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do printf '%-12s %s\n' "$$name" "$$what"; done

# ---------------------------------------------------------------- set-up

check-tools:
	@missing() { printf '\nshoal needs %s\n\n' "$$1" >&2; exit 1; }; \
	command -v $(CARGO) >/dev/null && command -v rustc >/dev/null \
	  || missing 'Rust >= $(RUST_VERSION) (cargo and rustc): install it from https://rustup.rs'; \
	rust=$$(rustc --version | cut -d' ' -f2); \
	[ "$$(printf '%s\n' $(RUST_VERSION) "$${rust%%-*}" | sort -V | head -n 1)" = $(RUST_VERSION) ] \
	  || missing "Rust >= $(RUST_VERSION), and here is $$rust: run \`rustup update\`"; \
	command -v cc >/dev/null \
	  || missing 'a linker, cc: install gcc or clang (Debian: apt install build-essential; macOS: xcode-select --install)'; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || missing 'Python >= 3.11 as $(PYTHON): install it, or name another one, for example `make PYTHON=python3.12 ...`'; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || missing "Python's venv module: install it (Debian: apt install python3-venv)"

$(VENV)/.created: | check-tools
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: requirements.txt $(VENV)/.created
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.run
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)/.docs: requirements-docs.txt $(VENV)/.run
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements-docs.txt
	@touch $@

# Tests take any up-to-date module. The profile `develop` compiles incrementally, with kernels that may be some percent slower.
$(VENV)/.built: $(MODULE_FILES) $(VENV)/.run | check-tools
	$(BIN)/maturin develop --profile develop --locked
	@rm -f $(VENV)/.built-release; touch $@

$(VENV)/.built-release: $(MODULE_FILES) $(VENV)/.run | check-tools
	$(BIN)/maturin develop --release --locked
	@touch $(VENV)/.built $@

venv: $(VENV)/.dev ## The virtual environment .venv with all locked packages for development.

build: $(VENV)/.built-release ## The Python module, compiled into .venv (editable) at full speed, as in the wheel.

demo: $(VENV)/.built-release ## Set-up on a fresh machine, then `shoal demo`.
	$(BIN)/shoal demo

# Nothing is downloaded but the packages. Programs of the gallery run only if they have changed (docs/gallery).
docs: $(VENV)/.docs $(VENV)/.built ## The documentation site, in docs/_build/html; warnings are errors.
	MPLBACKEND=agg $(BIN)/python -m sphinx -j auto -q -W --keep-going docs docs/_build/html

gallery-pictures: docs ## Copy the pictures of the gallery that the README and the guide show from the site.
	for name in exemplars modes places steps; do \
	  cp docs/gallery/*/images/thumb/sphx_glr_plot_$${name}_thumb.png docs/images/gallery-$$name.png; done
	for name in duplicates balanced_sample partition; do \
	  cp docs/gallery/*/images/sphx_glr_plot_$${name}_001.png docs/images/curation-$$name.png; done

# ---------------------------------------------------------------- checks

check: $(VENV)/.dev $(VENV)/.built ## Format, clippy, types, style and the quick tests; run it before each commit.
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --quiet --features python -- -D warnings
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/python tests/prose.py
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet $(QUICK)

test: test-rust test-python ## Set-up on a fresh machine, then all tests, Rust and Python.

# Examples are not built here: they have no tests, and `make lint` checks their types.
test-rust: | check-tools ## Unit, integration and documentation tests; kernels under each instruction set.
ifdef NEXTEST
	$(CARGO) nextest run --locked --lib --tests
	for isa in $(ISAS); do echo "SHOAL_ISA=$$isa"; SHOAL_ISA=$$isa $(CARGO) nextest run --locked --lib kernel::; done
else
	$(CARGO) test --locked --lib --tests
	for isa in $(ISAS); do echo "SHOAL_ISA=$$isa"; SHOAL_ISA=$$isa $(CARGO) test --locked --lib kernel::; done
endif
	$(CARGO) test --locked --doc

test-python: $(VENV)/.dev $(VENV)/.built ## pytest. Tests on complete data sets: `.venv/bin/python -m pytest -m slow`.
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# Tests that need the required packages only, so that they run with Pythons that optional packages do not support yet.
CORE := $(filter-out tests/python/project/%,$(QUICK)) tests/python/fit/test_threads.py

test-core: $(VENV)/.built ## Tests without the optional packages: `make PYTHON=python3.14t VENV=.venv314t test-core`.
	$(BIN)/python -m pip install --quiet 'hypothesis>=6.170' 'pytest>=8.2'
	$(BIN)/python -m pytest $(CORE)

# The tests of `make check`, and those of what depends on the version of a package.
LOWEST := $(QUICK) $(patsubst %,tests/python/%.py,cli/test_demo fit/test_sklearn_contract outputs/test_tables_out rows/test_csv \
  rows/test_data rows/test_feature_names rows/test_formats rows/test_inputs rows/test_sparse)

$(VENV)-lowest/.installed: requirements-lowest.txt | check-tools
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "name Python 3.11: make PYTHON=python3.11 test-lowest")'
	$(PYTHON) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet -r $<
	@touch $@

# The module runs with any Python from 3.11 on, so that of .venv serves.
test-lowest: $(VENV)/.built $(VENV)-lowest/.installed ## Tests with Python 3.11 and the oldest supported packages.
	PYTHONPATH=$(CURDIR)/python $(VENV)-lowest/bin/python -m pytest --numprocesses auto --dist worksteal $(LOWEST)

lint: lint-rust lint-python ## Formatting, clippy, rustdoc, licenses, ruff, mypy, pyright, style, and the stubs against the module.

# PyO3 asks the interpreter of the virtual environment for its version.
lint-rust: msrv | $(VENV)/.created
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) clippy --locked --features python -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps --quiet
	$(PYTHON) tests/dependencies.py
	$(PYTHON) tests/notices.py --check
	@if hash cargo-deny 2>/dev/null; then $(CARGO) deny --all-features check; \
	else echo 'cargo-deny is not installed: advisories are not checked'; fi

lint-python: $(VENV)/.dev $(VENV)/.built
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/prose.py
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m mypy.stubtest shoal._core --mypy-config-file pyproject.toml

msrv: | check-tools ## Compile with the oldest supported Rust, if it is installed; clippy checks the standard library in any case.
	@if rustup toolchain list 2>/dev/null | grep -q '^$(RUST_VERSION)'; \
	then rustup run $(RUST_VERSION) $(CARGO) check --locked --target-dir target/msrv; \
	else echo 'Rust $(RUST_VERSION) is not installed: only clippy checks the minimum version (rustup toolchain install $(RUST_VERSION))'; fi

# Compiled without a linker. The module for Python is compiled too: with abi3, PyO3 needs no interpreter of the target.
cross: | check-tools ## Check the types for the other systems and processors, as far as their standard libraries are installed.
	@for target in $(TARGETS); do \
	  if rustup target list --installed 2>/dev/null | grep -qx "$$target"; \
	  then echo "$$target"; PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1 RUSTFLAGS='-D warnings -C target-feature=-crt-static' \
	    $(CARGO) check --locked --quiet --lib --features python --target "$$target" --target-dir target/cross; \
	  else echo "$$target is not installed (rustup target add $$target)"; fi; done

fmt: $(VENV)/.dev ## Format Rust and Python.
	$(CARGO) fmt
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

asan: | check-tools ## Kernel, data, file and graph tests under the address sanitizer.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address -Cdebug-assertions=on' $(CARGO) test --locked --target-dir target/asan \
	  --target "$$(rustc -vV | sed -n 's/^host: //p')" --lib -- kernel:: data:: persist:: graph::

# Two crates of the dependencies use integers as pointers, which is why provenance is not checked strictly. One
# breaks the rules of stacked borrows, but not those of tree borrows.
miri: | check-tools ## Files, sources and sums under Miri, if it is installed (rustup +nightly component add miri).
	@if rustup component list --toolchain nightly --installed 2>/dev/null | grep -q '^miri'; \
	then MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-tree-borrows' PROPTEST_CASES=2 \
	  $(CARGO) +nightly miri $(if $(NEXTEST),nextest run --no-fail-fast,test) --locked --target-dir target/miri --lib -- $(MIRI_TESTS); \
	else echo 'Miri is not installed (rustup toolchain install nightly --component miri,rust-src)'; fi

# Coverage is not traced: damage is guided by the outcomes, which the stable compiler suffices for.
fuzz: $(VENV)/.dev $(VENV)/.built ## Damaged files, messages and command lines, FUZZ_SECONDS=60 for each kind.
	@echo 'SHOAL_FUZZ_SEED=$(FUZZ_SEED)'
	SHOAL_FUZZ_SECONDS=$(FUZZ_SECONDS) SHOAL_FUZZ_SEED=$(FUZZ_SEED) $(CARGO) test --locked --test all fuzz:: -- --nocapture
	SHOAL_FUZZ_SECONDS=$(FUZZ_SECONDS) SHOAL_FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m pytest --numprocesses auto -k damaged \
	  tests/python/rows/test_damaged.py tests/python/cli/test_command_lines.py

soak: $(VENV)/.dev $(VENV)/.built-release ## Streams that are killed and resumed for SOAK_MINUTES=60: same results, bounded memory.
	$(BIN)/python tests/soak.py --minutes $(SOAK_MINUTES)

mutants: | check-tools ## Mutation tests of MUTANTS='src/persist/*.rs', if cargo-mutants is installed.
	@hash cargo-mutants 2>/dev/null || { echo 'cargo-mutants is not installed (cargo install --locked cargo-mutants)'; exit 1; }
	$(CARGO) mutants --output target --test-tool cargo --file '$(MUTANTS)' --cargo-test-arg=--lib

neon: ## Kernel tests for 64-bit Arm, in an emulator.
	bash tests/neon.sh

claims: $(VENV)/.dev ## Write the measured figures of the pages, and draw their pictures, from benches/results.
	$(BIN)/python benches/python/claims.py

ROWS ?= target/bench/photo-patches-540176-0.npy:256

peers: $(VENV)/.built-release ## Measure shoal and other libraries on this machine, or with ROWS='vectors.npy:100'.
	$(BIN)/maturin develop --release --locked --extras bench
	SHOAL_BENCH_CACHE=target/bench $(BIN)/python benches/python/datasets.py photo-patches
	$(BIN)/python benches/python/peers.py --data $(ROWS) --csv target/bench/peers.csv

bench: | check-tools ## Rust benchmarks; those against other libraries: CONTRIBUTING.md.
	$(CARGO) bench --locked --manifest-path benches/Cargo.toml

# ---------------------------------------------------------------- release

notices: ## Write the notices of the software that is compiled into the wheel.
	$(PYTHON) tests/notices.py

wheel: $(VENV)/.run | check-tools ## Source archive and abi3 wheel in dist/; the wheel is tested without Rust on the PATH.
	rm -rf dist
	$(BIN)/maturin build --release --locked --sdist --out dist
	away=$$(mktemp -d); trap 'rm -rf "$$away"' EXIT; \
	path=$$(tr : '\n' <<<"$$PATH" | while read -r dir; do [ -x "$$dir/cargo" ] || printf '%s:' "$$dir"; done); \
	$(PYTHON) -m venv "$$away/venv"; \
	wheel=$$(echo "$$PWD"/dist/shoal_cluster-*-abi3-*.whl); cd "$$away"; export PATH="$$away/venv/bin:$${path%:}"; \
	unset VIRTUAL_ENV PYO3_PYTHON; \
	if hash cargo 2>/dev/null; then echo "cargo is still on the PATH: $$PATH" >&2; exit 1; fi; \
	python -m pip install --quiet --only-binary :all: "$$wheel[plot]"; shoal demo

package: | check-tools ## The crate as published, and a program outside of the workspace that uses it.
	rm -rf target/package
	$(CARGO) package --locked
	crate=$$(echo target/package/shoal-cluster-*/); cp -r tests/embed Cargo.lock "$$crate/tests/"; \
	mv "$$crate/tests/Cargo.lock" "$$crate/tests/embed/"; \
	$(CARGO) run --target-dir target/embed --manifest-path "$$crate/tests/embed/Cargo.toml"

release-check: | check-tools ## Rehearse a release of the last commit, without publishing (RELEASING.md).
	PYTHON=$(PYTHON) bash tests/release.sh

clean: ## Remove what the other targets make.
	rm -rf target dist $(VENV) $(VENV)-lowest .pytest_cache .ruff_cache .mypy_cache .hypothesis python/shoal/_core*.so docs/_build docs/api docs/gallery
	find python tests benches examples docs -name __pycache__ -prune -exec rm -rf {} +
