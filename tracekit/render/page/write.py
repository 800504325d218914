"""Write a report, or another result, as one HTML file that opens offline.

The file is a template with three parts put in: a policy, title and styles; the data; the scripts. The policy lets the
page load nothing, run no script and use no style but its own, which it names by hash
(https://www.w3.org/TR/CSP3/#grammardef-hash-source).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tracekit.analysis.report import Report
from tracekit.render.output import new_file
from tracekit.render.page.build import page_data
from tracekit.render.page.contract import DATA_ID, PageData
from tracekit.render.page.inert import script_json
from tracekit.render.page.lanes import LaneReader, read_again
from tracekit.render.page.size import MOST_CODE_BYTES, amounts_for

__all__ = ["PageCode", "html_page", "offline_page", "page_code", "report_html", "write_page"]

_HEAD, _DATA, _SCRIPT = "<!--tracekit:head-->", "<!--tracekit:data-->", "<!--tracekit:script-->"


@dataclass(frozen=True, kw_only=True)
class PageCode:
    """The code of the page.

    Attributes:
        template: HTML with one marker each for head, data and script, in this order.
        style: all styles.
        script: all scripts.
    """

    template: str
    style: str
    script: str


def page_code(folder: Traversable | None = None, manifest_name: str = "manifest.json") -> PageCode:
    """Return the code in a folder, by default that of the package.

    The manifest names the template, and the styles and scripts in the order in which they are joined.
    Raises ValueError when they would not work in one file, or are more than 200 kB.
    """
    folder = files("tracekit.render.page") / "assets" if folder is None else folder
    manifest = json.loads((folder / manifest_name).read_text("utf-8"))
    template = (folder / manifest["template"]).read_text("utf-8")
    style = "\n".join((folder / name).read_text("utf-8") for name in manifest["styles"])
    script = "\n;\n".join((folder / name).read_text("utf-8") for name in manifest["scripts"])
    markers = [template.find(marker) for marker in (_HEAD, _DATA, _SCRIPT)]
    if markers != sorted(markers) or any(template.count(marker) != 1 for marker in (_HEAD, _DATA, _SCRIPT)):
        raise ValueError(f"{manifest['template']}: needs {_HEAD}, {_DATA} and {_SCRIPT} once each, in this order")
    for name, code in (("style", style), ("script", script)):
        if f"</{name}" in code.lower() or "<!--" in code:
            raise ValueError(f"the {name} ends its own element")
    size_bytes = sum(len(code.encode()) for code in (template, style, script))
    if size_bytes > MOST_CODE_BYTES:
        raise ValueError(f"the page's code has {size_bytes:,} bytes, more than {MOST_CODE_BYTES:,}")
    return PageCode(template=template, style=style, script=script)


def html_page(data: PageData, code: PageCode) -> str:
    """Return the page of a report as text."""
    return offline_page(data["page"]["header"]["title"], data, code)


def offline_page(title: str, data: object, code: PageCode) -> str:
    """Return a page as text. data: plain values for its data block, whose texts are `inert`."""
    before, rest = code.template.split(_HEAD)
    between, rest = rest.split(_DATA)
    gap, after = rest.split(_SCRIPT)
    policy = (
        f"default-src 'none'; script-src '{_hash(code.script)}'; style-src '{_hash(code.style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{code.style}</style>"
    )
    block = f'<script type="application/json" id="{DATA_ID}">{script_json(data)}</script>'
    return f"{before}{head}{between}{block}{gap}<script>{code.script}</script>{after}"


def report_html(report: Report, read_lanes: LaneReader | None = read_again) -> str:
    """Return the page of a report as text.

    read_lanes: reads the files of some ranks again; None leaves the lanes out.
    """
    return html_page(page_data(report, read_lanes, amounts_for(len(report.run.ranks))), page_code())


def write_page(path: Path, report: Report, read_lanes: LaneReader | None = read_again, *, force: bool = False) -> None:
    """Write `report_html` to a file, which is there completely or not at all.

    Raises OutputError when the file exists already and `force` is False, is a recording, or cannot be written.
    """
    with new_file(path, force=force) as stream:
        stream.write(report_html(report, read_lanes).encode())


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
