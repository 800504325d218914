"""Fixtures that tests of several folders share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.components import require


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of public traces with known answers."""
    folder = os.environ.get("TRACEKIT_REAL_TRACES", "")
    require("real traces", folder, "set TRACEKIT_REAL_TRACES to the folder that holds dlrm_8xV100 and its siblings")
    require("real traces", Path(folder).is_dir(), f"TRACEKIT_REAL_TRACES={folder} is no folder")
    return Path(folder).resolve()
