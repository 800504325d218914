"""Arguments of slices in a trace of Chrome's format: those of their events in the input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.perfetto.merged import complete_events
from tests.perfetto.written_arguments import WRITERS, arguments, traces_of
from tracekit.loading.load import load
from tracekit.render.merged.merge import merge


@pytest.fixture(params=WRITERS)
def source(request: pytest.FixtureRequest, real_traces: Path) -> Path:
    return traces_of(request.param, real_traces)


def test_arguments_in_chrome_s_format_are_unchanged(source: Path, tmp_path: Path) -> None:
    written = merge(load(source), tmp_path / "run.json", form="chrome").path
    shown = (event for event in complete_events(written) if event["cat"] != "tracekit")
    assert arguments(shown) == arguments(complete_events(source))
