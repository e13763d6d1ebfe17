"""Prints 2.76 million real URLs, 1.69 million of them distinct: the addresses of the repositories of npm packages.

They are in the npm package all-the-package-repos, which FOLDER keeps: python3 examples/urls.py FOLDER
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

NAME = "all-the-package-repos"
VERSION = "2.0.3148"


def main() -> None:
    folder = Path(sys.argv[1])
    tarball = folder / f"{NAME}-{VERSION}.tgz"
    if not tarball.exists():
        # Downloads into a temporary folder first, so that an incomplete file is never taken for a complete one.
        with tempfile.TemporaryDirectory(dir=folder) as partial:
            npm = ["npm", "pack", "--loglevel=error", "--pack-destination", partial]
            npm.append(f"{NAME}@{VERSION}")
            if subprocess.run(npm, check=False, stdout=subprocess.DEVNULL).returncode:
                sys.exit(f"cannot download {NAME}@{VERSION}; put its tarball at {tarball}")
            Path(partial, tarball.name).rename(tarball)
    with tarfile.open(tarball) as archive:
        member = archive.extractfile("package/data/packages.json")
        assert member is not None
        packages: dict[str, str | None] = json.load(member)
    sys.stdout.writelines(f"{url}\n" for _, url in sorted(packages.items()) if url)


if __name__ == "__main__":
    main()
