"""Checks that docs/command-line.md has all commands and options. `../test_following_pages.py` runs its commands."""

import re

import pages
from command_line import run

PAGE = pages.page("command-line.md")


def help_of(*command: str) -> str:
    return run(*command, "--help").output.decode()


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
