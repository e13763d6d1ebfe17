#!/bin/sh
# Calls the compiler for our own crates (RUSTC_WORKSPACE_WRAPPER), with AddressSanitizer. RUSTC_BOOTSTRAP lets a stable
# compiler do this. Other crates are not compiled again, so only their calls of malloc are checked.
RUSTC_BOOTSTRAP=1 exec "$@" -Zsanitizer=address -Cdebuginfo=line-tables-only
