#!/usr/bin/env python3
"""Runs suites of tests. The Makefile calls it: `make test`, `make test-release`, and `make test-NAME` for one suite.

First calls make for what the suites need. Then runs three suites at a time, since each of them waits half of the time,
and prints the output of each when it ends.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import NamedTuple

AT_A_TIME = 3


class Suite(NamedTuple):
    """A suite of tests: its shell commands, which may use the variables that the Makefile exports."""

    run: str
    needs: str = "build-tests"  # goals of make
    brief: str = ""  # variables of the form that `make test` runs
    about: str = ""  # for `make help`


def clients(*names: str) -> str:
    """Returns the paths of tests in Python."""
    return " ".join(f"tests/clients/{name}" for name in names)


ASAN = "RUSTC_WORKSPACE_WRAPPER=$PWD/tests/asan.sh cargo test --target-dir $TARGET/asan $TESTED"
ON_SERVER = clients("test_redis_cli.py", "test_redis_py.py", "test_slot_migration.py")
FOR_OLDEST = clients(
    "crawling",
    "wheel/test_servers.py",
    "wheel/test_sharded_filter*.py",
    "wheel/test_remote_filter.py",
)
FOR_OLDEST_IN_BRIEF = clients(
    "crawling/test_dupefilter*.py", "crawling/test_deliveries.py", "wheel/test_servers.py"
)
# These tests need Crawlee, or install the newest versions.
NOT_FOR_OLDEST = [clients("crawling/test_crawling_page.py"), clients("crawling/test_crawlee.py")]


def on_server(name: str) -> Suite:
    """Returns the tests that need only the module and a server, with fewer crashes, payloads and failing writes."""
    server = "redis-server" if name == "redis-7.0" else f"$TARGET/servers/{name}"
    cli = f"$TARGET/clis/{name}" if name in os.environ.get("CLIS", "").split() else "redis-cli"
    return Suite(
        f"""
        export SERVER_BIN={server} CLI_BIN={cli} CRASH_ROUNDS=${{ROUNDS:-10}} PAYLOADS=1000 WRITES=4
        $SERVER_BIN --version | grep -i '^{name.replace("-", " server v=")}\\.'
        cargo test -q $TESTED --test server ${{FAULTS---test faults}}
        $TARGET/python/bin/pytest -q {ON_SERVER}
        """,
        "build-tests setup-servers",
        "FAULTS=",
    )


def on_platform(server: str, processor: str, other: str = "", brief: str = "") -> Suite:
    """Returns the tests that a server for musl or in qemu can run, with the library of a release and faults.

    They exclude those that preload a library, load RedisBloom, or measure or limit the memory of a process in qemu. If
    `other` is a server of the same version, files and replicas move between both.
    """
    module, excluded = (
        f"$TARGET/portable/{processor}.so",
        "beside:: importing:: a_script_has_the_present",
    )
    if processor != os.uname().machine:
        excluded += " memory:: takes_memory_only_as_it_is_used"
    # These find the commands that only a library with faults has.
    excluded += (
        " a_release_has_no_command_that_panics no_other_command other_prefix::the_module_can"
    )
    skips = " ".join(f"--skip {name}" for name in excluded.split())
    between = f"""
        SERVER_BIN={other} OTHER_SERVER_BIN=$TARGET/servers/{server} OTHER_MODULE={module} \\
          cargo test -q $TESTED --test platforms"""
    return Suite(
        f"""
        {between if other else ""}
        export SERVER_BIN=$TARGET/servers/{server} OXBLOOM_MODULE={module} OXBLOOM_FAULTY_MODULE={module}
        cargo test -q $TESTED --test server -- {skips} ${{TOPICS-}}
        """,
        f"build-tests {module} $TARGET/servers/{server}",
        brief,
    )


def library_on(processor: str) -> Suite:
    """Returns the tests of the library in qemu, without the statistical ones."""
    triple = f"{processor}-unknown-linux-gnu"
    runner = f"qemu-{processor}-static" + (" -cpu neoverse-n1" if processor == "aarch64" else "")
    return Suite(
        f"""
        export PATH=$TARGET/zig/bin:$PATH PROPTEST_CASES=16
        export CARGO_TARGET_{triple.upper().replace("-", "_")}_RUNNER="{runner} -L $TARGET/{processor}-libraries"
        cargo-zigbuild test -q -p oxbloom-filter --tests --target {triple}.2.17 -- \\
          --skip rates:: --skip adversary:: --skip measured::
        """,
        f"setup-std-{triple} $TARGET/zig/installed $TARGET/{processor}-libraries",
    )


# The longest suites come first, so that they do not run alone in the end.
SUITES = {
    "newest-clients": Suite(
        """$TARGET/python/bin/pytest -q -m "${CASES-}" -n 4 --dist loadfile tests/clients""",
        "build-tests wheel-in-python setup-servers",
        "CASES='not thorough'",
    ),
    "rust": Suite(
        "cargo test $TESTED",
        # The numbers of forged payloads, of look-ups that measure a rate, of kills, and of writes that fail.
        brief="PAYLOADS=1000 LOOKUPS=300000 CRASH_ROUNDS=20 WRITES=4",
    ),
    "on-redis-6.2": on_server("redis-6.2"),
    # Leaves out the statistical tests, which insert millions of items, and runs an eighth of the cases of the others.
    # Other crates than ours are hard links to the normal build, since building them again would take minutes. An
    # allocation that is too large fails, as with other allocators, instead of aborting the process.
    "asan": Suite(
        f"""
        [ -d $TARGET/asan ] || (
          cd $TARGET && mkdir asan && cp -al --parents debug/.fingerprint debug/build debug/deps asan &&
          rm -rf asan/debug/deps/*oxbloom* asan/debug/.fingerprint/*oxbloom*
        )
        export PROPTEST_CASES=32 PAYLOADS=300 ASAN_OPTIONS=allocator_may_return_null=1
        {ASAN} --test promises -- --skip rates:: --skip adversary::
        {ASAN} --test corpus -- header file chunks forgetting forged
        """,
        about="Look for memory errors and leaks in the library's tests with AddressSanitizer",
    ),
    "on-valkey-9.1": on_server("valkey-9.1"),
    # The library of a release on a server whose allocator aligns to 8 bytes only.
    "on-musl": on_platform(
        "redis-7.0-musl-x86_64",
        "x86_64",
        "redis-server",
        "TOPICS='panics persistence packed replication'",
    ),
    # Only tests of code that uses Scrapy or redis-py. The oldest versions use deprecated features of Python.
    "oldest-clients": Suite(
        f"""
        $TARGET/python-oldest/bin/pytest -q -m "${{CASES-}}" -n 2 -W ignore::DeprecationWarning \\
          --ignore {" --ignore ".join(NOT_FOR_OLDEST)} ${{OLDEST-{FOR_OLDEST}}}
        """,
        "build-tests wheel-in-python-oldest",
        f"CASES='not thorough' OLDEST='{FOR_OLDEST_IN_BRIEF}'",
    ),
    # Debian's server cannot defragment memory, so another one is used.
    "soak": Suite(
        """
        cargo test $TESTED --test soak -- clients ${SECONDS:-60} ${SEED-}
        SERVER_BIN=$TARGET/servers/redis-8.2 cargo test $TESTED --test soak -- \\
          defragmentation ${FILTERS:-1000000} ${SEED-}
        cargo test $TESTED --test soak -- removals ${OPERATIONS:-20000000} ${SEED-}
        cargo test $TESTED --test soak -- windows ${OPERATIONS:-20000000} ${SEED-}
        """,
        "build-tests setup-servers",
        "SECONDS=20 FILTERS=200000 OPERATIONS=4000000 SEED=1",
        "Run random commands (SECONDS=60), defragmentation (FILTERS=1000000), removals and windows "
        "(OPERATIONS=20000000)",
    ),
    # These two servers synchronize replicas in different ways.
    "histories": Suite(
        """
        for server in redis-8.2 valkey-9.1; do
          SERVER_BIN=$TARGET/servers/$server cargo test $TESTED --test histories -- ${HISTORIES:-500} ${SEED-}
        done
        """,
        "build-tests setup-servers",
        # The tenth has Sentinels, which on a busy machine sometimes leave two replicas that follow each other.
        "HISTORIES=10 SEED=1",
        "Look for lost items after partitions, kills and false clocks, in 500 histories (or HISTORIES=10) on each of "
        "two servers",
    ),
    "memcheck": Suite(
        "cargo test $TESTED --test memcheck",
        about="Look for memory errors and leaks in a server under valgrind",
    ),
    "instructions": Suite("cargo bench --bench instructions", "build setup-valgrind"),
    # Builds the library only from the files that would be published.
    "package": Suite("cargo publish --dry-run --allow-dirty -p oxbloom-filter", "setup-build"),
    "calculator": Suite("node --test tests/site/calculator.test.mjs", "setup-tests"),
}
TEST = ["lint", *SUITES]

SUITES |= {
    "lint": Suite("", "lint"),
    "crash": Suite(
        "CRASH_ROUNDS=${ROUNDS:-1000} cargo test $TESTED --test faults crash -- --nocapture",
        about="Kill servers at random moments, 1000 times (or ROUNDS=5000), and look for lost items",
    ),
    "simulation": Suite(
        "SEEDS=${SEEDS:-20000} cargo test --release -p oxbloom-fuzz --test simulation",
        "setup-build",
        about="Simulate servers that replicate, restart and fail over, from 20000 seeds (or SEEDS=17..18)",
    ),
    "site": Suite(
        """
        npm install --prefix tests/site --no-package-lock --no-audit --no-fund --loglevel=error
        SITE=$TARGET/site node --test tests/site/browser.test.mjs
        """,
        "site setup-chromium",
        about="Open all pages of the site in Chromium: takes six minutes",
    ),
    # Installs what `make dist` built in a new Debian with a server.
    "dist": Suite(
        """
        shellcheck packaging/*.sh packaging/postinst packaging/prerm
        lintian --fail-on error --allow-root dist/*.deb
        PYTHONPATH=tests/clients:packaging $TARGET/python/bin/pytest -q -c tests/clients/pytest.ini tests/dist
        """,
        "dist-of-both setup-tests setup-servers $TARGET/root-file-system $TARGET/servers/redis-7.0-musl-x86_64",
        about="Install the files of a release on new machines, as users do (as root)",
    ),
}
# Nothing here runs on ARM hardware.
SUITES |= {
    "on-musl-aarch64": on_platform("redis-7.0-musl-aarch64", "aarch64"),
    "on-aarch64-redis-7.0": on_platform("redis-7.0-glibc-aarch64", "aarch64", "redis-server"),
    "on-aarch64-redis-8.0": on_platform("redis-8.0-glibc-aarch64", "aarch64"),
    "on-aarch64-valkey-9.1": on_platform(
        "valkey-9.1-glibc-aarch64", "aarch64", "$TARGET/servers/valkey-9.1"
    ),
    "library-on-aarch64": library_on("aarch64"),
    "library-on-s390x": library_on("s390x"),
}
SERVERS = os.environ.get("SERVERS", "").split()
SUITES = {f"on-{name}": on_server(name) for name in SERVERS} | SUITES

GROUPS = {
    "clients": ["newest-clients", "oldest-clients"],
    "matrix": [f"on-{name}" for name in SERVERS],
    "platforms": [name for name in SUITES if re.match("(on-musl|on-aarch64|library-on)", name)],
}
GROUPS["release"] = [
    "lint",
    "rust",
    "soak",
    "histories",
    *GROUPS["matrix"],
    *GROUPS["platforms"],
    *GROUPS["clients"],
    "site",
    "dist",
]
ABOUT_GROUPS = {
    "matrix": "Run the integration tests on five servers "
    '(or some, such as SERVERS="redis-6.2 valkey-9.1")',
    "platforms": "Run the tests on musl, and in qemu on aarch64, and those of the library on s390x",
    "clients": "Run the tests of the Python package, of client libraries, and of the pages",
    "release": "As root: run all that a release needs and `make test` leaves out: takes an hour and a half",
}


def environment(brief: str = "") -> dict[str, str]:
    """Returns the variables of a suite. Those that the user sets count more than those of the brief form.

    Leaves out make's flags: rustdoc would warn that it cannot reach make's jobserver.
    """
    variables = dict(pair.split("=", 1) for pair in shlex.split(brief))
    return variables | {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")
    }


def prepare(names: list[str]) -> None:
    """Calls make for what suites need: three goals at a time, since downloads wait, and some builds for others."""
    goals = dict.fromkeys(goal for name in names for goal in SUITES[name].needs.split())
    command = ["make", "--no-print-directory", "--jobs=3", *map(os.path.expandvars, goals)]
    if subprocess.run(command, env=environment(), check=False).returncode:
        sys.exit(1)


def run(name: str, brief: bool, is_alone: bool) -> bool:
    """Runs a suite, and prints its output. Returns whether it passed."""
    suite = SUITES[name]
    began = time.monotonic()
    output = None if is_alone else subprocess.PIPE
    if output:
        print(f"running: {name}", flush=True)
    done = subprocess.run(
        ["sh", "-euc", suite.run],
        env=environment(suite.brief if brief else ""),
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        check=False,
    )
    if output:
        sys.stdout.buffer.write(b"--- %s ---\n%s" % (name.encode(), done.stdout))
    passed = done.returncode == 0
    print(
        f"{'passed' if passed else 'FAILED'}: {name}, {time.monotonic() - began:.0f} s", flush=True
    )
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="suites or groups of suites (default: all of `make test`)",
    )
    parser.add_argument("--brief", action="store_true", help="leave out some cases and samples")
    parser.add_argument("--list", action="store_true", help="print the suites, as `make help` does")
    options = parser.parse_args()
    if options.list:
        about = {name: suite.about for name, suite in SUITES.items() if suite.about}
        for name, text in sorted({**about, **ABOUT_GROUPS}.items()):
            print(f"  make test-{name:15} {text}")
        print(
            f"  make test-NAME            Run another suite: {', '.join(sorted(SUITES.keys() - about))}"
        )
        return 0
    names = [member for name in options.names for member in GROUPS.get(name, [name])] or TEST
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        sys.exit(f"There is no suite {unknown[0]}: see `make help`.")
    if options.names == ["release"]:
        os.environ["RELEASE"] = "1"
    prepare(names)
    suites = [name for name in names if SUITES[name].run]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = {pool.submit(run, name, options.brief, len(suites) == 1): name for name in suites}
        failed = [running[suite] for suite in as_completed(running) if not suite.result()]
    if failed:
        print(f"Failed: {', '.join(failed)}. `make test-{failed[0]}` runs {failed[0]} alone.")
    else:
        print("All tests passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
