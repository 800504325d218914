"""What must hold of the merged trace of any run, asked of the real trace processor and of the standard library."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracekit.analysis.report import analyze
from tracekit.analysis.summarize import SummaryOptions
from tracekit.model.run import Run
from tracekit.render.merged.input_slices import SliceFilter
from tracekit.render.merged.merge import Merged, merge
from tracekit.trace_processor import TraceProcessor, views_sql

LANES = {
    "compute": "compute_ns",
    "communication": "comm_ns",
    "exposed communication": "exposed_comm_ns",
    "exposed copies": "exposed_copy_ns",
    "idle": "idle_ns",
}


def merged(
    processor: TraceProcessor,
    run: Run,
    folder: Path,
    options: SummaryOptions | None = None,
    shown: SliceFilter | None = None,
) -> Merged:
    """Merge `run`, with what an analysis finds, and load the result."""
    folder.mkdir(exist_ok=True)
    written = merge(run, folder / "run.pftrace", report=analyze(run), options=options, shown=shown)
    assert written.path.stat().st_size == written.size_bytes
    assert list(folder.iterdir()) == [written.path]
    processor.load(written.path.read_bytes())
    assert processor.errors() == []
    processor.ask(views_sql())
    return written


def complete_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Every event with a duration below `folder`, or in that file, by the standard library's reader."""
    for path in [folder] if folder.is_file() else folder.rglob("*.json*"):
        if "manifest" not in path.name:
            packed = path.read_bytes()
            document = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
            yield from (event for event in document["traceEvents"] if event["ph"] == "X")


def input_slices(folder: Path) -> Counter[tuple[str, str]]:
    """How many of each category and name."""
    return Counter((event.get("cat", ""), event["name"]) for event in complete_events(folder))


def shown_slices(processor: TraceProcessor) -> Counter[tuple[str, str]]:
    """Of the input, as the trace processor has them."""
    rows = processor.query(
        "select ifnull(category, '') as category, ifnull(name, '') as name, count() as n from slice "
        "where category is null or category != 'tracekit' group by 1, 2"
    )
    return Counter({(row["category"], row["name"]): row["n"] for row in rows})


def assert_totals_are_the_reports(processor: TraceProcessor, run: Run) -> None:
    """Sums over tracks are the report's numbers: the parts of steps, and bubbles."""
    totals: Counter[tuple[int, str]] = Counter()
    for row in processor.query(
        "select rank, track, dur, ifnull(extract_arg(arg_set_id, 'debug.wait_ns'), 0) as wait_ns from tracekit_slices"
    ):
        totals[row["rank"], row["track"]] += row["dur"]
        totals[row["rank"], "waits inside actions"] += row["wait_ns"]
    report = analyze(run)
    assert report.breakdown is not None
    for row in report.breakdown.ranks.to_dict("records"):
        for lane, part in LANES.items():
            assert totals[row["rank"], lane] == row[part], (row["rank"], lane)
        assert row["compute_ns"] > 0
        assert row["comm_ns"] > 0
    if report.pipeline is not None:
        for row in report.pipeline.by_rank.to_dict("records"):
            rank = row["rank"]
            assert totals[rank, "bubble"] + totals[rank, "waits inside actions"] == row["bubble_ns"], rank


def assert_arrows_are_whole(processor: TraceProcessor, run: Run) -> None:
    """One arrow fewer than members in every collective and message, each forward in time."""
    rows = processor.query(
        "select a.ts <= b.ts as forward, ta.name as track, extract_arg(a.arg_set_id, 'debug.instance') as number, "
        "extract_arg(b.arg_set_id, 'debug.instance') as other from flow join slice a on slice_out = a.id "
        "join slice b on slice_in = b.id join track ta on a.track_id = ta.id"
    )
    assert all(row["forward"] for row in rows)
    drawn = [row for row in rows if (row["track"] or "").startswith("collectives")]
    assert all(row["number"] == row["other"] for row in drawn)
    members = [(matched.row >= 0).sum(axis=0) for matched in run.collectives]
    assert len(drawn) == sum(int((count - 1).sum()) for count in members)
    messages = [row for row in rows if (row["track"] or "").startswith("point to point")]
    assert len(messages) == len(run.messages)
