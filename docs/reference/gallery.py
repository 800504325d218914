"""The gallery of the site: a picture of each report in `reports/`, which leads to the page itself.

Pictures are taken in the system's Chromium when the site is built. None is committed, so none is out of date. A picture
of a page that has not changed is taken from `build/thumbnails`. Without Chromium or Playwright there are no pictures.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ViewportSize

__all__ = ["gallery_cards", "take_thumbnails"]

REPORTS = Path(__file__).parents[2] / "reports"
_SIZE: ViewportSize = {"width": 960, "height": 600}
_ROW = re.compile(r"^\| \[(\w+)\]\([^)]*\) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|", re.MULTILINE)


def gallery_cards() -> str:
    """Return a card for each report as HTML: its picture, what it trains, what was planted, its first finding."""
    rows = _ROW.findall((REPORTS / "README.md").read_text())
    return "\n".join(['<div class="gallery">', *map(_card, rows), "</div>"])


def _card(row: tuple[str, str, str, str]) -> str:
    folder, trains, planted, value = map(html.escape, row)
    findings = json.loads((REPORTS / folder / "summary.json").read_text())["findings"]
    first = html.escape(findings[0]["text"]) if findings else "nothing is found"
    return (
        f'<a href="reports/{folder}/report.html"><img src="thumbnails/{folder}.png" alt="" loading="lazy">'
        f"<b>{folder}</b>: {trains}<br>Planted: {planted} ({value})<br>First finding: {first}</a>"
    )


def take_thumbnails(into: Path, kept: Path) -> list[str]:
    """Write a picture of each report's page; return the names of those for which there is no Chromium.

    Args:
        into: folder of the pictures, `NAME.png`.
        kept: folder of all pictures that were ever taken, by what their pages hold.
    """
    pages = {page.parent.name: page for page in sorted(REPORTS.glob("*/report.html"))}
    pictures = {name: kept / f"{_digest(page)}.png" for name, page in pages.items()}
    into.mkdir(parents=True, exist_ok=True)
    _photograph({pages[name]: picture for name, picture in pictures.items() if not picture.exists()})
    for name, picture in pictures.items():
        if picture.exists():
            shutil.copyfile(picture, into / f"{name}.png")
    return [name for name, picture in pictures.items() if not picture.exists()]


def _digest(page: Path) -> str:
    """Return what a picture depends on, as a text that names it."""
    return hashlib.sha256(page.read_bytes() + repr(_SIZE).encode()).hexdigest()


def _photograph(pictures: Mapping[Path, Path]) -> None:
    """Write the first screen of each page, if there is a Chromium."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return
    if not pictures or chromium is None:
        return
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for page, picture in pictures.items():
            _first_screen(browser, page, picture)
        browser.close()


def _first_screen(browser: Browser, page: Path, picture: Path) -> None:
    picture.parent.mkdir(parents=True, exist_ok=True)
    tab = browser.new_page(viewport=_SIZE, device_scale_factor=0.6, color_scheme="light")
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-ready]")
    tab.screenshot(path=picture)
    tab.close()
