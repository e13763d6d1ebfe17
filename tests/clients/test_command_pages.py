"""Compares docs/commands/ with a server.

Each command has a page with the facts that the server reports: summary, syntax, complexity, arity, flags, categories
and keys. Its tables show the replies in RESP2 and RESP3 as they are on the wire. The command next to an error causes it.
"""

import itertools
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, BinaryIO

import pages
import pytest
import redis
from pasting import Shell
from reader import redis_cli
from servers import BESIDE, HOST, OXBLOOM, PATIENCE, ROOT, Server, running, server_version

FOLDER = ROOT / "docs/commands"
INDEX = pages.page("commands/README.md")
PAGES = {file.stem: file.read_text() for file in sorted(FOLDER.glob("*f.*.md"))}
# The pages of commands that only exist beside another module.
IMPORTS = {name for name in PAGES if name.startswith("ox")}
ALL_PAGES = {"README": INDEX, **PAGES}

# The prefixes of commands, with their ACL categories.
CATEGORIES = {"bf.": "@bloom", "cf.": "@cuckoo"}
CATEGORIES_BESIDE = {"oxbf.": "@oxbloom", "oxcf.": "@oxcuckoo"}

pytestmark = pytest.mark.skipif(
    server_version() < (7, 0),
    reason="this server neither describes the commands of modules nor supports RESP3 for them",
)


@pytest.fixture(scope="module")
def running_beside() -> Iterator[Server]:
    """Runs a server with RedisBloom, and with our module beside it."""
    with running(*BESIDE) as server:
        yield server


@pytest.fixture
def server(request: pytest.FixtureRequest, running_server: Server) -> Server:
    """Returns the server on which the commands of the test's page exist."""
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    is_beside = parameters.get("name") in IMPORTS
    server = request.getfixturevalue("running_beside") if is_beside else running_server
    server.client.flushall()
    return server


def raw_reply(server: Server, *command: str) -> Any:
    """Returns the reply to a command in RESP3, without the conversions of redis-py."""
    with redis.Redis(HOST, server.port, protocol=3, decode_responses=True) as client:
        client.response_callbacks.clear()
        return client.execute_command(*command)


def commands(server: Server, prefixes: Iterable[str] = CATEGORIES) -> dict[str, list]:
    """Returns what COMMAND reports about each of the module's commands."""
    return {
        command[0]: command
        for command in raw_reply(server, "COMMAND")
        if command[0].startswith(tuple(prefixes))
    }


def test_each_command_has_a_page(server, running_beside):
    assert PAGES.keys() - IMPORTS == commands(server).keys()
    beside = commands(running_beside, CATEGORIES_BESIDE).keys()
    assert beside - IMPORTS == {f"ox{name}" for name in PAGES.keys() - IMPORTS}
    assert beside > IMPORTS
    assert len(PAGES) >= 33
    assert [name for name in PAGES if not pages.blocks(PAGES[name], "python")] == []


def test_the_index_lists_each_command(server, running_beside):
    docs = raw_reply(server, "COMMAND", "DOCS", *PAGES)
    docs |= raw_reply(running_beside, "COMMAND", "DOCS", *IMPORTS)
    rows = re.findall(
        r"^\| \[(\w+\.\w+)\]\((\w+\.\w+)\.md\) \| (.*) \| (.*) \|$", INDEX, re.MULTILINE
    )
    assert sorted(rows) == sorted(
        (name.upper(), name, facts["summary"], facts["complexity"]) for name, facts in docs.items()
    )


# --- The facts


def syntax(argument: dict) -> str:
    """Returns the syntax of an argument, as redis.io writes it."""
    parts = [syntax(part) for part in argument.get("arguments", ())]
    kind, token, flags = argument["type"], argument.get("token"), argument.get("flags", ())
    text = {
        "oneof": " | ".join(parts),
        "block": " ".join(parts),
        "pure-token": token,
    }.get(kind, argument["name"])
    if kind == "oneof" and (token or "optional" not in flags):
        text = f"<{text}>"
    if "multiple" in flags:
        text = f"{text} [{text} ...]"
    if token and kind != "pure-token":
        text = f"{token} {text}"
    return f"[{text}]" if "optional" in flags else text


def forms(name: str, arguments: list[dict]) -> list[str]:
    """Returns the syntax of a command, one line for each of its forms."""
    choices = [
        argument["arguments"] if syntax(argument).startswith("<") else [argument]
        for argument in arguments
    ]
    return [
        " ".join([name.upper(), *map(syntax, chosen)]) for chosen in itertools.product(*choices)
    ]


def explained(argument: dict) -> list[str]:
    """Returns the names that a page must explain for an argument: its own, or those of its parts."""
    if argument["type"] in ("oneof", "block") and not argument.get("token"):
        return [text for part in argument["arguments"] for text in explained(part)]
    flags = [flag for flag in argument.get("flags", ()) if flag != "optional"]
    return [syntax({**argument, "flags": flags})]


def keys(arguments: list[dict]) -> Iterator[tuple[str, int]]:
    """Yields the arguments that are keys, with the numbers of their key specifications."""
    for argument in arguments:
        if argument["type"] == "key":
            yield argument["name"], argument["key_spec_index"]
        yield from keys(argument.get("arguments", []))


def code(words: Iterator[str] | list[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def facts(info: list, docs: dict) -> dict[str, str]:
    """Returns the table that the page of a command must have at its top."""
    name, arity, flags, *_, categories, _, specifications, _ = info
    # Before Redis 7.4, commands of modules are in no ACL category.
    categories = categories or [
        (CATEGORIES | CATEGORIES_BESIDE)[f"{name.partition('.')[0]}."],
        "@fast" if "fast" in flags else "@slow",
        "@read" if "readonly" in flags else "@write",
    ]
    return {
        "Available since": f"oxbloom {docs['since']}",
        "Time complexity": docs["complexity"],
        "Arity": str(arity),
        "Flags": code(sorted(set(flags) - {"module"})),
        "ACL categories": code(sorted(categories)),
        "Keys": "; ".join(
            f"`{key}`: {code(sorted(specifications[number]['flags']))}"
            for key, number in keys(docs["arguments"])
        ),
    }


@pytest.mark.parametrize("name", PAGES)
def test_the_facts_are_those_of_the_server(server, name):
    info = commands(server, CATEGORIES | CATEGORIES_BESIDE)[name]
    docs = raw_reply(server, "COMMAND", "DOCS", name)[name]
    head = PAGES[name].split("\nCATEGORIES_BESIDE ")[0]
    title, summary, block, *_ = head.split("\n\n")
    assert title == f"# {name.upper()}"
    assert " ".join(summary.split()) == docs["summary"]
    (shown,) = pages.blocks(f"{block}\n", "text")
    # An indented line continues the one above.
    assert re.sub(r"\n +", " ", shown).splitlines() == forms(name, docs["arguments"])
    stated = dict(re.findall(r"^\| ([A-Z][\w ]+) \| (.*) \|$", head, re.MULTILINE))
    assert stated == facts(info, docs)


@pytest.mark.parametrize("name", PAGES)
def test_each_argument_is_explained(server, name):
    docs = raw_reply(server, "COMMAND", "DOCS", name)[name]
    named = re.findall(r"\*\*`([^`]+)`\*\*", pages.section(PAGES[name], "Arguments"))
    assert named == [text for argument in docs["arguments"] for text in explained(argument)]


# The options that create a filter, each with a value.
OPTIONS = {
    name: f"{name} {value}".split()
    for name, value in {
        "EXPANSION": "2",
        "NONSCALING": "",
        "COUNTING": "",
        "WINDOW": "60",
        "SLICES": "4",
        "REFRESH": "",
        "ROLLING": "",
        "SEED": "7",
        "LAYOUT": "classic",
        "EX": "60",
    }.items()
}


def accepts(server: Server, *command: str) -> bool:
    try:
        server.client.execute_command(*command)
    except redis.ResponseError:
        return False
    return True


def restrictions(name: str) -> tuple[set[frozenset[str]], dict[str, set[str]]]:
    """Returns the pairs of options that cannot be combined, and the options that each option requires."""
    conflicts, required = set(), {}
    for item in pages.section(PAGES[name], "Arguments").split("\n- **`")[1:]:
        option, text = item.split()[0].strip("`*:"), " ".join(item.split())
        for others in re.findall(r"[Cc]annot be combined with ([^.]*)", text):
            conflicts |= {frozenset((option, other)) for other in re.findall("[A-Z]{2,}", others)}
        for others in re.findall(r"Requires ([^.]*)", text):
            required[option] = set(re.findall("[A-Z]{2,}", others))
    return conflicts, required


# The same for cuckoo filters. CF.INSERT has some of them.
CUCKOO_OPTIONS = {
    "ERROR": ["ERROR", "0.1"],
    "SEED": OPTIONS["SEED"],
    "LAYOUT": OPTIONS["LAYOUT"],
    "EX": OPTIONS["EX"],
}
CUCKOO_NUMBERS = {
    name: [name, "2"] for name in ("MAXITERATIONS", "BUCKETSIZE", "EXPANSION")
} | CUCKOO_OPTIONS


@pytest.mark.parametrize(
    ("name", "before", "after", "given"),
    [
        ("bf.reserve", ["0.01", "100"], [], OPTIONS),
        ("bf.insert", [], ["ITEMS", "item"], OPTIONS),
        ("cf.reserve", ["100"], [], CUCKOO_NUMBERS),
        ("cf.insert", [], ["ITEMS", "item"], CUCKOO_OPTIONS),
        ("cf.insertnx", [], ["ITEMS", "item"], CUCKOO_OPTIONS),
    ],
)
def test_the_options_that_cannot_be_combined_are_those_that_are_rejected(
    server, name, before, after, given
):
    conflicts, required = restrictions(name)
    assert len(conflicts) >= (8 if given is OPTIONS else 2)
    assert required.keys() == ({"SLICES", "REFRESH"} if given is OPTIONS else set())
    for count in (1, 2, 3):
        for options in itertools.combinations(given, count):
            allowed = not any(pair <= set(options) for pair in conflicts) and all(
                option not in options or others & set(options)
                for option, others in required.items()
            )
            words = [word for option in options for word in given[option]]
            server.client.delete("key")
            accepted = accepts(server, name, "key", *before, *words, *after)
            assert accepted == allowed, words


# --- Replies


def unquoted(word: str) -> bytes:
    """Returns the bytes that redis-cli sends for a word, which may be in quotes."""
    return word.strip('"').encode().decode("unicode_escape").encode("latin-1")


class Wire:
    """A client that keeps replies as they were sent."""

    def __init__(self, server: Server, protocol: int) -> None:
        self.socket = socket.create_connection((HOST, server.port), PATIENCE)
        self.file: BinaryIO = self.socket.makefile("rwb")
        self.run(f"HELLO {protocol}")

    def run(self, command: str) -> str:
        """Returns the reply to a command, with a space for each CRLF."""
        words = [unquoted(word) for word in re.findall(r'"[^"]*"|\S+', command)]
        self.file.write(b"*%d\r\n" % len(words))
        self.file.writelines(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        self.file.flush()
        return " ".join(self.read())

    def read(self) -> list[str]:
        """Returns the parts of the next reply."""
        line = self.file.readline().decode().removesuffix("\r\n")
        kind, length = line[0], line[1:]
        if kind in "*%~":
            count = int(length) * (2 if kind == "%" else 1)
            return [line, *(part for _ in range(count) for part in self.read())]
        if kind == "$" and length != "-1":
            data = self.file.read(int(length) + 2)[:-2]
            return [line, data.decode(errors="backslashreplace")] if data else [line]
        return [line]

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def matches(shown: str, reply: str) -> bool:
    """Returns true if a reply is as shown, where an … stands for any text."""
    return re.fullmatch(re.escape(shown).replace("…", ".*"), reply, re.DOTALL) is not None


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("name", PAGES)
def test_the_replies_are_those_on_the_wire(server, name, protocol):
    section = pages.section(PAGES[name], "Replies")
    rows = re.findall(r"^\| `([^|]*)` \| `([^|]*)` \| `([^|]*)` \| .* \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| `") > 0
    for command, _ in pages.typed(section):
        redis_cli(server, command)
    with closing(Wire(server, protocol)) as wire:
        for command, *shown in rows:
            reply = wire.run(command)
            assert matches(shown[protocol - 2], reply), (command, reply)


# A command that is typed, or a row of a table of errors.
STEP = re.compile(
    pages.TYPED + r"|^\| (?:`(?P<rejected>[^|]*)`|—) \| `(?P<error>[^`]*)` \| .* \|$", re.MULTILINE
)


def explained_errors() -> list[str]:
    """Returns the errors that docs/operating.md explains: those of the sources."""
    operating = pages.section(pages.page("operating.md"), "Errors")
    rows = re.findall(r"^\| (`.*?) \|", operating, re.MULTILINE)
    return [text for row in rows for text in re.findall("`([^`]*)`", row)]


@pytest.mark.parametrize("name", ALL_PAGES)
def test_each_error_is_provoked_as_shown(name):
    """Errors without a command are about a lack of memory, data of other programs, very many items, or bugs."""
    section = pages.section(ALL_PAGES[name], "Errors")
    steps = list(STEP.finditer(section))
    rows = re.findall(r"^\| [`—]", section, re.MULTILINE)
    assert sum(step["error"] is not None for step in steps) == len(rows) > 0
    with running(*(BESIDE if name in IMPORTS else [OXBLOOM])) as server:
        for step in steps:
            if step["command"]:
                assert redis_cli(server, step["command"]) == step["reply"], step["command"]
            elif step["rejected"]:
                reply = redis_cli(server, step["rejected"])
                assert re.findall(r"\(error\) (.*)\n", reply) == [step["error"]], step["rejected"]
            else:
                assert step["error"].startswith(tuple(explained_errors())), step["error"]


def test_the_pages_have_all_errors():
    shown = [
        str(step["error"])
        for page in ALL_PAGES.values()
        for step in STEP.finditer(pages.section(page, "Errors"))
    ]
    assert {
        text for text in explained_errors() if not any(error.startswith(text) for error in shown)
    } == set()


# One and a half times the error rate, which is never exceeded by chance.
MOST_FALSE_POSITIVES = 15_000


def test_a_file_can_be_sent_in_one_command(server, tmp_path):
    whole, pieces = pages.blocks(pages.section(INDEX, "A file in one command"))
    with Shell(tmp_path, INDEX, directory=tmp_path, port=server.port) as shell:
        reserved, new, found = shell.paste(whole)
        added_again = [int(line) for line in shell.paste(pieces)]
    assert (reserved, found) == ("OK", "1000000")
    assert 1_000_000 - MOST_FALSE_POSITIVES < int(new) <= 1_000_000
    assert added_again == [0] * 100
