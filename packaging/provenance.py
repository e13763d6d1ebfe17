"""Prints where files of a release come from: python3 packaging/provenance.py ARCH FILE…

This is a statement of in-toto with the provenance of SLSA 1.0. A build service sets BUILDER_ID to its URI and
INVOCATION_ID to the name of its run, and signs the statement with its own key.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

# Stands for the machine of a developer, for which nobody vouches.
UNKNOWN_BUILDER = "urn:oxbloom:builder:unknown"


def printed(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def digest(file: Path) -> dict:
    return {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def sources() -> dict:
    """Returns the commit. Changes that are not committed are stated, since the commit does not give these files."""
    commit = {
        "uri": os.environ.get("REPOSITORY_URL", "urn:oxbloom:repository"),
        "digest": {"gitCommit": printed("git", "rev-parse", "HEAD")},
    }
    changed = printed("git", "diff", "--name-only", "HEAD").splitlines()
    return commit | ({"annotations": {"uncommitted": changed}} if changed else {})


def statement(arch: str, files: list[Path]) -> dict:
    invocation = os.environ.get("INVOCATION_ID")
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": digest(file)} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:oxbloom:make-dist:v1",
                "externalParameters": {
                    "ARCH": arch,
                    "REPOSITORY_URL": os.environ.get("REPOSITORY_URL", ""),
                },
                "internalParameters": {"rustc": printed("rustc", "--version")},
                "resolvedDependencies": [
                    sources(),
                    # These have the versions of the crates and of the tools.
                    {"name": "Cargo.lock", "digest": digest(Path("Cargo.lock"))},
                    {"name": "tools/setup.sh", "digest": digest(Path("tools/setup.sh"))},
                ],
            },
            "runDetails": {
                "builder": {"id": os.environ.get("BUILDER_ID", UNKNOWN_BUILDER)},
                "metadata": {"invocationId": invocation} if invocation else {},
            },
        },
    }


if __name__ == "__main__":
    arch, *files = sys.argv[1:]
    print(json.dumps(statement(arch, [Path(file) for file in files]), indent=2))
