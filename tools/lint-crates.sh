#!/bin/sh
# Checks the crates that the workspace depends on: tools/lint-crates.sh CARGO_DENY
#
# The database of known vulnerabilities is not a package, so it may be out of reach. With RELEASE, this is an error.
set -eu
"$1" --workspace --locked check licenses bans sources
if timeout 60 "$1" fetch db >/dev/null 2>&1; then
  "$1" --workspace --locked --offline check advisories
else
  echo "The crates were not checked for known vulnerabilities: the database of advisories is out of reach."
  [ -z "${RELEASE:-}" ]
fi
