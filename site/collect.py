"""Collects the pages of the repository in a folder, from which the site generator builds the site.

    python3 site/collect.py FOLDER CALCULATOR

CALCULATOR is the library for the calculator, compiled for browsers. The pages are written for code hosts. On the site,
links among them stay as they are. A link to a source file leads to the repository if its address is known (the
environment variable REPOSITORY_URL, such as the address of a branch's files). Otherwise it becomes plain text.
"""

import os
import posixpath
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "python/README.md",
    "filter/README.md",
    "docs/**/*.md",
    "docs/**/*.svg",
    "docs/**/*.json",
    "examples/keys_of_type.sh",
    "examples/wait_until.sh",
]

# A block or a span of code, which stays as it is, or a link.
CODE_OR_LINK = re.compile(
    r"^```.*?^```|(`+)(?!`).*?(?<!`)\1(?!`)|(?<!!)\[(?P<text>(?:[^\[\]]|`[^`]*`)*)\]\((?P<target>[^()\s]+)\)",
    re.MULTILINE | re.DOTALL,
)


def main(folder: Path, calculator: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    shutil.copytree(ROOT / "site/assets", pages)
    shutil.copy(calculator, pages / "calculator")
    shutil.copy(ROOT / "site/mkdocs.yml", folder)
    files = {path.relative_to(ROOT).as_posix() for page in PAGES for path in ROOT.glob(page)}
    for file in sorted(files):
        target = pages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".md"):
            target.write_text(with_site_links(file, (ROOT / file).read_text(), files))
        else:
            shutil.copy(ROOT / file, target)


def with_site_links(page: str, text: str, files: set[str]) -> str:
    """Returns the text of a page with adapted links to files that are not on the site."""
    repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")

    def adapted(match: re.Match) -> str:
        target = match["target"]
        if target is None or "://" in target or target.startswith("#"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
        if path in files or path.startswith("..") or not (ROOT / path).exists():
            return match[0]
        return f"[{match['text']}]({repository}/{path})" if repository else match["text"]

    return CODE_OR_LINK.sub(adapted, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
