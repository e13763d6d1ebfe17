#!/usr/bin/env python3
"""Changes the code in one place at a time, and reports the changes that no test notices. `make mutants` calls it.

cargo-mutants lists the changes, the mutants. To build each of them would take days, so a build has thousands: the body
of a function becomes a `match` with an arm for each of its mutants, and an environment variable chooses the arm. First,
each test runs without a change, and records the functions that it reaches. Then a mutant is judged by the tests that
reach its function, the fastest first, until one fails.

Constants, and the functions that they call, cannot have a `match`. Their mutants are built one at a time, if asked for.
"""

import argparse
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mutant_builds import (
    TARGET,
    TREE,
    Build,
    Mutant,
    Test,
    listed,
    parts,
    sources,
    write,
)

VERDICTS = TARGET / "verdicts.tsv"
# A mutant that requests all memory fails at this limit, in bytes, and leaves the machine some.
MEMORY = 8 << 30
# A test that needs this many times more of the processor's seconds than without a change, and some more, is in an
# endless loop.
PATIENCE = 5
SPARE_SECONDS = 3
# Unless all tests are asked for, a mutant is missed after tests that take so many seconds without a change.
ENOUGH_SECONDS = 20
# The verdicts on mutants that may need an explanation.
UNNOTICED = {"missed", "not judged"}


class Reach(NamedTuple):
    """A test, with the seconds that it takes without a change, and the numbers of all functions that it reaches."""

    test: Test
    seconds: float
    functions: set[int]


def run(test: Test, mutant: str, usual: float) -> tuple[str, float]:
    """Runs a test that takes `usual` seconds without a change. Returns the verdict and the seconds."""
    began = time.monotonic()
    process = subprocess.Popen(
        test.command,
        cwd=test.folder,
        env=os.environ | test.environment | {"MUTANT": mutant, "TMPDIR": str(TARGET / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # An endless loop uses up the processor's time, whatever else runs. A wait without an end is noticed later.
    limit = round(SPARE_SECONDS + PATIENCE * usual)
    resource.prlimit(process.pid, resource.RLIMIT_CPU, (limit, limit + 1))
    try:
        code = process.wait(10 * limit)
        verdict = {0: "passed", -signal.SIGXCPU: "timeout", -signal.SIGKILL: "timeout"}.get(
            code, "caught"
        )
    except subprocess.TimeoutExpired:
        verdict = "timeout"
    # The servers that the test has started, too.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return verdict, time.monotonic() - began


class Judge:
    """Judges mutants, and writes the verdicts."""

    def __init__(self, is_thorough: bool, only: str) -> None:
        self.is_thorough = is_thorough
        self.only = only
        # Tests often wait for servers.
        self.pool = ThreadPoolExecutor(2 * (os.cpu_count() or 1))
        self.reaches: list[Reach] = []
        self.catches: Counter[tuple[str, str]] = Counter()
        self.missed: list[Mutant] = []

    def judge(self, mutants: list[Mutant]) -> None:
        """Builds and judges mutants."""
        is_alone = any(mutant.body is None for mutant in mutants)
        if is_alone and not self.reaches:
            self.judge([])
        build = Build(mutants, self.is_thorough)
        for mutant in build.unviable:
            record(mutant, "unviable")
        for mutant in build.constant:
            record(mutant, "not judged", "a constant calls the function")
        if not is_alone:
            tests = [test for test in build.tests if re.search(self.only, test.name)]
            reaches = self.pool.map(self.reach_of, tests)
            self.reaches = [reach for reach in reaches if reach]
            seconds = sum(reach.seconds for reach in self.reaches)
            print(
                f"{len(build.mutants)} mutants, {len(self.reaches)} tests of {seconds:.0f} s",
                flush=True,
            )
        list(self.pool.map(lambda mutant: self.try_tests(build, mutant), build.mutants))

    def try_tests(self, build: Build, mutant: Mutant) -> None:
        """Judges a mutant by the tests that reach it. Tests that have caught others of its function come earlier."""
        function = build.functions.get(mutant)
        reaches = [reach for reach in self.reaches if function in {None, *reach.functions}]
        reaches.sort(
            key=lambda reach: reach.seconds / (1 + self.catches[mutant.function, reach.test.name])
        )
        seconds = 0.0
        for reach in reaches:
            seconds += reach.seconds
            if seconds > ENOUGH_SECONDS and not self.is_thorough:
                break
            verdict, _ = run(reach.test, str(build.numbers[mutant]), reach.seconds)
            if verdict != "passed":
                self.catches[mutant.function, reach.test.name] += 1
                record(mutant, verdict, reach.test.name)
                return
        self.missed.append(mutant)
        reason = "" if reaches else "no test reaches it"
        print(f"missed: {mutant.name} {reason and f'({reason})'}", flush=True)
        # Other tests may notice it.
        if not self.only:
            record(mutant, "missed", reason)

    def reach_of(self, test: Test) -> Reach | None:
        """Runs a test without a change. Returns `None` if it fails, or takes too long to judge many mutants."""
        recorded = TARGET / "reached" / re.sub(r"\W+", "-", test.name)
        recorded.write_text("")
        verdict, seconds = run(test, str(recorded), 60 if self.is_thorough else 0)
        if verdict != "passed":
            print(f"left out: {test.name} ({verdict} without a change)", flush=True)
            return None
        return Reach(test, seconds, set(map(int, recorded.read_text().split())))


def record(mutant: Mutant, verdict: str, reason: str = "") -> None:
    with VERDICTS.open("a") as file:
        file.write(f"{mutant.key}\t{verdict}\t{mutant.name}\t{reason}\n")


def verdicts() -> dict[str, str]:
    """Returns the last verdict on each mutant, by its key."""
    lines = VERDICTS.read_text().splitlines() if VERDICTS.exists() else []
    return {key: verdict for key, verdict, *_ in (line.split("\t") for line in lines)}


def report(mutants: list[Mutant], explanations: list[str]) -> None:
    """Prints the explanations that no mutant needs, and the numbers of mutants by folder and verdict."""
    known = verdicts()
    unnoticed = [mutant for mutant in mutants if known.get(mutant.key, "not judged") in UNNOTICED]
    explained: set[Mutant] = set()
    for pattern in explanations:
        found = {mutant for mutant in unnoticed if re.search(pattern, mutant.name)}
        if not found:
            print(f"explains nothing: {pattern}")
        explained |= found
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for mutant in mutants:
        folder = "/".join(
            mutant.file.split("/")[:-1][: 3 if mutant.file.startswith("filter/") else 1]
        )
        verdict = "explained" if mutant in explained else known.get(mutant.key, "not judged")
        for row in (folder, "all"):
            table[row].update(["possible", verdict])
    columns = ["possible", "unviable", "caught", "timeout", "explained", "missed", "not judged"]
    print("| folder |", " | ".join(columns), "|")
    for row, counts in table.items():
        print(f"| `{row}` |", " | ".join(f"{counts[column]:,}" for column in columns), "|")


def prepare() -> None:
    """Copies all files except the sources, which a build writes."""
    for folder in ("tmp", "reached"):
        shutil.rmtree(TARGET / folder, ignore_errors=True)
        (TARGET / folder).mkdir(parents=True)
    files = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    for file in filter(os.path.exists, files.stdout.split()):
        if file not in sources():
            write(TREE / file, Path(file).read_bytes())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "pattern", nargs="?", default="", help="judge only mutants whose names match"
    )
    parser.add_argument(
        "--sample",
        type=int,
        help="judge only so many of them, chosen at random, but always the same",
    )
    parser.add_argument(
        "--alone", action="store_true", help="judge those that are built one at a time"
    )
    parser.add_argument("--thorough", action="store_true", help="use all tests, also slow ones")
    parser.add_argument("--only", default="", help="use only tests whose names match")
    parser.add_argument(
        "--resume", action="store_true", help="judge those that have no verdict yet"
    )
    parser.add_argument("--missed", action="store_true", help="judge those that were missed")
    options = parser.parse_args()
    # Tests of the memory limits of servers set others.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    os.environ["PATH"] = f"{TARGET.parent}/mutation-tools/bin:{os.environ['PATH']}"
    explanations = tomllib.loads(Path(".cargo/mutants.toml").read_text())["exclude_re"]
    explained = re.compile("|".join(explanations))
    sources()
    possible = listed()
    known = verdicts()
    judged_again = [None, "not judged"] * options.resume + ["missed"] * options.missed
    mutants = [
        mutant
        for mutant in possible
        if re.search(options.pattern, mutant.name)
        and not explained.search(mutant.name)
        and (not judged_again or known.get(mutant.key) in judged_again)
        and (mutant.body is None or known.get(mutant.key) == "not judged") == options.alone
    ]
    if options.sample is not None:
        chosen = set(random.Random(0).sample(mutants, min(options.sample, len(mutants))))
        mutants = [mutant for mutant in mutants if mutant in chosen]
    if options.alone:
        mutants = [mutant._replace(body=None) for mutant in mutants]
    if mutants:
        prepare()
    judge = Judge(options.thorough, options.only)
    for part in parts(mutants):
        judge.judge(part)
    report(possible, explanations)
    return int(bool(judge.missed))


if __name__ == "__main__":
    sys.exit(main())
