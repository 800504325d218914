"""Links between pages and the other files of the repository, as they must be in the site.

In the repository a page links to files as they lie there, so that it can be read there as well. The site has the pages
of `docs/` at its top, and some documents and pictures from other folders where they lie. A link to any other file of
the repository becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection
from pathlib import Path

__all__ = ["outside_files", "page_links", "with_site_links"]

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]\[]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_DOCS = "docs/"


def outside_files(root: Path) -> list[str]:
    """Return the paths in the repository of what the site has from other folders than `docs/`."""
    single = ["CHANGELOG.md", "probes/README.md", "tests/data/README.md"]
    reports = (file for file in root.glob("reports/**/*") if file.suffix in {".md", ".png", ".txt", ".json", ".html"})
    return [*single, *sorted(file.relative_to(root).as_posix() for file in reports)]


def page_links(text: str) -> list[tuple[str, str]]:
    """Return target and anchor of each link of a page to a file of the repository."""
    found = [(link["target"], link["anchor"] or "") for link in _LINK.finditer(text)]
    return [(target, anchor) for target, anchor in found if "://" not in target and not target.startswith("mailto:")]


def with_site_links(text: str, page: str, in_site: Collection[str], root: Path) -> str:
    """Return the Markdown of a page with its links as the site needs them.

    Args:
        page: path of the page in the repository.
        in_site: paths in the repository of all files of the site.
    """

    def replaced(link: re.Match[str]) -> str:
        target = link["target"]
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
        if path in in_site:
            relative = posixpath.relpath(_site_path(path), posixpath.dirname(_site_path(page)) or ".")
            return f"{link['picture']}[{link['text']}]({relative}{link['anchor'] or ''})"
        return link["text"] if (root / path).exists() else link[0]

    return _LINK.sub(replaced, text)


def _site_path(path: str) -> str:
    return path.removeprefix(_DOCS)
