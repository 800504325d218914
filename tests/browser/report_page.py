"""A report's page in a browser: opened from its file, and read as a user reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tracekit.render.page.build import html_page, page_code
from tracekit.render.page.contract import PageData


class ReportPage:
    """A page that has drawn its first screen.

    Attributes:
        page: the page of Playwright.
        errors: messages of its console that are errors, errors of its script, and dialogs.
        requests: addresses that it asked for, without its own.
    """

    def __init__(self, page: Any, path: Path, hash_: str = "") -> None:
        page.set_default_timeout(10_000)
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._dismiss)
        page.on("request", lambda request: self.requests.append(request.url))
        address = path.resolve().as_uri()
        page.goto(f"{address}{hash_}")
        page.wait_for_selector("html[data-ready]")
        self.requests = [url for url in self.requests if url.partition("#")[0] != address]

    def _dismiss(self, dialog: Any) -> None:
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    @property
    def hash(self) -> str:
        return str(self.page.evaluate("location.hash"))

    @property
    def chart_ids(self) -> list[str]:
        return list(self.page.evaluate("[...charts.keys()]"))

    def show(self, figure: str) -> None:
        """Scroll to a figure, so that it is drawn."""
        self.page.evaluate(
            "id => { const fold = document.querySelector(`#${id} > .fold`); if (fold) fold.open = true; }", figure
        )
        self.page.locator(f"#{figure}").scroll_into_view_if_needed()
        self.page.wait_for_function("id => !charts.has(id) || !charts.get(id).isStale", arg=figure)

    def table(self, figure: str) -> list[dict[str, Any]]:
        """Return all rows of a figure's table: by the heading of the column the exact number, else the text."""
        self.show(figure)
        self.page.evaluate(
            """figure => {
                const details = document.querySelector(`#${figure} details.twin`);
                if (details && !details.open) details.open = true;
            }""",
            figure,
        )
        self.page.wait_for_selector(f"#{figure} table")
        while (more := self.page.locator(f"#{figure} .more button")).count():
            more.first.click()
        return list(
            self.page.evaluate(
                """figure => {
                    const table = document.querySelector(`#${figure} table`);
                    const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
                    const valueOf = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value)
                        : cell.classList.contains("number") ? null : cell.textContent);
                    return [...table.tBodies[0].rows].map((row) =>
                        Object.fromEntries([...row.cells].map((cell, at) => [heads[at], valueOf(cell)])));
                }""",
                figure,
            )
        )

    def texts(self, selector: str) -> list[str]:
        """Return the texts of elements."""
        return list(self.page.locator(selector).all_inner_texts())

    def saved(self, figure: str, kind: str) -> bytes:
        """Return the file that a figure whose table is open is saved as."""
        with self.page.expect_download() as download:
            self.page.locator(f"#{figure} .saves").get_by_role("button", name=kind).click()
        return Path(download.value.path()).read_bytes()

    def column(self, figure: str, heading: str) -> list[Any]:
        """Return a column by its heading, whose unit may be left out."""
        rows = self.table(figure)
        (name,) = {head for row in rows for head in row if head == heading or head.startswith(f"{heading} (")}
        return [row[name] for row in rows]

    def summary(self, figure: str) -> str:
        """Return the sentence that says what a figure shows."""
        self.show(figure)
        return str(self.page.locator(f"#{figure} .summary").inner_text())

    def cut_off(self) -> list[str]:
        """Return the elements that reach beyond the window, or hide a part of their text. Tables may be scrolled."""
        return list(
            self.page.evaluate(
                """() => [...document.querySelectorAll("main *, nav *")].filter((element) => {
                    if (element.closest(".table, .filter .fields, caption, canvas, .long")) return false;
                    const box = element.getBoundingClientRect();
                    const isBeyond = box.width > 0 && (box.left < -1 || box.right > innerWidth + 1);
                    const width = getComputedStyle(element).overflowX === "visible" ? 0 : element.clientWidth;
                    return isBeyond || (width > 0 && element.scrollWidth > width + 1);
                }).map((element) => `${element.tagName} ${element.className} ${element.textContent.slice(0, 60)}`)"""
            )
        )

    def tooltip(self, figure: str, x: float, y: float) -> str:
        """Return what is said of a place of a figure's canvas, in pixels from its upper left corner."""
        self.show(figure)
        self.page.locator(f"#{figure} canvas").last.hover(position={"x": x, "y": y})
        return str(self.page.locator(".tooltip").inner_text())


@contextmanager
def opened(
    browser: Any, data: PageData, folder: Path, *, hash_: str = "", width: int = 1280, **context: Any
) -> Iterator[ReportPage]:
    """Open the page of some data while the block runs."""
    with opened_text(browser, html_page(data, page_code()), folder, hash_=hash_, width=width, **context) as page:
        yield page


@contextmanager
def opened_text(
    browser: Any, text: str, folder: Path, *, hash_: str = "", width: int = 1280, **context: Any
) -> Iterator[ReportPage]:
    """Open a page from its file while the block runs."""
    path = folder / "report.html"
    path.write_text(text, "utf-8")
    with browser.new_context(viewport={"width": width, "height": 900}, **context) as page_context:
        yield ReportPage(page_context.new_page(), path, hash_)
