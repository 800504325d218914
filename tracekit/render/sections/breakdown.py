"""Where each rank's time goes, by rank and step, and how much communication compute hides, by kind, phase and group."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracekit.analysis.communication.overlap import Overlap
from tracekit.analysis.communication.sections import OVERLAP_SECTION
from tracekit.analysis.step_time.breakdown import Breakdown
from tracekit.analysis.step_time.sections import BREAKDOWN_SECTION
from tracekit.analysis.table import rows_of
from tracekit.findings.hosts import place_text
from tracekit.model.quantities import file_size, milliseconds
from tracekit.render.console import table
from tracekit.render.section_view import SectionView

__all__ = ["BREAKDOWN_VIEW", "OVERLAP_VIEW"]

_MOST_RANKS = 16
_SHOWN_RANKS = 8  # where there are more
_SHOWN_IDLE_RANKS = 4
_SHOWN_CAUSES = 5
_SHOWN_PLACES = 8
_HARDLY = 0.02  # of the step or of the idle time: less is not shown
_CAUSES = {
    "host_bound": "host\nbound",
    "kernel_gap": "kernel\ngaps",
    "synchronisation": "sync",
    "garbage_collection": "garbage",
    "between_steps": "between\nsteps",
}


def _breakdown_table(breakdown: Breakdown) -> list[object]:
    ranks = rows_of(breakdown, "ranks")
    shown = _shown(ranks, "step_ns", _SHOWN_RANKS)
    title = "Where each rank's time goes (ms a step, mean of its complete steps)"
    if len(shown) < len(ranks):
        title += f"; the {len(shown)} slowest of {len(ranks)} ranks, --json has all"
    columns = ("rank", "step", "compute", "exposed\ncomm", "exposed\ncopy", "idle", "overlap")
    return table(title, columns, [_breakdown_row(row) for row in shown])


def _shown(ranks: list[dict[str, Any]], part: str, most: int) -> list[dict[str, Any]]:
    """Return the ranks that are shown: of more than fit those with the most of a part."""
    most_first = sorted(ranks, key=lambda row: -_mean(row, part))
    return sorted(most_first[: most if len(ranks) > _MOST_RANKS else None], key=lambda row: row["rank"])


def _breakdown_row(row: dict[str, Any]) -> tuple[str, ...]:
    if not row["steps"]:
        return (str(row["rank"]), *["n/a"] * 6)
    parts = [
        f"{milliseconds(_mean(row, part))} {row[part] / max(row['step_ns'], 1):>4.0%}"
        for part in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    ]
    overlap = "n/a" if row["overlap_ratio"] is None else f"{row['overlap_ratio']:.2%}"
    return (str(row["rank"]), milliseconds(_mean(row, "step_ns")), *parts, overlap)


def _idle_table(breakdown: Breakdown) -> list[object]:
    """Return the tables of causes of idle time and of what the hosts did; none where ranks hardly idle."""
    every_rank = rows_of(breakdown, "ranks")
    ranks = {row["rank"]: row for row in _shown(every_rank, "idle_ns", _SHOWN_IDLE_RANKS) if row["steps"]}
    causes = Counter[str]()
    by_rank: dict[int, Counter[str]] = {rank: Counter() for rank in ranks}
    for row in rows_of(breakdown, "idle"):
        if row["rank"] in ranks:
            causes[row["cause"]] += row["total_ns"]
            by_rank[row["rank"]][row["cause"]] += row["total_ns"]
    if causes.total() < _HARDLY * sum(row["step_ns"] for row in ranks.values()):
        return []
    shown = [cause for cause, total_ns in causes.most_common(_SHOWN_CAUSES) if total_ns >= _HARDLY * causes.total()]
    rows = []
    for rank, row in ranks.items():
        rest_ns = row["idle_ns"] - sum(by_rank[rank][cause] for cause in shown)
        times_ns = (row["idle_ns"], *(by_rank[rank][cause] for cause in shown), rest_ns)
        rows.append((str(rank), *(milliseconds(time_ns / row["steps"]) for time_ns in times_ns)))
    names = [_CAUSES.get(cause, cause) for cause in shown]
    title = "Why ranks idle (ms a step, mean of complete steps)"
    if len(ranks) < len(every_rank):
        title += f"; the {len(ranks)} most idle"
    return [*table(title, ("rank", "idle", *names, "rest"), rows), *_places_table(breakdown)]


def _places_table(breakdown: Breakdown) -> list[object]:
    ranks = rows_of(breakdown, "ranks")
    steps, idle_ns = (sum(row[name] for row in ranks) for name in ("steps", "idle_ns"))
    places = [row for row in rows_of(breakdown, "idle_places") if row["total_ns"] >= _HARDLY * idle_ns]
    with_source = any(row["source"] for row in places)
    rows = []
    for row in sorted(places, key=lambda row: -row["total_ns"])[:_SHOWN_PLACES]:
        source = (row["source"] or "",) if with_source else ()
        cause = _CAUSES.get(row["cause"], row["cause"]).replace("\n", " ")
        place = place_text(row["operator"], row["annotation"])
        rows.append((cause, place, *source, milliseconds(row["total_ns"] / steps)))
    if not rows:
        return []
    columns = ("cause", "the host was in", *(("source",) if with_source else ()), "time")
    title = "What hosts did while their ranks idled (ms a step, mean of all ranks)"
    return table(title, columns, rows, left=len(columns) - 1)


def _mean(row: dict[str, Any], part: str) -> float:
    return float(row[part] / row["steps"]) if row["steps"] else 0.0


BREAKDOWN_VIEW = SectionView(
    section=BREAKDOWN_SECTION,
    json=lambda result: {
        "ranks": rows_of(result, "ranks"),
        "steps": rows_of(result, "steps"),
        "idle_causes": rows_of(result, "idle"),
        "idle_places": rows_of(result, "idle_places"),
    },
    text=lambda result, run, width: [*_breakdown_table(result), *_idle_table(result)],
)


def _communication_table(overlap: Overlap) -> list[object]:
    rows = [
        (
            row["kind"],
            row["phase"] or "n/a",
            row["group"] or "n/a",
            f"{row['count']:.3g}",
            "n/a" if row["size_bytes"] is None else file_size(row["size_bytes"]),
            milliseconds(row["total_ns"]),
            milliseconds(row["exposed_ns"]),
            f"{row['worst_rank']}: {milliseconds(row['worst_exposed_ns'])}",
        )
        for row in rows_of(overlap, "by_kind")
    ]
    columns = ("kind", "phase", "group", "count", "size", "total", "exposed", "worst\nrank")
    return table("Communication (ms a step, mean over the ranks that take part)", columns, rows, left=3)


OVERLAP_VIEW = SectionView(
    section=OVERLAP_SECTION,
    json=lambda result: {"communication": rows_of(result, "communication")},
    text=lambda result, run, width: _communication_table(result) if rows_of(result, "by_kind") else [],
)
