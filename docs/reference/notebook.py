"""The worked notebook as a page: its text, its code, and what the code shows."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["cell_markdown", "notebook_page"]

_NOTEBOOK = Path(__file__).parents[1] / "notebook.ipynb"


def notebook_page() -> str:
    """Return the notebook in `docs/` as Markdown."""
    return "\n\n".join(map(cell_markdown, json.loads(_NOTEBOOK.read_text())["cells"]))


def cell_markdown(cell: Mapping[str, Any]) -> str:
    """Return a cell of a notebook (nbformat 4) as Markdown, with its outputs as HTML."""
    source = _text(cell["source"])
    if cell["cell_type"] != "code":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(_output_html, cell["outputs"])])


def _output_html(output: Mapping[str, Any]) -> str:
    """Return the output in the richest form that it has, in one line, so that no part of it is Markdown."""
    data = output.get("data", {})
    if "text/html" in data:
        shown = " ".join(line.strip() for line in _text(data["text/html"]).splitlines())
    elif "image/png" in data:
        shown = f'<img alt="the picture" src="data:image/png;base64,{"".join(_text(data["image/png"]).split())}">'
    else:
        text = html.escape(_text(output.get("text", data.get("text/plain", ""))).rstrip("\n"))
        shown = f"<pre><code>{'&#10;'.join(text.split(chr(10)))}</code></pre>"
    return f'<div class="output">{shown}</div>'


def _text(lines: str | Iterable[str]) -> str:
    """Return a text of a notebook, which has it as a whole or in lines."""
    return lines if isinstance(lines, str) else "".join(lines)
