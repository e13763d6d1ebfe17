"""Lists mutants, and builds many of them at once. See mutants.py."""

import json
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from functools import cache
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, NamedTuple

TARGET = Path(os.environ["TARGET"], "mutants")
TREE = TARGET / "tree"
# Lints do not reject mutants, except those of constants that are never computed.
ALLOWED = "-Awarnings -Aarithmetic_overflow -Aunconditional_panic -Aoverflowing_literals"
# The number of lines in the arms of a build, which takes a minute or two.
LINES_OF_A_BUILD = 20_000
# All mutants are judged by the same random cases. After a failure, no smaller one is searched.
CASES = {
    "PROPTEST_CASES": "32",
    "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
    "PROPTEST_MAX_SHRINK_ITERS": "0",
    "PROPTEST_RNG_SEED": "1",
    "LOOKUPS": "300000",
    "PAYLOADS": "30",
    # Functions with many arms need a large stack.
    "RUST_MIN_STACK": str(1 << 26),
}

# The packages whose sources are changed.
CRATES = ("filter/src", "src")
# The tests of the library and of the module, in the mock server and in real ones.
TESTS = (
    "-p oxbloom-filter -p oxbloom -p oxbloom-fuzz --features fault-injection,oxbloom-filter/serde"
    " --lib --test promises --test server --test oracle --test corpus --test simulation"
)
# Judge only if all tests are asked for.
SLOW_TESTS = " --test faults"
# Statistical tests take minutes.
SKIPPED = "^(forgetting_)?rates::|^adversary::|measured::"
# Tests without a harness: their name, an argument, and the value of SEEDS.
SCRIPTS = (
    *(("corpus", target, "") for target in ("commands", "header", "file", "chunks", "forgetting")),
    *(("simulation", "", seeds) for seeds in ("0..1", "1..3", "3..8", "8..16")),
)


class Body(NamedTuple):
    """The body of an outermost function."""

    start: int
    end: int
    # The place of `const`, which is left out: a constant cannot choose.
    const: int | None
    # The type of its value, which is in a box since mutants have other types, or "".
    boxed: str


class Mutant(NamedTuple):
    """A change: the text between two places of a file is replaced."""

    name: str
    # Identifies the mutant as long as its function stays the same.
    key: str
    file: str
    start: int
    end: int
    replacement: str
    function: str
    # `None` if it cannot have a `match`.
    body: Body | None


class Test(NamedTuple):
    """A test that runs alone in a process."""

    name: str
    command: list[str]
    folder: str
    environment: dict[str, str]


@cache
def sources() -> dict[str, str]:
    """Returns the text of all source files. These may be edited while mutants are judged."""
    paths = [path for crate in CRATES for path in Path(crate).rglob("*.rs")]
    return {str(path): path.read_text() for path in paths}


def listed() -> list[Mutant]:
    """Returns all mutants."""
    command = "cargo mutants --no-config --list --json -p oxbloom-filter -p oxbloom"
    output = subprocess.run(command.split(), stdout=subprocess.PIPE, check=True).stdout
    files = groupby(json.loads(output), lambda item: item["file"])
    return [mutant for file, items in files for mutant in mutants_of(file, list(items))]


def mutants_of(file: str, items: list[dict[str, Any]]) -> Iterator[Mutant]:
    """Returns the mutants of a file, which cargo-mutants has listed."""
    text = sources()[file]
    lines = list(accumulate((len(line) + 1 for line in text.split("\n")), initial=0))

    def places(item: dict[str, Any]) -> tuple[int, int]:
        ends = item["span"]["start"], item["span"]["end"]
        start, end = (lines[place["line"] - 1] + place["column"] - 1 for place in ends)
        return start, end

    functions = {places(item["function"]): item["function"] for item in items if item["function"]}
    outermost = [one for one in functions if not any(is_inside(one, two) for two in functions)]
    for item in items:
        place = start, _ = places(item)
        function = next((function for function in outermost if is_inside(place, function)), None)
        name, switch = file, None
        around = max(line for line in lines if line <= start), text.index("\n", start)
        if function:
            name, around = functions[function]["function_name"], function
            switch = body(text, *function, name, functions[function]["return_type"])
        digest = zlib.crc32(f"{file} {name} {text[slice(*around)]}".encode())
        key = f"{digest:08x} {start - around[0]} {item['replacement']}"
        yield Mutant(item["name"], key, file, *place, item["replacement"], name, switch)


def is_inside(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one != other and other[0] <= one[0] and one[1] <= other[1]


def body(text: str, start: int, end: int, name: str, returned: str) -> Body | None:
    """Returns the body of a function, or `None` if it cannot have a `match`."""
    name = name.rsplit("::", 1)[-1]
    head = re.compile(rf"(\bconst )?\bfn {name}\b").search(text, start, end)
    some = re.fullmatch(r"-> impl (Iterator<.*>|DoubleEndedIterator<.*>)", returned)
    if not head or ("impl " in returned and not some):
        return None
    depth = 0
    for place in range(head.end(), end):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(text[place], 0)
        if depth == 0 and text[place] == "{":
            const = head.start(1) if head[1] else None
            return Body(place, end, const, f"Box<dyn {some[1]} + '_>" if some else "")
    return None


def write(path: Path, content: bytes) -> None:
    """Writes a file, unless it has this content. Otherwise, cargo would build it again."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


class Build:
    """A build of some mutants, and its tests."""

    def __init__(self, mutants: list[Mutant], is_thorough: bool) -> None:
        self.mutants = sorted(
            mutants, key=lambda mutant: (mutant.file, mutant.body or (0, 0), mutant.start)
        )
        self.unviable: list[Mutant] = []
        # Those of functions that constants call.
        self.constant: list[Mutant] = []
        self.tests: list[Test] = []
        tests = TESTS + SLOW_TESTS * is_thorough
        self.write_sources()
        while not (
            messages := self.cargo("check --lib -p oxbloom")
            and self.cargo(f"test --no-run {tests}")
        ):
            if not self.mutants:
                return
            self.write_sources()
        self.tests = list(self.found_tests(messages))

    def write_sources(self) -> None:
        self.numbers = {mutant: number for number, mutant in enumerate(self.mutants, 1)}
        self.functions: dict[Mutant, int] = {}
        self.arms: list[tuple[str, range, Mutant]] = []
        files = sources().copy()
        for file, mutants in groupby(self.mutants, lambda mutant: mutant.file):
            files[file] = self.mutated(file, files[file], list(mutants))
        switch = Path("tools/mutants.rs").read_text()
        for crate in CRATES:
            files[f"{crate}/lib.rs"] += switch.replace(
                "usize = 0", f"usize = {len(self.mutants) + 1}"
            )
        for file, text in files.items():
            write(TREE / file, text.encode())

    def mutated(self, file: str, text: str, mutants: list[Mutant]) -> str:
        """Returns the text of a file with its mutants."""
        if mutants[0].body is None:
            (mutant,) = mutants
            self.arms.append((file, range(1, text.count("\n") + 2), mutant))
            return text[: mutant.start] + mutant.replacement + text[mutant.end :]
        pieces, at, line = [], 0, 1
        for place, of_function in groupby(mutants, lambda mutant: mutant.body):
            assert place
            start, end, const, boxed = place
            arms = list(of_function)
            first = self.numbers[arms[0]]
            head = text[at:start]
            if const is not None:
                head = text[at:const] + text[const + len("const ") : start]
            opened, closed, returned = (
                ("Box::new(", ")", f"let boxed: {boxed} = ") if boxed else ("", "", "")
            )
            head += f"{{ {returned}match crate::mutants::chosen({first}, {len(arms)}) {{\n"
            pieces.append(f"{head}0 => {opened}{text[start:end]}{closed},\n")
            line += pieces[-1].count("\n")
            for number, mutant in enumerate(arms, 1):
                arm = text[start : mutant.start] + mutant.replacement + text[mutant.end : end]
                pieces.append(f"{number} => {opened}{arm}{closed},\n")
                self.functions[mutant] = first
                self.arms.append((file, range(line, line := line + pieces[-1].count("\n")), mutant))
            pieces.append(f"_ => unreachable!() }}{boxed and '; boxed'} }}")
            at = end
        # All arms would be compiled wherever they are inlined.
        return re.sub(r"#\[inline(\(\w+\))?\]", "", "".join(pieces) + text[at:])

    def cargo(self, command: str) -> list[dict[str, Any]] | None:
        """Runs cargo, and returns its messages. If mutants do not compile, takes them out, and returns `None`."""
        command = f"cargo {command} --message-format=json --profile=mutants"
        variables = os.environ | {"CARGO_TARGET_DIR": str(TARGET), "RUSTFLAGS": ALLOWED}
        done = subprocess.run(
            command.split(), cwd=TREE, env=variables, capture_output=True, check=False
        )
        messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        if done.returncode == 0:
            return messages
        errors = [
            message["message"] for message in messages if message["reason"] == "compiler-message"
        ]
        called = set(re.findall(r"cannot call non-const .*?(\w+)`", done.stdout.decode()))
        constant = {
            mutant
            for mutant in self.mutants
            if mutant.body and mutant.body.const and mutant.function.split("::")[-1] in called
        }
        culprits = {mutant for error in errors for mutant in self.culprits(error)} - constant
        if len(self.mutants) == 1:
            # Its error may be elsewhere, such as a computation of a constant that does not end.
            culprits = set(self.mutants)
        if not culprits | constant:
            sys.exit(done.stderr.decode() + "".join(error["rendered"] for error in errors))
        self.unviable += culprits
        self.constant += constant
        self.mutants = [mutant for mutant in self.mutants if mutant not in culprits | constant]
        return None

    def culprits(self, error: dict[str, Any]) -> set[Mutant]:
        """Returns the mutants that an error is about."""
        for is_primary in (True, False):
            places = [
                (span["file_name"], span["line_start"])
                for span in error["spans"]
                if span["is_primary"] == is_primary
            ]
            found = {
                arm
                for file, lines, arm in self.arms
                for name, line in places
                if file == name and line in lines
            }
            if found:
                return found
        return set()

    def found_tests(self, messages: list[dict[str, Any]]) -> Iterator[Test]:
        """Lists the tests of a build."""
        variables = dict(CASES)
        programs = {}
        for message in messages:
            if message["reason"] != "compiler-artifact":
                continue
            modules = [file for file in message["filenames"] if file.endswith("/liboxbloom.so")]
            variables |= {
                name: modules[0] for name in ("OXBLOOM_MODULE", "OXBLOOM_FAULTY_MODULE") if modules
            }
            if message["executable"] and message["profile"]["test"]:
                programs[message["target"]["name"]] = (
                    message["executable"],
                    str(Path(message["manifest_path"]).parent),
                )
        for name, argument, seeds in SCRIPTS:
            program, folder = programs[name]
            with_seeds = variables | ({"SEEDS": seeds} if seeds else {})
            yield Test(
                f"{name} {argument}{seeds}", [program, *argument.split()], folder, with_seeds
            )
        for name in programs.keys() - {name for name, _, _ in SCRIPTS}:
            program, folder = programs[name]
            command = [program, "--list", "--format=terse"]
            names = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            for test in re.findall(r"^(.*): test$", names, re.MULTILINE):
                if not re.search(SKIPPED, test):
                    yield Test(f"{name} {test}", [program, "--exact", test], folder, variables)


def parts(mutants: list[Mutant]) -> Iterator[list[Mutant]]:
    """Divides mutants into those of a build."""
    part: list[Mutant] = []
    lines = 0
    for (file, place), of_function in groupby(mutants, lambda mutant: (mutant.file, mutant.body)):
        arms = list(of_function)
        if place is None:
            yield from ([mutant] for mutant in arms)
            continue
        added = len(arms) * sources()[file].count("\n", place.start, place.end)
        if part and lines + added > LINES_OF_A_BUILD:
            yield part
            part, lines = [], 0
        part += arms
        lines += added
    if part:
        yield part
