"""Fixtures of the tests of analyses."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.explain.summarized import Summarize, summary_of

# What they compare with is computed by torch, which CI has.
BY_TORCH = ["capture/hooks/test_torch_compile.py", "explain/step_time/test_flops.py"]
collect_ignore = [] if find_spec("torch") else BY_TORCH


@pytest.fixture
def summarize(tmp_path: Path) -> Summarize:
    """`summarize(trace, **options)`: the summary of a trace."""
    return partial(summary_of, folder=tmp_path)
