#!/bin/sh
# Stands before the compiler for our own crates (RUSTC_WORKSPACE_WRAPPER), and has AddressSanitizer in what it makes; a stable
# compiler knows how, too. All others stay as they were built for other tests: of them, only calls of malloc are watched.
RUSTC_BOOTSTRAP=1 exec "$@" -Zsanitizer=address -Cdebuginfo=line-tables-only
