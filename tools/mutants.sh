#!/bin/sh
# Changes the code in one place at a time, and reports the changes that no test notices. `make mutants` calls it.
#
# FILE restricts it to a file, and SHARD to a part of the mutants, such as 0/50.
set -eu
mutants=$TARGET/mutants
export PATH="$TARGET/mutation-tools/bin:$PATH" CARGO_TARGET_DIR="$mutants"
# A mutant that requests all memory fails at this limit, in KiB, and leaves the machine some.
ulimit -v 16000000

# mutate PACKAGE TEST: judges the mutants of a package by its unit tests and one other test.
mutate() {
  nice cargo mutants -p "$1" -o "$mutants/$1" ${FILE:+--file "$FILE"} ${SHARD:+--shard "$SHARD" --sharding round-robin} \
    -- --lib --test "$2"
}

failed=0
case ${FILE:-} in src/*) ;; *) PROPTEST_CASES=32 mutate oxbloom-filter promises || failed=1 ;; esac
# The servers load the mutant. Tests that load a second module use one without a change.
case ${FILE:-} in filter/*) ;; *) OXBLOOM_MODULE=$mutants/mutants/deps/liboxbloom.so mutate oxbloom server || failed=1 ;; esac
exit $failed
