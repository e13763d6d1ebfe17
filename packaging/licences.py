"""Prints the licences of the crates that our packages link: python3 packaging/licences.py TRIPLE PACKAGE…

Fails if a crate has no licence that is accepted here, or comes without its text.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

# The licences that dependencies may have, because they only require their text in the release. If a
# crate offers several, the first one here is used. The words are those by which a text is recognized.
ACCEPTED = {
    "MIT": "Permission is hereby granted, free of charge, to any person",
    "Apache-2.0": "Apache License Version 2.0",
    "BSD-2-Clause": "Redistribution and use in source and binary forms",
    "BSD-3-Clause": "used to endorse or promote products derived from this software",
    "BSL-1.0": "Boost Software License - Version 1.0",
    "ISC": "Permission to use, copy, modify, and/or distribute this software",
    "Unicode-3.0": "UNICODE LICENSE V3",
    "Zlib": "This software is provided 'as-is', without any express or implied warranty",
}
INTRODUCTION = """\
oxbloom contains the Rust standard library (MIT OR Apache-2.0, copyright the Rust project
contributors) and the packages below, each under the licence that follows its name."""


def linked(triple: str, names: list[str]) -> list[dict]:
    """Returns the crates of others that packages depend on, except for builds and tests."""
    command = ["cargo", "metadata", "--locked", "--format-version=1", f"--filter-platform={triple}"]
    metadata = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    ids = [crate["id"] for crate in metadata["packages"] if crate["name"] in names]
    for crate in ids:
        for dependency in nodes[crate]["deps"]:
            kinds = [kind["kind"] for kind in dependency["dep_kinds"]]
            if None in kinds and dependency["pkg"] not in ids:
                ids.append(dependency["pkg"])
    return [crate for crate in metadata["packages"] if crate["id"] in ids and crate["source"]]


def chosen(crate: dict) -> list[str]:
    """Returns accepted licences that satisfy the SPDX expression of a crate.

    Ignores parentheses: without them, an expression can only ask for more.
    """
    licences = []
    for choice in re.sub("[()]", "", crate["license"] or "").split(" AND "):
        accepted = [licence for licence in ACCEPTED if licence in re.split(" OR |/", choice)]
        if not accepted:
            raise ValueError(f"no licence of {crate['name']} is accepted: {crate['license']}")
        licences.append(accepted[0])
    return licences


def text(licence: str, crate: dict, crates: list[dict]) -> str:
    """Returns the text of a licence from the crate, or from another one of the same repository."""
    repository = crate["repository"]
    siblings = [other for other in crates if repository and other["repository"] == repository]
    for source in [crate, *siblings]:
        folder = Path(source["manifest_path"]).parent
        for file in sorted([*folder.iterdir(), *folder.glob("LICENSES/*")]):
            name = str(file.relative_to(folder))
            if file.is_file() and re.match("licen[cs]e|copying", name, re.IGNORECASE):
                found = file.read_text()
                if ACCEPTED[licence] in " ".join(found.split()):
                    return found.strip()
    raise ValueError(f"{crate['name']} comes without the text of its licence, {licence}")


def main() -> None:
    triple, *names = sys.argv[1:]
    crates = linked(triple, names)
    users: dict[str, list[str]] = {}
    for crate in sorted(crates, key=lambda crate: (crate["name"], crate["version"])):
        for licence in chosen(crate):
            shared = users.setdefault(text(licence, crate, crates), [])
            shared.append(f"{crate['name']} {crate['version']}")
    print(INTRODUCTION)
    for licence, names in users.items():
        print("", *names, "", licence, sep="\n")


if __name__ == "__main__":
    main()
