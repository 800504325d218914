"""Properties that the merged trace of any run must have, checked with the real trace processor."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.explain.stragglers.stragglers import counted_steps
from tracekit.loading.options import SummaryOptions
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.render.json_result import result_json
from tracekit.render.merged.derived_tracks import SliceFilter
from tracekit.render.merged.merge import Merged, merge
from tracekit.report.report import analyze
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
    """Merge `run` with its report and load the result into the trace processor."""
    folder.mkdir(exist_ok=True)
    written = merge(run, folder / "run.pftrace", report=analyze(run), options=options, shown=shown)
    assert written.path.stat().st_size == written.size_bytes
    assert list(folder.iterdir()) == [written.path]
    processor.load(written.path.read_bytes())
    assert processor.errors() == []
    processor.ask(views_sql())
    return written


def complete_events(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield every complete event (ph X) in the files below `folder`, or in that file."""
    for path in [folder] if folder.is_file() else folder.rglob("*.json*"):
        if "manifest" not in path.name:
            packed = path.read_bytes()
            document = json.loads(gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed)
            yield from (event for event in document["traceEvents"] if event["ph"] == "X")


def input_slices(folder: Path) -> Counter[tuple[str, str]]:
    """Count the complete events by category and name."""
    return Counter((event.get("cat", ""), event["name"]) for event in complete_events(folder))


def shown_slices(processor: TraceProcessor) -> Counter[tuple[str, str]]:
    """Count the slices that tracekit did not add in the loaded trace, by category and name."""
    rows = processor.query(
        "select ifnull(category, '') as category, ifnull(name, '') as name, count() as n from slice "
        "where id not in (select slice_id from tracekit_slices union all select slice_id from tracekit_run_slices) "
        "group by 1, 2"
    )
    return Counter({(row["category"], row["name"]): row["n"] for row in rows})


def assert_totals_are_the_reports(processor: TraceProcessor, run: Run) -> None:
    """Sums over tracks equal the report's numbers: the parts of steps, and bubbles."""
    totals: Counter[tuple[int, str]] = Counter()
    for row in processor.query(
        "select rank, track, dur, ifnull(extract_arg(arg_set_id, 'debug.wait_ns'), 0) as wait_ns from tracekit_slices"
    ):
        totals[row["rank"], row["track"]] += row["dur"]
        totals[row["rank"], "waits inside actions"] += row["wait_ns"]
    assert_phases_are_the_reports(processor, run)
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


def assert_phases_are_the_reports(processor: TraceProcessor, run: Run) -> None:
    """The phases in SQL, in the JSON and in the report are equal to the ns, and are the whole of the counted steps."""
    report = analyze(run)
    assert report.phases is not None
    assert report.breakdown is not None
    found = {(row["rank"], row["phase"]): row["total_ns"] for row in report.phases.parts.to_dict("records")}
    in_json = {
        (part["rank"], part["phase"]): part["total_ns"] for part in json.loads(result_json(report))["phases"]["parts"]
    }
    in_sql: Counter[tuple[int, str]] = Counter()
    for row in processor.query("select rank, phase, sum(duration_ns) as total from tracekit_phases group by 1, 2"):
        in_sql[row["rank"], row["phase"]] = row["total"]
    assert found == in_json == {key: in_sql[key] for key in found}
    for row in report.breakdown.ranks.to_dict("records"):
        assert sum(total for (rank, _), total in in_sql.items() if rank == row["rank"]) == row["step_ns"]


def assert_views_are_the_reports(processor: TraceProcessor, run: Run) -> None:
    """Views equal the report: findings, the critical path, waits, lateness, and the number of ranks that wait."""
    report, counted = analyze(run), counted_steps(run)
    columns = ("severity", "rank", "step", "text", "time_ns", "saving_ns", "saving_error_ns", "certainty")
    rows = processor.query(f"select {', '.join(columns)} from tracekit_findings")
    assert Counter(tuple(row.values()) for row in rows) == Counter(
        tuple(getattr(finding, column) for column in columns) for finding in report.findings
    )
    path = processor.query("select * from tracekit_critical_path")
    by_kind: Counter[tuple[int, str]] = Counter()
    if report.critical_path is not None:
        for part in report.critical_path.parts.to_dict("records"):
            kind = part["kind"] if part["kind"] in {"compute", "data", "communication"} else "host"
            by_kind[part["rank"], kind] += part["total_ns"]
    assert sum(row["dur"] for row in path) == by_kind.total()
    for kind in ("compute", "data", "host", "communication"):
        for rank in {row["rank"] for row in path}:
            assert sum(row[f"{kind}_ns"] or 0 for row in path if row["rank"] == rank) == by_kind[rank, kind]
    assert report.stragglers is not None
    waits = processor.query("select * from tracekit_waits")
    late = [row for row in processor.query("select * from tracekit_lateness") if row["step"] in counted]
    instances = arrivals_of(run, frozenset(counted)).instances
    if clocks_are_comparable(run.ranks, run.clocks):
        for row in report.stragglers.by_rank.to_dict("records"):
            of_rank = [wait for wait in waits if wait["rank"] == row["rank"] and wait["step"] in counted]
            spans = [(wait["ts"], wait["ts"] + wait["dur"]) for wait in of_rank if not wait["is_message"]]
            spinning_ns = _covered_ns(spans) // max(len(counted), 1)
            # A kernel that is queued does not spin yet, although its rank waits already.
            assert spinning_ns == row["wait_ns"] or (run.device == "gpu" and spinning_ns < row["wait_ns"]), row["rank"]
            assert sum(each["rank"] == row["rank"] for each in late) == row["last_arrivals"]
        assert sum(row["dur"] for row in late) == instances.late_ns[np.isin(instances.step, counted)].sum()
    for row in late:
        parts_ns = row["excess_compute_ns"], row["excess_data_ns"], row["excess_host_ns"]
        assert sum(parts_ns) == row["excess_ns"]
    assert_the_counter_counts_open_waits(processor)


def _covered_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the time in which at least one of the spans is open."""
    covered_ns, until_ns = 0, 0
    for start_ns, end_ns in sorted(spans):
        covered_ns += max(end_ns - max(start_ns, until_ns), 0)
        until_ns = max(until_ns, end_ns)
    return covered_ns


def assert_the_counter_counts_open_waits(processor: TraceProcessor) -> None:
    """Whenever the counter changes, and whenever a wait begins or ends, the counter equals the number of open waits."""
    levels = processor.query("select ranks, ts, dur from tracekit_ranks_waiting order by ts")
    waits = processor.query("select rank, ts, ts + dur as until_ns from tracekit_waits")
    assert bool(levels) == bool(waits)
    starts_ns = [row["ts"] for row in levels]
    for time_ns in {*starts_ns, *(row[edge] for row in waits for edge in ("ts", "until_ns"))}:
        waiting = {row["rank"] for row in waits if row["ts"] <= time_ns < row["until_ns"]}
        assert levels[bisect_right(starts_ns, time_ns) - 1]["ranks"] == len(waiting)


def assert_arrows_are_whole(processor: TraceProcessor, run: Run) -> None:
    """Every collective and message has one arrow fewer than members, and all arrows lead forward in time."""
    rows = processor.query(
        "select a.ts <= b.ts as forward, ta.name as track, extract_arg(a.arg_set_id, 'debug.instance') as number, "
        "extract_arg(b.arg_set_id, 'debug.instance') as other from flow join slice a on slice_out = a.id "
        "join slice b on slice_in = b.id join track ta on a.track_id = ta.id"
    )
    assert all(row["forward"] for row in rows)
    collectives = [row for row in rows if (row["track"] or "").startswith("collectives")]
    assert all(row["number"] == row["other"] for row in collectives)
    members = [(matched.row >= 0).sum(axis=0) for matched in run.collectives]
    assert len(collectives) == sum(int((count - 1).sum()) for count in members)
    messages = [row for row in rows if (row["track"] or "").startswith("point to point")]
    assert len(messages) == len(run.messages)
