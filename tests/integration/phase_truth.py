"""What training marked as a phase is that phase in the report, in its JSON and in the merged trace."""

from __future__ import annotations

from pathlib import Path

from tests.integration.recorded import EVERY_STEP
from tests.perfetto.merged import assert_phases_are_the_reports, merged
from tracekit.loading.load import load
from tracekit.trace_processor import TraceProcessor

_MARK = "truth:"


def mark(phase: str) -> str:
    """Return the name of a span around work of this phase."""
    return f"{_MARK}{phase}"


def assert_marks_are_their_phases(
    processor: TraceProcessor, run: Path, folder: Path, *, steps: int, backward: str = f"{_MARK}backward"
) -> None:
    """Check every mark in the complete steps of `run`, also in a first one that is longer than the others, to the ns.

    `folder` is for the merged trace.
    `backward`: a pattern of names of other slices that are backward, if training cannot mark it.
    """
    loaded = load(run, options=EVERY_STEP)
    merged(processor, loaded, folder, EVERY_STEP)
    assert_phases_are_the_reports(processor, loaded)
    phases = processor.query("select rank, phase, ts, ts + dur as until from tracekit_phases")
    marks = processor.query(
        f"select rank, iif(slice.name glob '{backward}', 'backward', substr(slice.name, {len(_MARK) + 1})) as phase, "
        "slice.ts as ts, slice.ts + slice.dur as until "
        "from slice join tracekit_tracks using (track_id) "
        f"where slice.name glob '{_MARK}*' or slice.name glob '{backward}'"
    )
    counted = processor.query("select rank, ts, ts + dur as until from tracekit_steps where complete")
    for step in counted:
        inside = [m for m in marks if m["rank"] == step["rank"] and step["ts"] <= m["ts"] < step["until"]]
        assert {m["phase"] for m in inside} == {"forward", "backward", "optimizer"}
        for m in inside:
            same = [p for p in phases if (p["rank"], p["phase"]) == (m["rank"], m["phase"])]
            covered_ns = sum(max(0, min(p["until"], m["until"]) - max(p["ts"], m["ts"])) for p in same)
            assert covered_ns == m["until"] - m["ts"], (m, covered_ns)
    assert len(counted) == steps * len(loaded.ranks)
