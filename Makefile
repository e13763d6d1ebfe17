# oxbloom: `make run` to try it, `make check` and `make test` to work on it, `make help` for the rest.

PORT ?= 6379
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
DESTDIR ?=

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
MODULE := $(TARGET)/release/liboxbloom.so
# The module with fault injection, for tests. It is a copy, since other builds overwrite the original.
FAULTY_MODULE := $(TARGET)/faulty/liboxbloom.so
REDISBLOOM := $(TARGET)/redisbloom/redisbloom.so
REDISJSON := $(TARGET)/redisbloom/rejson.so
MODULES := OXBLOOM_MODULE=$(MODULE) OXBLOOM_FAULTY_MODULE=$(FAULTY_MODULE) REDISBLOOM_MODULE=$(REDISBLOOM) \
  REDISJSON_MODULE=$(REDISJSON) VALKEY_BLOOM_MODULE=$(TARGET)/debug/examples/libvalkey_bloom.so \
  FAILING_WRITES_LIBRARY=$(TARGET)/debug/examples/libfailing_writes.so
# These have the newest and the oldest versions of Scrapy and redis-py that the Python package supports.
PYTHON_ENV := $(TARGET)/python
OLDEST_PYTHON_ENV := $(TARGET)/python-oldest
NODE_TESTS := tests/clients/node
NODE_MODULES := $(NODE_TESTS)/node_modules/installed
SETUP := tools/setup.sh

# All commands use the same packages and features. Otherwise, cargo would build their common dependencies again.
TESTED := -p oxbloom -p oxbloom-filter -p oxbloom-fuzz -p calculator --features fault-injection

.DEFAULT_GOAL := help
.PHONY: help run build check test bench bench-scrapy bench-python demo install uninstall dist test-dist clean
.PHONY: built lint lint-rust lint-python lint-crates build-modules build-tests build-asan build-instructions
.PHONY: test-rust test-crash test-clients test-newest-clients test-oldest-clients test-node test-instructions
.PHONY: test-package test-memcheck test-asan test-matrix test-release soak
.PHONY: wheel wheel-in-python wheel-in-python-oldest
.PHONY: site test-calculator test-site
.PHONY: setup setup-test setup-servers setup-valgrind setup-faketime setup-monitoring

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## Install missing packages, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@tools/run.sh $(PORT) $(TARGET)/run $(MODULE)

build: setup ## Install missing packages, and build the release library, target/release/liboxbloom.so
	cargo build --release

# --- Checks -----------------------------------------------------------------------------------------------------------

# This leaves out the library's statistical tests, which take minutes. `make test` runs them.
check: lint build-modules $(REDISBLOOM) ## Lint, and test the library (without its statistical tests) and the module on one server: takes minutes
	PROPTEST_CASES=64 cargo test -p oxbloom-filter -- --skip rates:: --skip adversary::
	$(MODULES) cargo test $(TESTED) --test server

# All suites, the longest first. `make test` first builds what they need. Then it runs three suites at a time, since each
# of them waits half of the time. With BRIEF, some suites are shorter: `make test-release` runs them whole, and on all
# servers.
SUITES = test-newest-clients test-rust test-on-redis-6.2 test-asan test-on-valkey-9.1 test-oldest-clients soak test-node \
  test-memcheck test-instructions test-package test-calculator
test: ## Install missing packages, and run all checks: takes twenty-five minutes
	@$(MAKE) --no-print-directory --jobs=3 built
	@$(MAKE) --no-print-directory BUILT=1 build-asan
	@$(call three_at_a_time,BRIEF=1 $(SUITES))
	@echo "All tests passed."

test-release: RELEASE = 1
test-release: lint-crates test-rust soak test-matrix test-clients test-site test-dist ## As root: run all that a release needs and `make test` leaves out: takes an hour
	@echo "All tests of a release passed."

# Runs all goals, even if one fails, and does not mix their output. With BUILT, goals do not depend on builds, so that
# the longest ones can start first.
three_at_a_time = $(MAKE) --no-print-directory --keep-going --jobs=3 --output-sync=target BUILT=1 $(1)
needs = $(if $(BUILT),,$(1))

# Three at a time, since downloads wait, and some builds wait for others.
built: lint build-tests wheel-in-python wheel-in-python-oldest build-instructions setup-servers

lint: lint-rust lint-python lint-crates

# Otherwise, rustdoc would warn that it cannot reach make's jobserver.
WITHOUT_JOBSERVER := env -u MAKEFLAGS -u MFLAGS

lint-rust: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --workspace --test memcheck --test soak --all-features -- -D warnings
	$(WITHOUT_JOBSERVER) RUSTDOCFLAGS='-D warnings' cargo doc -q --no-deps --document-private-items -p oxbloom -p oxbloom-filter

PYTHON_SOURCES := packaging python site tests/clients tests/dist
lint-python: $(PYTHON_ENV)/installed
	$(PYTHON_ENV)/bin/ruff check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/ruff format --check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/mypy --config-file python/pyproject.toml

# The database of known vulnerabilities is not a package, so it may be out of reach. In a release, this is an error.
CARGO_DENY := $(TARGET)/cargo-deny
lint-crates: $(CARGO_DENY)
	$(CARGO_DENY) --workspace --locked check licenses bans sources
	@if timeout 60 $(CARGO_DENY) fetch db >/dev/null 2>&1; then \
	  $(CARGO_DENY) --workspace --locked --offline check advisories; \
	else \
	  echo "The crates were not checked for known vulnerabilities: the database of advisories is out of reach."; \
	  $(if $(RELEASE),exit 1,true); \
	fi

build-modules: build ## Build the modules that tests load: the release, target/faulty/liboxbloom.so, and two of testkit
	cargo build $(TESTED)
	install -D $(TARGET)/debug/liboxbloom.so $(FAULTY_MODULE)
	cargo build -p testkit --examples

# `cargo test` only includes the soak and the tests under valgrind if they are named.
build-tests: build-modules setup-test
	cargo test $(TESTED) --no-run
	cargo test $(TESTED) --no-run --test memcheck --test soak

# PAYLOADS, LOOKUPS, CRASH_ROUNDS and WRITES are the numbers of forged payloads, of look-ups that measure a rate, of
# kills, and of writes that fail in each operation.
FEWER = $(if $(BRIEF),PAYLOADS=1000 LOOKUPS=300000 CRASH_ROUNDS=20 WRITES=4)
test-rust: $(call needs,build-tests)
	$(FEWER) $(MODULES) $(WITHOUT_JOBSERVER) cargo test $(TESTED)

test-crash: build-tests ## Kill servers at random moments, 1000 times (or ROUNDS=5000), and look for lost items
	CRASH_ROUNDS=$(or $(ROUNDS),1000) $(MODULES) cargo test $(TESTED) --test faults crash -- --nocapture

# With the oldest versions, only tests of code that uses Scrapy or redis-py run. The test of the crawling page is left
# out, since it installs the newest versions, and the test of Crawlee, which is not installed. The oldest versions use
# features of Python that are deprecated by now.
NOT_FOR_OLDEST := $(addprefix --ignore tests/clients/crawling/,test_crawling_page.py test_crawlee.py)
OLDEST_PYTEST := $(OLDEST_PYTHON_ENV)/bin/pytest -W ignore::DeprecationWarning $(NOT_FOR_OLDEST)
CRAWLS := $(if $(BRIEF),crawling/test_dupefilter.py crawling/test_deliveries.py,crawling)
OLDEST_TESTS := $(addprefix tests/clients/,$(CRAWLS) wheel/test_servers.py $(if $(BRIEF),,wheel/test_sharded_filter.py wheel/test_remote_filter.py))
CASES = $(if $(BRIEF),-m 'not thorough')
test-clients: test-newest-clients test-oldest-clients test-node

test-newest-clients: $(call needs,build-tests wheel-in-python)
	$(MODULES) $(PYTHON_ENV)/bin/pytest -q $(CASES) -n 4 --dist loadfile tests/clients

test-oldest-clients: $(call needs,build-tests wheel-in-python-oldest)
	$(MODULES) $(OLDEST_PYTEST) -q $(CASES) -n 2 $(OLDEST_TESTS)

test-node: $(call needs,build-tests wheel-in-python)
	cd $(NODE_TESTS) && OXBLOOM_MODULE=$(MODULE) node --test

build-instructions: build
	cargo bench --bench instructions --no-run

test-instructions: $(call needs,build-instructions setup-valgrind)
	OXBLOOM_MODULE=$(MODULE) cargo bench --bench instructions

# Builds the library only from the files that would be published.
test-package: setup
	cargo publish --dry-run --allow-dirty -p oxbloom-filter

test-memcheck: $(call needs,build-tests) ## Look for memory errors and leaks in a server under valgrind
	OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test memcheck

# Only our own crates are compiled with AddressSanitizer (see tests/asan.sh). The other crates are hard links to the
# normal build, since building them again would take minutes. So no other build may run at the same time.
TEST_WITH_ASAN = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/asan.sh \
  cargo test --target-dir $(TARGET)/asan $(TESTED) --test promises --test corpus
build-asan: $(call needs,build-tests)
	@[ -d $(TARGET)/asan ] || { cd $(TARGET) && mkdir asan && \
	  cp -al --parents debug/.fingerprint debug/build debug/deps asan && \
	  rm -rf asan/debug/deps/*oxbloom* asan/debug/.fingerprint/*oxbloom*; }
	$(TEST_WITH_ASAN) --no-run

# This leaves out the statistical tests, which insert millions of items, and runs an eighth of the cases of the others.
# An allocation that is too large fails, as with other allocators, instead of aborting the process.
test-asan: $(call needs,build-asan) ## Look for memory errors and leaks in the library's tests with AddressSanitizer
	PROPTEST_CASES=32 PAYLOADS=300 ASAN_OPTIONS=allocator_may_return_null=1 $(TEST_WITH_ASAN) -- --skip rates:: --skip adversary::

# SECONDS is the time of random commands, FILTERS the number of filters that a server moves, and OPERATIONS the number
# of additions and removals. SEED repeats a soak. Debian's server cannot defragment memory, so another one is used.
SECONDS ?= $(if $(BRIEF),20,60)
FILTERS ?= $(if $(BRIEF),200000,1000000)
OPERATIONS ?= $(if $(BRIEF),4000000,20000000)
SEED ?=
MOVING_SERVER := $(TARGET)/servers/redis-8.2
soak: $(call needs,build-tests $(MOVING_SERVER)) ## Run random commands (SECONDS=60), defragmentation (FILTERS=1000000), removals and windows (OPERATIONS=20000000)
	OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test soak -- clients $(SECONDS) $(SEED)
	SERVER_BIN=$(MOVING_SERVER) OXBLOOM_MODULE=$(MODULE) cargo test $(TESTED) --test soak -- defragmentation $(FILTERS) $(SEED)
	cargo test $(TESTED) --test soak -- removals $(OPERATIONS) $(SEED)
	cargo test $(TESTED) --test soak -- windows $(OPERATIONS) $(SEED)

# --- Five servers -----------------------------------------------------------------------------------------------------

# Redis 7.0 is Debian's, and the others come from PyPI. Each of them runs the tests that need only the module and
# servers, with fewer crashes (ROUNDS), forged payloads and writes that fail. BRIEF leaves out the tests of faults, which
# take minutes.
SERVERS := redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
OTHER_SERVERS := $(filter-out redis-7.0,$(SERVERS))
SERVER_CLIENT_TESTS := $(addprefix tests/clients/,test_redis_cli.py test_redis_py.py test_slot_migration.py)
# The other packages of PyPI have no shell client: there, Debian's is tested.
CLIS := redis-6.2 valkey-8.1

test-matrix: build-tests setup-servers ## Run the integration tests on five servers (or some, such as SERVERS="redis-6.2 valkey-9.1")
	@$(call three_at_a_time,$(SERVERS:%=test-on-%))

.PHONY: $(SERVERS:%=test-on-%)
test-on-redis-7.0: server = redis-server
$(OTHER_SERVERS:%=test-on-%): server = $(TARGET)/servers/$*
$(SERVERS:%=test-on-%): test-on-%:
	@$(server) --version | grep -i '^$(subst -, server v=,$*)\.' || { echo "$(server) is not $*"; exit 1; }
	@export SERVER_BIN=$(server) CLI_BIN=$(if $(filter $*,$(CLIS)),$(TARGET)/clis/$*,redis-cli) CRASH_ROUNDS=$(or $(ROUNDS),10) PAYLOADS=1000 WRITES=4 $(MODULES); \
	  { cargo test -q $(TESTED) --test server $(if $(BRIEF),,--test faults) && \
	    $(PYTHON_ENV)/bin/pytest -q $(SERVER_CLIENT_TESTS); } || \
	  { echo "FAILED on $*"; exit 1; }

# --- The Python package -----------------------------------------------------------------------------------------------

WHEELS := $(TARGET)/wheels
WHEEL_TOOLS := $(TARGET)/wheel-tools
wheel: build $(WHEEL_TOOLS)/installed ## Build the Python package, with the module in it, into target/wheels
	install -s -m 755 $(MODULE) python/oxbloom/liboxbloom.so
	rm -rf $(WHEELS)
	$(WHEEL_TOOLS)/bin/maturin build -q --release --locked --manifest-path python/Cargo.toml --out $(WHEELS)

# Installs the package into an environment of the tests.
wheel-in-python wheel-in-python-oldest: wheel-in-%: wheel $(TARGET)/%/installed
	$(TARGET)/$*/bin/pip install -q --force-reinstall --no-deps $(WHEELS)/oxbloom-*.whl

# --- The site ---------------------------------------------------------------------------------------------------------

SITE_ENV := $(TARGET)/site-env
WASM := wasm32-unknown-unknown
# If REPOSITORY_URL has the address of the repository's files, links to source files lead there.
site: $(SITE_ENV)/installed ## Build the pages as a site that any web server can serve, into target/site
	@$(SETUP) wasm
	RUSTFLAGS='--cfg getrandom_backend="unsupported"' cargo build -p calculator --profile browser --target $(WASM)
	python3 site/collect.py $(TARGET)/site-build $(TARGET)/$(WASM)/browser/calculator.wasm
	$(SITE_ENV)/bin/zensical build --strict -f $(TARGET)/site-build/mkdocs.yml
	rm -rf $(TARGET)/site && mv $(TARGET)/site-build/site $(TARGET)/site

test-calculator: $(call needs,build-tests)
	node --test tests/site/calculator.test.mjs

test-site: site ## Open all pages of the site in Chromium: takes six minutes
	@$(SETUP) chromium
	npm install --prefix tests/site --no-package-lock --no-audit --no-fund --loglevel=error
	SITE=$(TARGET)/site node --test tests/site/browser.test.mjs

$(SITE_ENV)/installed: site/requirements.txt
	$(SETUP) python $(SITE_ENV) $<
	@touch $@

# --- Benchmarks and a demonstration -----------------------------------------------------------------------------------

bench: build $(REDISBLOOM) ## Compare with RedisBloom and fastbloom: takes half an hour (two minutes with QUICK=1)
	cargo build --release -p oxbloom-comparison --example floor
	cargo bench -p oxbloom-comparison --bench filter
	FLOOR_MODULE=$(TARGET)/release/examples/libfloor.so $(MODULES) cargo bench -p oxbloom-comparison --bench servers

bench-scrapy: wheel-in-python ## Compare dupefilters for Scrapy, and crawls: takes a quarter of an hour (two minutes with QUICK=1)
	@$(SETUP) npm
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/dupefilters.py
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/crawls.py

bench-python: wheel-in-python ## Compare Bloom filters in a Python process: takes twenty minutes (two with QUICK=1)
	$(PYTHON_ENV)/bin/pip install -q -r python/benchmarks/requirements.txt
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/filters.py

demo: build ## Deduplicate 2.7 million real URLs with a Bloom filter, and with a Redis set for comparison
	cargo run --release --example demo -- --module $(MODULE) --data $(TARGET)/demo

# --- Installing the module --------------------------------------------------------------------------------------------

MODULE_FOLDER := $(PREFIX)/lib/redis/modules
CONF_FOLDER := $(SYSCONFDIR)/redis

# `make install` builds nothing, since root may have neither cargo nor a network.
install: ## Install the built module and a configuration fragment (PREFIX=/usr/local, DESTDIR=)
	@[ -f $(MODULE) ] || { echo "$(MODULE) is missing: run \`make build' first, as yourself."; exit 1; }
	install -D -s -m 755 $(MODULE) $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so
	install -d $(DESTDIR)$(CONF_FOLDER)
	sed '/^# The server/,$$d' redis.conf.example > $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@printf 'Add these two lines to your redis.conf:\n\n    include %s\n    loadmodule %s\n\n' \
	  $(CONF_FOLDER)/oxbloom.conf $(MODULE_FOLDER)/liboxbloom.so

# Also removes folders that are then empty, except those that every system has.
SYSTEM_FOLDERS := /usr | /usr/lib | /usr/local | /usr/local/lib | /usr/local/etc | /etc | /opt
uninstall: ## Remove the files that `make install` installed (with the same PREFIX and DESTDIR)
	rm -f $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@for folder in $(MODULE_FOLDER) $(CONF_FOLDER); do \
	  while [ "$$folder" != / ]; do \
	    case "$(DESTDIR:%/=%)$$folder" in $(SYSTEM_FOLDERS)) break; esac; \
	    rmdir "$(DESTDIR)$$folder" 2>/dev/null || break; \
	    folder=$$(dirname "$$folder"); \
	  done; \
	done

# --- A release --------------------------------------------------------------------------------------------------------

DIST_TOOLS := $(TARGET)/dist-tools
ARCH ?= x86_64
dist: setup $(DIST_TOOLS)/installed ## Build and sign the files of a release in dist/: an archive, packages, and what is in them
	packaging/build.sh $(TARGET) $(ARCH)
	packaging/sign.sh $(TARGET)

# A new Debian with a server, in which the tests install what `make dist` built.
ROOT_FILE_SYSTEM := $(TARGET)/root-file-system
test-dist: dist $(PYTHON_ENV)/installed $(ROOT_FILE_SYSTEM) $(TARGET)/servers/valkey-8.1 ## Install the files of a release on new machines, as users do (as root)
	shellcheck packaging/build.sh packaging/sign.sh packaging/postinst packaging/prerm
	lintian --fail-on error --allow-root dist/*.deb
	TARGET=$(TARGET) PYTHONPATH=tests/clients:packaging $(PYTHON_ENV)/bin/pytest -q -c tests/clients/pytest.ini tests/dist

clean: ## Remove everything that was built
	cargo clean
	rm -rf dist python/oxbloom/liboxbloom.so python/oxbloom/THIRD-PARTY-LICENSES
	rm -rf $(NODE_TESTS)/node_modules tests/site/node_modules

# --- Dependencies, which tools/setup.sh installs ----------------------------------------------------------------------

setup:
	@$(SETUP) build

setup-test: setup-monitoring setup-valgrind setup-faketime $(REDISBLOOM) $(REDISJSON) $(PYTHON_ENV)/installed $(OLDEST_PYTHON_ENV)/installed $(NODE_MODULES)

setup-valgrind setup-faketime setup-monitoring: setup-%:
	@$(SETUP) $*

setup-servers: $(OTHER_SERVERS:%=$(TARGET)/servers/%) $(CLIS:%=$(TARGET)/clis/%)

$(DIST_TOOLS)/installed: tools/setup.sh
	$(SETUP) dist $(DIST_TOOLS)
	@touch $(DIST_TOOLS)/installed

$(ROOT_FILE_SYSTEM): tools/setup.sh
	$(SETUP) root-file-system $@
	@touch $@

$(OTHER_SERVERS:%=$(TARGET)/servers/%): $(TARGET)/servers/%:
	$(SETUP) server $* $@

$(CLIS:%=$(TARGET)/clis/%): $(TARGET)/clis/%:
	$(SETUP) cli $* $@

$(CARGO_DENY):
	$(SETUP) cargo-deny $@

$(REDISBLOOM):
	$(SETUP) redisbloom $@

$(REDISJSON):
	$(SETUP) redisjson $@

$(PYTHON_ENV)/installed: tests/clients/requirements.txt
$(OLDEST_PYTHON_ENV)/installed: tests/clients/requirements-oldest.txt
$(PYTHON_ENV)/installed $(OLDEST_PYTHON_ENV)/installed:
	$(SETUP) python $(@D) $<
	@touch $@

$(WHEEL_TOOLS)/installed: tools/setup.sh
	$(SETUP) wheel $(@D)
	@touch $@

$(NODE_MODULES): $(NODE_TESTS)/package-lock.json
	$(SETUP) node
	@touch $@
