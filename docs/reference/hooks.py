"""What MkDocs calls while it builds the site: adds documents from other folders, and fills in what is generated.

What the generator NAME returns stands between `<!-- generated: NAME -->` and `<!-- /generated -->`. It is committed, so
that a code host shows it; `python -m docs.reference` writes it again. The site makes it anew.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # MkDocs loads this file by its path

from docs.reference.checks import check_pages  # noqa: E402
from docs.reference.commands import command_pages  # noqa: E402
from docs.reference.findings import finding_pages, tag_table  # noqa: E402
from docs.reference.gallery import gallery_cards, take_thumbnails  # noqa: E402
from docs.reference.json_result import json_pages  # noqa: E402
from docs.reference.links import outside_files, with_site_links  # noqa: E402
from docs.reference.notebook import notebook_page  # noqa: E402
from docs.reference.structs import struct_pages  # noqa: E402
from docs.reference.tables import comparison_tables, table_pages  # noqa: E402
from docs.reference.views import view_pages  # noqa: E402
from tracekit.model.metadata import CaptureMetadata, Manifest, ProgressHeader  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["GENERATORS", "filled_in", "generated_pages", "on_files", "on_page_markdown", "on_post_build"]

GENERATORS: dict[str, Callable[[], str]] = {
    "checks": check_pages,
    "commands": command_pages,
    "comparison": comparison_tables,
    "findings": finding_pages,
    "gallery": gallery_cards,
    "json": json_pages,
    "manifest": lambda: struct_pages(Manifest),
    "metadata": lambda: struct_pages(CaptureMetadata),
    "notebook": notebook_page,
    "progress": lambda: struct_pages(ProgressHeader),
    "tables": table_pages,
    "tags": tag_table,
    "views": view_pages,
}
_PART = re.compile(r"^(<!-- generated: (\w+) -->\n).*?^(<!-- /generated -->)$", re.MULTILINE | re.DOTALL)

_SITE_ONLY = {"gallery.md", "notebook.md"}


def filled_in(text: str) -> str:
    """Return the text of a page with every generated part made anew. KeyError for a mark without a generator."""
    return _PART.sub(lambda part: f"{part[1]}\n{GENERATORS[part[2]]().strip()}\n\n{part[3]}", text)


def generated_pages() -> list[Path]:
    """Return the pages in `docs/` with committed generated parts: not those that only the site can show."""
    pages = (path for path in sorted((ROOT / "docs").glob("*.md")) if _PART.search(path.read_text()))
    return [path for path in pages if path.name not in _SITE_ONLY]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add documents from other folders of the repository."""
    from mkdocs.structure.files import File

    for path in outside_files(ROOT):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and lead links to where files are in the site."""
    outside = {*outside_files(ROOT)}
    path = page.file.src_uri if page.file.src_uri in outside else f"docs/{page.file.src_uri}"
    in_site = outside | {f"docs/{file.src_uri}" for file in files if file.src_uri not in outside}
    return with_site_links(filled_in(markdown), path, in_site, ROOT)


def on_post_build(config: MkDocsConfig) -> None:
    """Put pictures of the reports into the site."""
    if missing := take_thumbnails(Path(config.site_dir) / "thumbnails", ROOT / "build" / "thumbnails"):
        logging.getLogger("mkdocs.hooks").info("No Chromium for pictures of %s", ", ".join(missing))
