"""The notebook of docs/ runs, and shows what it is committed with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components import require_module
from tests.notebook import NOTEBOOK, run_notebook, shown

_MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def committed() -> Any:
    nbformat = require_module("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_shows_what_it_is_committed_with(committed: Any) -> None:
    """WHEN the notebook runs THEN each cell shows the same; `make notebook` writes it again after a change."""
    for module in ("nbclient", "ipykernel", "matplotlib", "openpyxl", "pyarrow"):
        require_module(module)
    assert shown(run_notebook()) == shown(committed)


def test_it_is_small_and_its_code_is_short(committed: Any) -> None:
    assert NOTEBOOK.stat().st_size < _MOST_BYTES
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert len(code) >= 8
    assert all(len(cell.source.splitlines()) <= 8 for cell in code)
    assert all(len(text) < 10_000 for cell in shown(committed) for output in cell for text in output.values())
    assert any("image/png" in output for cell in shown(committed) for output in cell)
