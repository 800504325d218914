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


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the cache folder of the user, which is not there yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "torch-tracekit"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Return a trace in a run folder of the probe."""
    path = tmp_path / "run" / "attempt-0" / "step-000000003" / "rank0.json"
    path.parent.mkdir(parents=True)
    path.write_text("a trace")
    path.with_name("rank0.manifest.json").write_text("{}")
    return path
