"""Completes lists of pages and texts of images, and redirects links that leave the documentation."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes

#: Files and folders outside of `docs`, and the page that shows them.
PAGES = {
    "../ARCHITECTURE.md": "/inside/architecture.md",
    "../CHANGELOG.md": "/inside/changelog.md",
    "../CONTRIBUTING.md": "/inside/contributing.md",
    "../README.md": "/index.md",
    "../benches/results/": "/inside/benchmarks.md",
    "../benches/README.md": "/inside/benchmarks.md",
}
TARGET = re.compile(r"\]\((\.\./[^)#]*)")
#: Stands for the pages beside this one that no list of it names.
OTHERS = "(all other pages)\n"


def others(folder: Path, name: str, text: str) -> str:
    """Return the names of the pages that `text` does not list, one per line."""
    listed = set(re.findall(r"^[\w-]+$", text, re.MULTILINE)) | {"index", name}
    return "".join(f"{path.stem}\n" for path in sorted(folder.glob("*.md")) if path.stem not in listed)


def read(app: Any, name: str, source: list[str]) -> None:
    """Complete lists, and point links that leave the folder to the page that shows their target."""
    text = source[0]
    if OTHERS in text:
        text = text.replace(OTHERS, others(Path(app.srcdir), name, text))
    source[0] = TARGET.sub(lambda match: f"]({PAGES.get(match[1], match[1])}", text)


def outdated(app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """Read the page with such a list again when pages come and go."""
    return ["guide"] if added | removed else []


def describe_thumbnails(app: Any, tree: nodes.document, name: str) -> None:
    """Give every thumbnail of the gallery the title of its program as text."""
    for image in tree.findall(nodes.image):
        link = image.next_node(nodes.reference, ascend=True)
        if not image.get("alt") and "_thumb" in image["uri"] and link is not None:
            image["alt"] = link.astext()


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("source-read", read)
    app.connect("env-get-outdated", outdated)
    app.connect("doctree-resolved", describe_thumbnails)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
