"""Checks docs/command-line.md: its commands print what it shows, and it has all commands and options."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pages
from servers import WITHIN, Server

PAGE = pages.page("command-line.md")
STEP = re.compile(r"^\$ (?P<command>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_what_is_typed_prints_what_is_shown(server: Server, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    steps = [step for block in pages.blocks(PAGE, "console") for step in STEP.finditer(block)]
    assert len(steps) == PAGE.count("\n$ ")
    for step in steps:
        command = step["command"].replace("redis://localhost:6379", server.url)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        if step["shown"]:
            assert done.stdout == step["shown"], command
        else:
            assert done.returncode == 0, done.stdout


def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "oxbloom", *command, "--help"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=WITHIN,
        check=True,
    )
    return done.stdout


def test_the_page_names_all_commands_and_options() -> None:
    listed = re.findall(r"^    ([a-z-]+)", help_of(), re.MULTILINE)
    assert re.findall(r"^\| \[`oxbloom ([a-z-]+)`\]", PAGE, re.MULTILINE) == listed
    for command in listed:
        heading = command.replace("-", " ").capitalize()
        section = pages.section(PAGE, heading) + pages.section(PAGE, "Files and keys")
        options = set(re.findall(r"--[a-z][a-z-]*", help_of(command))) - {"--help"}
        if command != "size":  # its options are those of `build`
            missing = {option for option in options if option not in section}
            assert not missing, command
        named = set(re.findall(r"--[a-z][a-z-]*", pages.section(PAGE, heading)))
        assert named <= options | {"--help", "--server", "--loadmodule"}
