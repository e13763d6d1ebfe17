#!/bin/sh
# Lists the files in dist/ in SHA256SUMS, and signs the list: packaging/sign.sh TARGET
#
# SIGNING_KEY is the releaser's secret key. packaging/oxbloom.pub is the public one, by which users verify the files.
# Without SIGNING_KEY, a key in TARGET/test-key signs, which is good for tests alone. TARGET/signed-by.pub is the public
# key of either.
set -eu
cd "$(dirname "$0")/.."
target=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)

rm -f dist/SHA256SUMS*
sums=$(cd dist && sha256sum -- *)
echo "$sums" | tee dist/SHA256SUMS

if [ -n "${SIGNING_KEY:-}" ]; then
  # The provenance names a commit, which then would not give these files.
  [ -z "$(git status --porcelain)" ] || { echo "Commit your changes before you sign a release." >&2; exit 1; }
  public=packaging/oxbloom.pub
  comment="oxbloom $version"
else
  SIGNING_KEY=$target/test-key/oxbloom.key
  public=$target/test-key/oxbloom.pub
  comment="oxbloom $version, signed with a TEST KEY: not a release"
  mkdir -p "$target/test-key"
  [ -f "$SIGNING_KEY" ] || minisign -G -W -s "$SIGNING_KEY" -p "$public" > /dev/null
fi
minisign -S -s "$SIGNING_KEY" -t "$comment" -m dist/SHA256SUMS
# Fails if the two keys are not a pair.
minisign -V -p "$public" -m dist/SHA256SUMS
cp "$public" "$target/signed-by.pub"
