"""The notebook of docs/ runs, and shows what it is committed with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components import require_module
from tests.notebook import NOTEBOOK, run_notebook, shown


@pytest.fixture(scope="module")
def committed() -> Any:
    nbformat = require_module("nbformat")
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_shows_what_it_is_committed_with(committed: Any) -> None:
    """WHEN the notebook runs THEN each cell shows the same; `make notebook` writes it again after a change."""
    for module in ("nbclient", "ipykernel", "matplotlib", "openpyxl", "pyarrow"):
        require_module(module)
    assert shown(run_notebook()) == shown(committed)
