"""The summary of one decoded trace, as a worker makes it."""

from __future__ import annotations

from tracekit.loading.options import SummaryOptions
from tracekit.loading.recording import recording_of
from tracekit.loading.summarize import summarize_recording
from tracekit.model.events import DecodedTrace
from tracekit.model.summary import RankSummary


def summarize_trace(trace: DecodedTrace, rank: int, options: SummaryOptions) -> RankSummary:
    return summarize_recording(recording_of(trace, options.rules, options.search), rank, options)
