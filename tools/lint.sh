#!/bin/sh
# Checks the format of the code, and looks for mistakes and for crates that must not be used. `make lint` calls it.
set -eux

cargo fmt --all --check
cargo clippy --workspace --all-targets --all-features -- -D warnings
cargo clippy --workspace --test memcheck --test soak --test histories --test platforms --all-features -- -D warnings
# Without make's flags, since rustdoc would warn that it cannot reach make's jobserver.
env -u MAKEFLAGS -u MFLAGS RUSTDOCFLAGS='-D warnings' \
  cargo doc -q --no-deps --document-private-items --all-features -p oxbloom -p oxbloom-filter

# compiles_for TRIPLE [OPTION…]: checks the library, and what cargo's options add, for another target. Without rustup, or
# if its server is out of reach, there is no standard library for it. In a release, this is an error.
compiles_for() {
  triple=$1
  shift
  if timeout 60 tools/setup.sh "std-$triple"; then
    cargo check -q -p oxbloom-filter "$@" --all-features --target "$triple"
  else
    echo "The library was not checked for $triple: its standard library is out of reach."
    [ -z "${RELEASE:-}" ]
  fi
}
# 32 bits, and the site's calculator in browsers.
compiles_for wasm32-unknown-unknown -p calculator
# `make test-release` also tests the module there.
compiles_for aarch64-unknown-linux-gnu

sources="examples packaging python site tests/clients tests/dist"
# shellcheck disable=SC2086
"$TARGET/python/bin/ruff" check --config python/pyproject.toml $sources
# shellcheck disable=SC2086
"$TARGET/python/bin/ruff" format --check --config python/pyproject.toml $sources
"$TARGET/python/bin/mypy" --config-file python/pyproject.toml

"$TARGET/cargo-deny" --workspace --locked check licenses bans sources
# The database of known vulnerabilities is not a package, so it may be out of reach. In a release, this is an error.
if timeout 60 "$TARGET/cargo-deny" fetch db >/dev/null 2>&1; then
  "$TARGET/cargo-deny" --workspace --locked --offline check advisories
else
  echo "The crates were not checked for known vulnerabilities: the database of advisories is out of reach."
  [ -z "${RELEASE:-}" ]
fi
