"""The page of the notebook: text, code, and outputs that Markdown leaves as they are."""

from __future__ import annotations

import json

import pytest

from docs.reference.notebook import cell_markdown, notebook_page
from tests.places import ROOT


def code(*outputs: dict[str, object]) -> dict[str, object]:
    return {"cell_type": "code", "source": ["x = 1\n", "x"], "outputs": outputs}


def test_text_stays_and_code_is_fenced() -> None:
    assert cell_markdown({"cell_type": "markdown", "source": ["# A\n", "b"]}) == "# A\nb"
    assert cell_markdown(code()) == "```python\nx = 1\nx\n```"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"data": {"text/html": ["<b>\n", "  1\n", "</b>"], "text/plain": "1"}}, "<b> 1 </b>"),
        ({"data": {"image/png": "A\nB\n"}}, '<img alt="the picture" src="data:image/png;base64,AB">'),
        ({"data": {"text/plain": ["<1>\n", "\n", "  2"]}}, "<pre><code>&lt;1&gt;&#10;&#10;  2</code></pre>"),
        ({"text": ["*a*\n"]}, "<pre><code>*a*</code></pre>"),
    ],
)  # fmt: skip
def test_an_output_is_one_line_of_html(output: dict[str, object], expected: str) -> None:
    assert cell_markdown(code(output)).split("\n")[-1] == f'<div class="output">{expected}</div>'


def test_every_cell_and_every_output_of_the_notebook_is_on_the_page() -> None:
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text())["cells"]
    page = notebook_page()
    assert page.count("```python\n") == sum(cell["cell_type"] == "code" for cell in cells)
    assert page.count('<div class="output">') == sum(len(cell.get("outputs", ())) for cell in cells)
    assert all("".join(cell["source"]) in page for cell in cells)
