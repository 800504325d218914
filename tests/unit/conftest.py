"""Fixtures of the tests of analyses."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.explain.summarized import Summarize, summary_of


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    """`summarize(trace, **options)`: the summary of a trace."""
    return partial(summary_of, folder=tmp_path)
