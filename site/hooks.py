"""Collects the pages of the repository for the site, and adapts their links.

The pages are written for code hosts. On the site, links among them stay as they are. A link to a source file leads to
the repository if its address is known (the environment variable REPOSITORY_URL, such as the address of a branch's
files). Otherwise it becomes plain text.
"""

import os
import posixpath
from pathlib import Path
from urllib.parse import urlsplit

from markdown import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent

PAGES = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "python/README.md",
    "filter/README.md",
]
FOLDERS = {"docs": ["**/*.md", "**/*.svg", "**/*.json"]}


def pages() -> list[Path]:
    """Returns the files of the site, as paths from the root of the repository."""
    found = [
        path
        for folder, patterns in FOLDERS.items()
        for pattern in patterns
        for path in (ROOT / folder).glob(pattern)
    ]
    return [Path(page) for page in PAGES] + sorted(path.relative_to(ROOT) for path in found)


class SourceLinks(Treeprocessor):
    """Adapts links to files that are not part of the site."""

    def __init__(self, links: "Links"):
        super().__init__()
        self.links = links

    def run(self, root):
        for link in root.iter("a"):
            path = self.links.source_of(link.get("href", ""))
            if path is None:
                continue
            if self.links.repository:
                link.set("href", f"{self.links.repository}/{path}")
            else:
                link.tag = "span"
                del link.attrib["href"]


class Links(Extension):
    """Finds the targets of the links on the current page."""

    def __init__(self):
        super().__init__()
        self.page = ""
        self.files = set()
        self.repository = os.environ.get("REPOSITORY_URL", "").rstrip("/")

    def extendMarkdown(self, md):  # noqa: N802
        # Runs before MkDocs's check of the links, which has the priority 0.
        md.treeprocessors.register(SourceLinks(self), "source_links", 5)

    def source_of(self, link: str) -> str | None:
        """Returns the path that a link leads to, if it is in the repository but not on the site."""
        address = urlsplit(link)
        if address.scheme or address.netloc or not address.path:
            return None
        path = posixpath.normpath(posixpath.join(posixpath.dirname(self.page), address.path))
        is_source = path not in self.files and not path.startswith("..") and (ROOT / path).exists()
        return path if is_source else None


LINKS = Links()


def on_config(config):
    config.markdown_extensions.append(LINKS)
    return config


def on_files(files, config):
    for path in pages():
        files.append(File.generated(config, path.as_posix(), abs_src_path=str(ROOT / path)))
    # The library, which the Makefile compiles for browsers.
    library = os.environ["CALCULATOR"]
    files.append(File.generated(config, "calculator/calculator.wasm", abs_src_path=library))
    LINKS.files = {file.src_uri for file in files}
    return files


def on_page_markdown(markdown, page, config, files):
    LINKS.page = page.file.src_uri
    return markdown
