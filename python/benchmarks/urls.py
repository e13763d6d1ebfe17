"""Returns 1.69 million real URLs: the addresses of the repositories of npm packages.

They are in the npm package all-the-package-repos. `examples/demo.rs` uses the same package, and the same copy of it.
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
    with tarfile.open(_fetched(folder)) as archive:
        member = archive.extractfile("package/data/packages.json")
        assert member is not None
        packages: dict[str, str | None] = json.load(member)
    urls = sorted({url for url in packages.values() if url})
    random.Random(1).shuffle(urls)
    return urls


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
