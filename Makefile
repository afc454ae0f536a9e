# `make help` lists the targets. Everything works from a fresh clone: what is missing is installed where that is possible.

MSRV := 1.88

# Arguments of the demo, as in `make demo ARGS="--files 1000"`, and of `make bench-instructions ARGS=--store`.
ARGS ?=
# The part of the benches to run, as in `make bench ONLY=sweep`; all of them when empty.
ONLY ?=
# What an earlier `make bench` printed, as in `make plots FROM=bench.txt`.
FROM ?=
# The parts of the browser tests to run, by words of their names, as in `make check-board PART=keys`; all of them when empty.
PART ?=
# How long `make check-lines` runs, in seconds. `make chaos` and `make soak` have a DURATION of their own.
LINES ?= 1200
# How many cases each decoder gets from the fuzz tests, and how many rounds each test of whole programs makes.
CASES ?= 20000
ROUNDS ?= 400
# Other servers to test with, as in `make check-servers REDIS_SERVERS="/opt/redis-6.2/redis-server valkey-server"`.
REDIS_SERVERS ?=

# The packages that are published.
PACKAGES := --package heartline --package heartline-board --package heartline-cli --package heartline-otel
# Those of the tests. With others, every dependency would be built again for their features.
TESTED := $(PACKAGES) --package heartline-service

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Run the demo, on REDIS_URL or a private server (ARGS=--board serves the web page meanwhile, --cluster kills a primary too, --workflow runs graphs, --schedules recurring jobs, --limits those of many customers)
	@scripts/ensure redis-url
	cargo run -p heartline-cli -- demo $(if $(REDIS_URL),$(if $(findstring --cluster,$(ARGS)),,--redis "$(REDIS_URL)")) $(ARGS)

.PHONY: test
test: ## Run the tests and doctests of the library and the tools, on private servers
	@scripts/ensure redis-server faketime
	cargo test --all-features $(TESTED)

.PHONY: model
model: ## Search all histories of a small model of the stall detector, and print what goes wrong without each of its rules
	cargo test -p heartline-model --test sweeps -- --nocapture --test-threads 1

.PHONY: check
check: ## Formatting, clippy, documentation, Lua: no warning is let through
	@scripts/ensure luacheck
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
	luacheck --quiet --no-color lua

.PHONY: chaos
chaos: DURATION ?= 180
chaos: ## Kill, freeze, cut off and replace workers while servers fail, then account for every job (DURATION=... seconds, SEED=... repeats one)
	@scripts/ensure redis-server
	HEARTLINE_CHAOS_SECONDS=$(DURATION) HEARTLINE_CHAOS_SEED=$(SEED) scripts/it chaos:: -- --nocapture

.PHONY: examples
examples: ## Run every example to its end, each with a private server
	@scripts/ensure redis-server
	scripts/examples

.PHONY: bench
bench: ## Run the benches, on REDIS_URL or a private server (ONLY=... runs a part)
	@scripts/ensure redis-url
	cargo bench --all-features --bench heartline -- $(ONLY)

# In the profile of the tests, whose build it shares: only the server is measured.
.PHONY: bench-instructions
bench-instructions: ## Count the instructions of Redis for fixed calls: fails if one needs more than is stored (ONLY=... runs a part, ARGS=--store stores the counts)
	@scripts/ensure redis-server valgrind
	cargo test --all-features $(TESTED) --bench heartline -- --instructions $(ONLY) $(ARGS)

.PHONY: plots
plots: ## Draw docs/plots from what `make bench` printed (FROM=bench.txt)
	@scripts/ensure python3
	scripts/plots $(FROM)

.PHONY: package
package: ## Make the packages, and build the library as the registry would get it
	cargo package --no-verify $(PACKAGES)
	cargo publish --dry-run --package heartline

.PHONY: book
book: ## Build the guide as pages, with mdBook
	@command -v mdbook >/dev/null || { echo "missing: mdbook; get it with 'cargo install --locked mdbook'" >&2; exit 1; }
	mdbook build docs

.PHONY: check-all
check-all: export HEARTLINE_THOROUGH = 1
check-all: check test model bench-instructions examples check-board check-axe check-monitoring check-versions check-features check-msrv check-deps check-servers check-races fuzz chaos soak check-lines check-workflows mutants ## All of the above and what takes longer, with all random histories

.PHONY: check-board
check-board: ## Run the tests of the web board in a real browser, with Chromium (PART=... runs some of them)
	@scripts/ensure redis-server chromium
	cargo build -p heartline-cli
	cargo test -p heartline-browser-tests --test board -- $(PART)

.PHONY: check-axe
check-axe: ## Check every page of the board by the rules of axe-core, which npm gets
	@scripts/ensure redis-server chromium npm
	cargo build -p heartline-cli
	HEARTLINE_AXE="$$(scripts/axe)" cargo test -p heartline-browser-tests --test board -- axe_finds

.PHONY: pictures
pictures: ## Take the pictures of the board in docs/images again
	@scripts/ensure redis-server chromium
	cargo build -p heartline-cli
	HEARTLINE_SCREENSHOTS="$(CURDIR)/docs/images" cargo test -p heartline-browser-tests --test board -- picture

.PHONY: check-versions
check-versions: ## Check with the newest and the oldest versions of the dependencies
	scripts/versions

.PHONY: check-features
check-features: ## Check every combination of features
	scripts/powerset

.PHONY: check-msrv
check-msrv: ## Check with the oldest supported Rust
	@rustup toolchain list | grep -q '^$(MSRV)' || { echo "missing: Rust $(MSRV); get it with 'rustup toolchain install $(MSRV) --profile minimal'" >&2; exit 1; }
	cargo +$(MSRV) check --workspace --all-features --all-targets

.PHONY: check-deps
check-deps: ## Check licences, advisories and duplicates of the dependencies
	@command -v cargo-deny >/dev/null || { echo "missing: cargo-deny; get it with 'cargo install --locked cargo-deny'" >&2; exit 1; }
	cargo deny --all-features check

.PHONY: check-races
check-races: ## Let each act of the Inspector race with live workers 1,000 times
	@scripts/ensure redis-server
	HEARTLINE_RACES=1000 scripts/it integration::inspector::races

.PHONY: fuzz
fuzz: SEED := $(or $(SEED),$(shell date +%s))
fuzz: ## Give decoders, workers, the command line and the board data that Heartline did not write (CASES=..., ROUNDS=..., SEED=...)
	@scripts/ensure redis-server
	@echo "SEED=$(SEED)"
	PROPTEST_CASES=$(CASES) HEARTLINE_FUZZ=$(ROUNDS) HEARTLINE_FUZZ_SEED=$(SEED) cargo test --all-features $(TESTED) \
		--lib --test it --test board --test cli -- fuzz:: makes_the_decoder_panic rows_are_read any_address any_cursor any_form any_cookie only_a_whole_session

.PHONY: soak
soak: DURATION ?= 1800
soak: ## Work for 30 minutes, with restarts of workers and server, and fail if anything grows (DURATION=... seconds)
	@scripts/ensure redis-server
	HEARTLINE_SOAK_SECONDS=$(DURATION) scripts/it soak:: -- --nocapture

.PHONY: check-lines
check-lines: ## Hold lines silent, and pass values of 64 MiB over narrow ones, for 20 minutes (LINES=... seconds)
	@scripts/ensure redis-server
	HEARTLINE_LINES_SECONDS=$(LINES) scripts/it repeatedly_silent large_values_pass

.PHONY: check-containers
check-containers: ## Run the main job on a Redis server in a container
	@docker version >/dev/null 2>&1 || { echo "missing: a running Docker daemon; see https://docs.docker.com/engine/install" >&2; exit 1; }
	cargo test -p heartline-container-tests

.PHONY: mutants
mutants: ## Put deliberate faults into the crate, one at a time: a test must notice each
	@scripts/ensure redis-server faketime python3
	scripts/mutants

.PHONY: check-monitoring
check-monitoring: ## Check the alert rules and the dashboard, with Prometheus' own checker
	@scripts/ensure promtool
	scripts/monitoring

# A cluster needs Redis 7.0: on older servers those tests are left out, and that is said.
.PHONY: check-servers
check-servers: ## Run the tests on each of REDIS_SERVERS
	@scripts/ensure faketime
	@test -n "$(REDIS_SERVERS)" || echo "note: REDIS_SERVERS is empty, so no other server is tested"
	@set -e; for server in $(REDIS_SERVERS); do \
		echo "== $$server"; \
		skip=; case "$$("$$server" --version)" in *v=6.*) echo "note: it is too old for a cluster"; skip="-- --skip cluster";; esac; \
		HEARTLINE_REDIS_SERVER="$$server" cargo test --all-features $$skip; \
	done

.PHONY: test-engines
test-engines: ## Run the tests of recovery and results through a cluster and through a sentinel
	@scripts/ensure redis-server
	HEARTLINE_TEST_ENGINE=cluster scripts/it integration::recovery:: integration::results::
	HEARTLINE_TEST_ENGINE=sentinel scripts/it integration::recovery:: integration::results::

.PHONY: check-workflows
check-workflows: ## Run the tests of workflows by each engine, with the largest graphs, 120 kills and four times the demo
	@scripts/ensure redis-server
	HEARTLINE_TEST_ENGINE=cluster scripts/it workflows::
	HEARTLINE_TEST_ENGINE=sentinel scripts/it workflows::
	HEARTLINE_KILLS=120 scripts/it largest workflows::kills:: -- --include-ignored
	scripts/it cluster::workflows
	@set -e; for run in 1 2 3 4; do cargo run -p heartline-cli -- demo --workflow; done

.PHONY: check-engines
check-engines: ## Run the tests of Sentinel, Cluster and replicas on each of REDIS_SERVERS five times, and the simulation on a cluster
	@scripts/ensure redis-server
	@set -e; servers="$(REDIS_SERVERS)"; if [ -z "$$servers" ]; then others="$$(scripts/servers)"; servers="$$(command -v redis-server) $$others"; fi; \
	for server in $$servers; do for run in 1 2 3 4 5; do \
		echo "== $$server, run $$run of 5"; \
		which=; case "$$("$$server" --version)" in *v=6.*) which="--skip cluster";; Valkey*v=8.*) ;; Valkey*) which=--include-ignored;; esac; \
		HEARTLINE_REDIS_SERVER="$$server" scripts/it cluster:: sentinel:: integration::replicated -- $$which; \
	done; \
	case "$$("$$server" --version)" in *v=6.*) ;; *) \
		echo "== the simulation, on a cluster of $$server"; \
		HEARTLINE_REDIS_SERVER="$$server" HEARTLINE_SIMULATION_CLUSTER=1 scripts/it simulation::; \
		HEARTLINE_REDIS_SERVER="$$server" HEARTLINE_TEST_ENGINE=cluster scripts/it integration::;; esac; \
	HEARTLINE_REDIS_SERVER="$$server" HEARTLINE_TEST_ENGINE=sentinel scripts/it integration::; \
	HEARTLINE_REDIS_SERVER="$$server" HEARTLINE_TEST_PARTITIONS=3 cargo test --all-features -p heartline-cli -p heartline-board; \
	done
