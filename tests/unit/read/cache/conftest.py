"""A trace in a folder, and a clock for the cache."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tracekit.read.cache import store as module

LATER_NS = 60 * 10**9


@pytest.fixture(autouse=True)
def _a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clock run a minute ahead, so that files just written look old. Change times cannot be set back."""
    monkeypatch.setattr(module, "_now_ns", lambda: time.time_ns() + LATER_NS)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "rank0.json"
    path.parent.mkdir()
    path.write_text("a trace")
    return path
