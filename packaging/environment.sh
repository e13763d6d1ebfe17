# shellcheck shell=sh disable=SC2034,SC2154
#
# The environment in which files of a release are built for the processor $arch. Scripts in this folder read it.
#
# $target is cargo's target folder, with zig in $target/zig.

triple=$arch-unknown-linux-gnu
# The oldest glibc that Rust supports, from 2012.
glibc=2.17
export CARGO_TARGET_DIR="$target"
export PATH="$target/zig/bin:$target/dist-tools/bin:$PATH"
# The libraries must not contain paths of this machine.
export RUSTFLAGS="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/oxbloom"
