"""One rank's trace as the parts of it that the what-if keeps are made from."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tests.summarized_trace import summarize_trace
from tracekit.loading.options import SummaryOptions
from tracekit.loading.recording import Recording, recording_of
from tracekit.model.summary import RankSummary
from tracekit.rank.communication_rules import DEFAULT_RULES
from tracekit.read.decode.portable import decode


def recording(trace: TraceBuilder, folder: Path) -> Recording:
    return recording_of(decode(trace.write(folder / f"rank{trace.rank}.json")), DEFAULT_RULES)


def summary(trace: TraceBuilder, folder: Path) -> RankSummary:
    return summarize_trace(decode(trace.write(folder / f"rank{trace.rank}.json")), trace.rank, SummaryOptions())
