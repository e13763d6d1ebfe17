# oxbloom: `make run` to try it, `make check` and `make test` to work on it, `make help` for the rest.

PORT ?= 6379
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
DESTDIR ?=

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
MODULE := $(TARGET)/release/liboxbloom.so
# With commands that panic and use up memory, for tests.
FAULTY_MODULE := $(TARGET)/debug/liboxbloom.so
REDISBLOOM := $(TARGET)/incumbent/redisbloom.so
MODULES := OXBLOOM_MODULE=$(MODULE) OXBLOOM_FAULTY_MODULE=$(FAULTY_MODULE) REDISBLOOM_MODULE=$(REDISBLOOM)
PYTHON_ENV := $(TARGET)/python
# With the oldest versions of Scrapy and redis-py that the package for Scrapy works with.
OLDEST_PYTHON_ENV := $(TARGET)/python-oldest
NODE_TESTS := tests/clients/node
NODE_MODULES := $(NODE_TESTS)/node_modules/installed
SETUP := tools/setup.sh

# Always the same packages and features: with others, cargo would build much of what they share once more.
TESTED := -p oxbloom -p oxbloom-filter -p oxbloom-fuzz --features fault-injection

.DEFAULT_GOAL := help
.PHONY: help run build check test bench bench-scrapy demo install uninstall clean
.PHONY: lint lint-rust lint-python build-tests build-asan build-instructions
.PHONY: test-rust test-crash test-clients test-instructions test-package test-memcheck test-asan test-matrix soak
.PHONY: setup setup-test setup-servers setup-valgrind setup-monitoring

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## Install what is missing, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@tools/run.sh $(PORT) $(TARGET)/run $(MODULE)

build: setup ## Install what is missing, and build the release library, target/release/liboxbloom.so
	cargo build --release

# --- Checks -----------------------------------------------------------------------------------------------------------

# The library's statistical tests take minutes, and are left to `make test`.
check: lint build ## Lint, and test the library (without its statistical tests) and the module on one server: minutes
	cargo build $(TESTED)
	PROPTEST_CASES=64 cargo test -p oxbloom-filter -- --skip rates:: --skip adversary::
	$(MODULES) cargo test $(TESTED) --test server

# What checks everything, the longest first. First all is built, which keeps every core busy; then two suites run at a time,
# since they wait as much as they work.
SUITES = test-clients test-rust $(OTHER_SERVERS:%=test-on-%) soak test-asan test-memcheck test-instructions test-package
test: lint build-tests build-asan build-instructions setup-servers ## Install what is missing, then check everything: twenty minutes
	@$(call two_at_a_time,$(SUITES))
	@echo "All tests passed."

# Runs all goals, also when one fails, and shows the output of each in one piece.
two_at_a_time = $(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target $(1)

lint: lint-rust lint-python

lint-rust: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --workspace --test memcheck --test soak --all-features -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc -q --no-deps --document-private-items -p oxbloom -p oxbloom-filter

PYTHON_SOURCES := python tests/clients/crawling $(addprefix tests/clients/, \
  conftest.py servers.py cluster.py replicated.py filters.py pages.py pasting.py test_pages.py test_pybloom_page.py \
  test_links.py test_command_pages.py test_operating.py test_security_page.py test_recipes.py test_how_it_works.py \
  test_install.py test_slot_migration.py test_cluster_routing.py test_failover.py test_sentinel.py)
lint-python: $(PYTHON_ENV)/installed
	$(PYTHON_ENV)/bin/ruff check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/ruff format --check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/mypy --config-file python/pyproject.toml

# The soak and the tests under valgrind are no part of `cargo test`, and have to be named.
build-tests: build setup-test
	cargo build $(TESTED)
	cargo test $(TESTED) --no-run
	cargo test $(TESTED) --no-run --test memcheck --test soak

# Without MAKEFLAGS, for rustdoc would warn that make's other jobs cannot be reached.
test-rust: build-tests
	$(MODULES) env -u MAKEFLAGS cargo test $(TESTED)

test-crash: build-tests ## Kill servers at any moment, and look for what is lost: a thousand times, or ROUNDS=5000
	CRASH_ROUNDS=$(or $(ROUNDS),1000) $(MODULES) cargo test $(TESTED) --test faults crash -- --nocapture

# The page on crawling installs the package itself, and so always with the newest versions. What the oldest use of Python is
# deprecated by now.
OLDEST_PYTEST = $(OLDEST_PYTHON_ENV)/bin/pytest -W ignore::DeprecationWarning --ignore tests/clients/crawling/test_crawling_page.py
test-clients: build-tests
	$(MODULES) $(PYTHON_ENV)/bin/pytest -q -n auto --dist loadfile tests/clients
	$(MODULES) $(OLDEST_PYTEST) -q -n auto tests/clients/crawling
	cd $(NODE_TESTS) && OXBLOOM_MODULE=$(MODULE) node --test

build-instructions: build
	cargo bench --bench instructions --no-run

test-instructions: build-instructions setup-valgrind
	OXBLOOM_MODULE=$(MODULE) cargo bench --bench instructions

# Builds the library from what would be published, and nothing else.
test-package: setup
	cargo publish --dry-run --allow-dirty -p oxbloom-filter

test-memcheck: build-tests ## Look for misused and lost memory in a server under valgrind
	OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test memcheck

# Only our own crates are compiled with AddressSanitizer (see tests/asan.sh). All others are linked to from the other tests'
# folder, since building them again would take minutes.
TEST_WITH_ASAN = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/asan.sh \
  cargo test --target-dir $(TARGET)/asan $(TESTED) --test promises --test corpus
build-asan: build-tests
	@[ -d $(TARGET)/asan ] || { cd $(TARGET) && mkdir asan && \
	  cp -al --parents debug/.fingerprint debug/build debug/deps asan && \
	  rm -rf asan/debug/deps/*oxbloom* asan/debug/.fingerprint/*oxbloom*; }
	$(TEST_WITH_ASAN) --no-run

# Without the statistical tests, which insert millions of items, and with a quarter of the cases of the others. An allocation
# that is too large fails, as it does with other allocators, instead of ending the process.
test-asan: build-asan ## Look for misused and lost memory in the library's tests with AddressSanitizer
	PROPTEST_CASES=64 ASAN_OPTIONS=allocator_may_return_null=1 $(TEST_WITH_ASAN) -- --skip rates:: --skip adversary::

# How long clients do anything, how many filters a server moves, how often items are added and removed, and a seed to repeat
# what a soak found. Debian's server cannot move memory, so another one does.
SECONDS ?= 60
FILTERS ?= 1000000
OPERATIONS ?= 20000000
SEED ?=
MOVING_SERVER := $(TARGET)/servers/redis-8.2
soak: build-tests $(MOVING_SERVER) ## Have clients do anything (SECONDS=60), filters be moved (FILTERS=1000000), items removed (OPERATIONS=20000000)
	OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test soak -- clients $(SECONDS) $(SEED)
	SERVER_BIN=$(MOVING_SERVER) OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test soak -- defragmentation $(FILTERS) $(SEED)
	cargo test $(TESTED) --test soak -- removals $(OPERATIONS) $(SEED)
	cargo test $(TESTED) --test soak -- windows $(OPERATIONS) $(SEED)

# --- Five servers -----------------------------------------------------------------------------------------------------

# Redis 7.0 is Debian's, the others come from PyPI. On each of them runs what needs no more than the module and servers, with
# fewer rounds (ROUNDS) of crashes.
SERVERS := redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
OTHER_SERVERS := $(filter-out redis-7.0,$(SERVERS))
SERVER_CLIENT_TESTS := $(addprefix tests/clients/,test_redis_py.py test_slot_migration.py)

test-matrix: build-tests setup-servers ## Run the integration tests on five servers, or on some: SERVERS="redis-6.2 valkey-9.1"
	@$(call two_at_a_time,$(SERVERS:%=test-on-%))

.PHONY: $(SERVERS:%=test-on-%)
test-on-redis-7.0: server = redis-server
$(OTHER_SERVERS:%=test-on-%): server = $(TARGET)/servers/$*
$(SERVERS:%=test-on-%): test-on-%:
	@$(server) --version | grep -i '^$(subst -, server v=,$*)\.' || { echo "$(server) is not $*"; exit 1; }
	@export SERVER_BIN=$(server) CRASH_ROUNDS=$(or $(ROUNDS),10) $(MODULES); \
	  { cargo test -q $(TESTED) --test server --test faults && $(PYTHON_ENV)/bin/pytest -q $(SERVER_CLIENT_TESTS); } || \
	  { echo "FAILED on $*"; exit 1; }

# --- Benchmarks and a demonstration -----------------------------------------------------------------------------------

bench: build $(REDISBLOOM) ## Measure side by side with RedisBloom and fastbloom: half an hour, or QUICK=1 for two minutes
	cargo build --release -p oxbloom-comparison --example floor
	cargo bench -p oxbloom-comparison --bench filter
	FLOOR_MODULE=$(TARGET)/release/examples/libfloor.so $(MODULES) cargo bench -p oxbloom-comparison --bench servers

bench-scrapy: build $(PYTHON_ENV)/installed ## Measure duplicates filters for Scrapy side by side: ten minutes, or QUICK=1 for one
	@$(SETUP) npm
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/dupefilters.py

demo: build ## Deduplicate 2.7 million real URLs through a server, beside a Redis set
	cargo run --release --example demo -- --module $(MODULE) --data $(TARGET)/demo

# --- Installing the module --------------------------------------------------------------------------------------------

MODULE_FOLDER := $(PREFIX)/lib/redis/modules
CONF_FOLDER := $(SYSCONFDIR)/redis

# It builds nothing: root may have neither cargo nor a network.
install: ## Install the built module and a configuration fragment (PREFIX=/usr/local, DESTDIR=)
	@[ -f $(MODULE) ] || { echo "$(MODULE) is missing: run \`make build' first, as yourself."; exit 1; }
	install -D -s -m 755 $(MODULE) $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so
	install -d $(DESTDIR)$(CONF_FOLDER)
	sed '/^# The server/,$$d' redis.conf.example > $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@printf 'Add these two lines to your redis.conf:\n\n    include %s\n    loadmodule %s\n\n' \
	  $(CONF_FOLDER)/oxbloom.conf $(MODULE_FOLDER)/liboxbloom.so

# Also removes the folders that are empty then, except those that every system has.
SYSTEM_FOLDERS := /usr | /usr/lib | /usr/local | /usr/local/lib | /usr/local/etc | /etc | /opt
uninstall: ## Remove what `make install' installed (with the same PREFIX and DESTDIR)
	rm -f $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@for folder in $(MODULE_FOLDER) $(CONF_FOLDER); do \
	  while [ "$$folder" != / ]; do \
	    case "$(DESTDIR:%/=%)$$folder" in $(SYSTEM_FOLDERS)) break; esac; \
	    rmdir "$(DESTDIR)$$folder" 2>/dev/null || break; \
	    folder=$$(dirname "$$folder"); \
	  done; \
	done

clean: ## Remove all that was built
	cargo clean
	rm -rf $(NODE_TESTS)/node_modules

# --- What has to be there: tools/setup.sh installs it -----------------------------------------------------------------

setup:
	@$(SETUP) build

setup-test: setup-monitoring setup-valgrind $(REDISBLOOM) $(PYTHON_ENV)/installed $(OLDEST_PYTHON_ENV)/installed $(NODE_MODULES)

setup-valgrind setup-monitoring: setup-%:
	@$(SETUP) $*

setup-servers: $(OTHER_SERVERS:%=$(TARGET)/servers/%)

$(OTHER_SERVERS:%=$(TARGET)/servers/%): $(TARGET)/servers/%:
	$(SETUP) server $* $@

$(REDISBLOOM):
	$(SETUP) redisbloom $@

$(PYTHON_ENV)/installed: tests/clients/requirements.txt python/pyproject.toml
	$(SETUP) python $(PYTHON_ENV)
	@touch $@

$(OLDEST_PYTHON_ENV)/installed: tests/clients/requirements-oldest.txt python/pyproject.toml
	$(SETUP) python $(OLDEST_PYTHON_ENV) $<
	@touch $@

$(NODE_MODULES): $(NODE_TESTS)/package-lock.json
	$(SETUP) node
	@touch $@
