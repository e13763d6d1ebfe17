#!/bin/sh
# Builds the module for all systems with a processor: packaging/library.sh TARGET ARCH FILE CARGO…
#
# ARCH is x86_64 or aarch64. FILE is the library. CARGO are the words of a command that calls cargo. environment.sh says
# what TARGET has.
set -eu
cd "$(dirname "$0")/.."
target=$1 arch=$2 file=$3
shift 3
. packaging/environment.sh

# Builds with other features replace cargo's own file, so the next one waits until it is copied.
mkdir -p "$target/$triple" "${file%/*}"
exec 7> "$target/$triple/lock"
flock 7

# This builds in a subfolder: in the root of the project, cargo-zigbuild would pass relative paths of zig's headers to
# bindgen, which runs elsewhere and would not find them.
(
  cd packaging
  CARGO_PROFILE_RELEASE_STRIP=symbols "$@" --manifest-path ../Cargo.toml --package oxbloom --lib --release --locked \
    --target "$triple.$glibc"
)
# musl takes the names of glibc's libraries for its own, except for that of the loader on x86-64. With glibc, the loader
# is there without being named.
patchelf --remove-needed ld-linux-x86-64.so.2 --output "$file" "$target/$triple/release/liboxbloom.so"
