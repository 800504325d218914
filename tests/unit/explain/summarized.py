"""The summary of one rank's trace, as analyses read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.loading.options import SummaryOptions
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

Summarize = Callable[..., RankSummary]


def summary_of(trace: TraceBuilder, folder: Path, **options: Any) -> RankSummary:
    """Write a trace into a folder and summarise it. options: of `SummaryOptions`."""
    path = trace.write(folder / f"rank{trace.rank}.json")
    return summarize_trace(decode(path), trace.rank, SummaryOptions(**options))
