#!/bin/sh
# Compiles our own crates with AddressSanitizer: cargo calls this script instead of rustc (RUSTC_WORKSPACE_WRAPPER).
# RUSTC_BOOTSTRAP lets a stable compiler use `-Z`. Other crates are not compiled again, so only their allocations are
# checked.
RUSTC_BOOTSTRAP=1 exec "$@" -Zsanitizer=address -Cdebuginfo=line-tables-only
