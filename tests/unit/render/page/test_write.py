"""The report as one file that opens offline."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.unit.render.page.jobs import job, made_up_lanes, report_of
from tracekit.api import analyze
from tracekit.errors import OutputError
from tracekit.loading.load import load
from tracekit.render.page.build import PageCode, html_page, page_code, page_data, write_page
from tracekit.render.page.contract import DATA_ID, PageData
from tracekit.render.page.size import MOST_CODE_BYTES, amounts_for

TEMPLATE = "<!DOCTYPE html><head><!--tracekit:head--></head><body><!--tracekit:data--><!--tracekit:script--></body>"
CODE = PageCode(template=TEMPLATE, style="p { color: red }", script="let shown = 1 < 2 && 3 > 2;")


class Elements(HTMLParser):
    """The elements of a page as a browser reads them: name, attributes and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.open = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.open = True

    def handle_endtag(self, tag: str) -> None:
        self.open = False

    def handle_data(self, data: str) -> None:
        if self.open:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


@pytest.fixture(scope="module")
def data() -> PageData:
    return page_data(report_of(job(2)), made_up_lanes, amounts_for(2))


def sha256(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_page_its_own_code_and_nothing_else(data: PageData) -> None:
    elements = Elements(html_page(data, CODE))

    (policy,) = [attributes for attributes, _ in elements.named("meta") if "http-equiv" in attributes]
    directives = dict(part.strip().split(" ", 1) for part in str(policy["content"]).split(";"))
    ((_, style),) = elements.named("style")
    (_, (_, script)) = elements.named("script")
    assert directives == {
        "default-src": "'none'",
        "script-src": sha256(script),
        "style-src": sha256(style),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert (script, style) == (CODE.script, CODE.style)


def test_the_data_block_holds_the_data(data: PageData) -> None:
    ((attributes, text), _) = Elements(html_page(data, CODE)).named("script")

    assert attributes == {"type": "application/json", "id": DATA_ID}
    assert json.loads(text) == json.loads(json.dumps(data))


def test_hostile_names_are_no_elements(tmp_path: Path) -> None:
    """GIVEN a trace whose names are markup, scripts, control characters and a megabyte long WHEN it becomes a page THEN
    the page has no element more than that of a harmless trace.
    """
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[2J\u2028<!--"

    def elements_of(name: str, path: Path) -> list[str]:
        trace = TraceBuilder(world_size=1).step(1, 0, 100).op(name, 5, 50).op(name + "x" * 1_000_000, 60, 30)
        report = analyze(load(write_run(path / name[:9].strip("</>"), [trace])))
        page = html_page(page_data(report, None, amounts_for(1)), CODE)
        assert len(page) < 500_000
        return [tag for tag, _, _ in Elements(page).found]

    assert elements_of(hostile, tmp_path / "a") == elements_of("aten::mm", tmp_path / "b")


def test_the_title_is_text() -> None:
    report = report_of(job(2))
    data = page_data(report, None, amounts_for(2))
    data["page"]["header"]["title"] = "</title><script>alert(1)</script> & more"

    ((_, title),) = Elements(html_page(data, CODE)).named("title")

    assert title == "</title><script>alert(1)</script> & more"


@pytest.mark.parametrize("manifest", ["manifest.json", "comparison.json"])
def test_the_code_of_the_package_works_in_one_file(manifest: str) -> None:
    code = page_code(manifest)
    markers = ["<!--tracekit:head-->", "<!--tracekit:data-->", "<!--tracekit:script-->"]
    assert re.findall(r"<!--tracekit:\w+-->", code.template) == markers
    for name, text in (("style", code.style), ("script", code.script)):
        assert f"</{name}" not in text.lower()
        assert "<!--" not in text
    assert sum(len(text.encode()) for text in (code.template, code.style, code.script)) <= MOST_CODE_BYTES


def test_the_page_of_the_package_loads_nothing() -> None:
    """GIVEN the code that is shipped THEN it is within its size and names no address that it would fetch."""
    code = page_code()

    assert re.findall(r"(?:src|href)\s*=\s*[\"']?(?:https?:)?//", code.template) == []
    assert re.findall(r"url\(|@import", code.style) == []
    assert re.findall(r"\bfetch\(|XMLHttpRequest|import\(|\beval\(|innerHTML|insertAdjacentHTML", code.script) == []


def test_a_recorded_run_becomes_a_file(tmp_path: Path) -> None:
    traces = [TraceBuilder(rank).step(1, 0, 100).op("aten::mm", 5, 50 + rank) for rank in (0, 1)]
    report = analyze(load(write_run(tmp_path / "run", traces)))

    write_page(tmp_path / "report.html", report)

    text = (tmp_path / "report.html").read_text()
    ((_, block), _) = Elements(text).named("script")
    lanes = json.loads(block)["page"]["lanes"]
    assert [rank["rank"] for rank in lanes[0]["ranks"]] == [0, 1]
    with pytest.raises(OutputError, match="exists already"):
        write_page(tmp_path / "report.html", report)


def test_a_file_of_the_run_is_never_overwritten(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(1, 0, 100).op("aten::mm", 5, 50)
    folder = write_run(tmp_path / "run", [trace])
    report = analyze(load(folder))
    (file,) = report.run.ranks[0].files

    with pytest.raises(OutputError, match="a recording, which is not overwritten"):
        write_page(Path(file), report, force=True)
