"""Reads 2.76 million real URLs, 1.69 million of them distinct: the addresses of the repositories of npm packages.

They are in the npm package all-the-package-repos. As a program, prints all of them: `urls.py FOLDER`.
"""

import json
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAME = "all-the-package-repos"
VERSION = "2.0.3148"


def load(folder: Path) -> list[str]:
    """Returns distinct URLs, in a random order that is the same every time."""
    urls = sorted(set(_all(folder)))
    random.Random(1).shuffle(urls)
    return urls


def _all(folder: Path) -> list[str]:
    """Returns the URLs in the order of the packages' names. They have duplicates."""
    with tarfile.open(_fetched(folder)) as archive:
        member = archive.extractfile("package/data/packages.json")
        assert member is not None
        packages: dict[str, str | None] = json.load(member)
    return [url for _, url in sorted(packages.items()) if url]


def _fetched(folder: Path) -> Path:
    tarball = folder / f"{NAME}-{VERSION}.tgz"
    if tarball.exists():
        return tarball
    folder.mkdir(parents=True, exist_ok=True)
    # Downloads into a temporary folder first, so that an incomplete file is never taken for a complete one.
    with tempfile.TemporaryDirectory(dir=folder) as partial:
        command = ["npm", "pack", "--loglevel=error", "--pack-destination", partial]
        npm = subprocess.run(
            [*command, f"{NAME}@{VERSION}"], check=False, stdout=subprocess.DEVNULL
        )
        if npm.returncode:
            sys.exit(f"cannot download {NAME}@{VERSION}; put its tarball at {tarball}")
        shutil.move(Path(partial, tarball.name), tarball)
    return tarball


if __name__ == "__main__":
    sys.stdout.writelines(f"{url}\n" for url in _all(Path(sys.argv[1])))
