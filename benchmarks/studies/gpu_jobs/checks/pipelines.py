"""Checks of pipelines: schedule, bubbles, their causes, and how long stages take."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from benchmarks.studies.gpu_jobs.evidence import Evidence
from benchmarks.studies.gpu_jobs.outcome import Check, Outcome, abstained, compare, compare_each, right_if
from tracekit.model.table import rows_of

_POINT = 0.01  # of the time from the first to the last action
_SCHEDULES = {"gpipe": "gpipe", "1f1b": "1f1b", "interleaved": "interleaved1f1b"}
_CAUSES = ("warmup_ns", "drain_ns", "imbalance_ns", "transfer_ns", "late_peer_ns", "other_ns")


def pipeline_is_recognised(evidence: Evidence) -> Outcome | None:
    """There is a section on the pipeline, with its stages and microbatches."""
    if evidence.spec.pp < 2:
        return None
    spec = evidence.spec
    expected = (spec.pp * spec.virtual_stages, spec.virtual_stages, spec.microbatches, spec.dp * spec.tp)
    pipeline = evidence.report.pipeline
    if pipeline is None:
        return abstained(expected, evidence.report.unavailable.get("pipeline"))
    seen = (pipeline.stages, pipeline.virtual_stages, pipeline.microbatches, pipeline.pipelines)
    return right_if(seen == expected, *(f"stages, of a rank, microbatches, pipelines: {v}" for v in (seen, expected)))


def schedule(evidence: Evidence) -> Outcome | None:
    """The name of the schedule."""
    if evidence.spec.pp < 2:
        return None
    expected = _SCHEDULES[evidence.spec.schedule]
    pipeline = evidence.report.pipeline
    if pipeline is None or pipeline.schedule == "unknown":
        return abstained(expected)
    return right_if(pipeline.schedule == expected, pipeline.schedule, expected)


def bubble_ratio(evidence: Evidence) -> Outcome | None:
    """The bubbles as a share of the pipeline's time, within one point."""
    if evidence.truth.bubble_ratio is None:
        return None
    pipeline = evidence.report.pipeline
    if pipeline is None or pipeline.bubble_ratio is None:
        return abstained(evidence.truth.bubble_ratio)
    return compare(pipeline.bubble_ratio, evidence.truth.bubble_ratio, within=_POINT)


def bubbles_of_ranks(evidence: Evidence) -> Outcome | None:
    """The bubble of each rank as a share of its pipeline's time, within one point."""
    if evidence.truth.bubble_ratio is None:
        return None
    span_ns = _spans_ns(evidence)
    expected: dict[Hashable, float] = {
        rank: bubble_ns / span_ns[rank] for rank, bubble_ns in enumerate(evidence.truth.bubble_ns)
    }
    pipeline = evidence.report.pipeline
    if pipeline is None:
        return abstained(expected)
    seen: dict[Hashable, float | None] = {row["rank"]: row["bubble_ratio"] for row in rows_of(pipeline, "by_rank")}
    return compare_each(seen, expected, within=_POINT)


def causes_sum_to_the_bubble(evidence: Evidence) -> Outcome | None:
    """The causes of each rank's bubble add up to it."""
    if evidence.spec.pp < 2:
        return None
    pipeline = evidence.report.pipeline
    rows = [] if pipeline is None else rows_of(pipeline, "by_rank")
    if not rows or any(row[cause] is None for row in rows for cause in _CAUSES):
        return abstained("causes of all bubbles")
    seen: dict[Hashable, float | None] = {row["rank"]: sum(row[cause] for cause in _CAUSES) for row in rows}
    expected: dict[Hashable, float] = {row["rank"]: row["bubble_ns"] for row in rows}
    return compare_each(seen, expected, within=0)


def times_of_stages(evidence: Evidence) -> Outcome | None:
    """The mean time of each stage for a microbatch, forward and backward, within 3 %."""
    every: dict[Hashable, list[int]] = defaultdict(list)
    for action in evidence.truth.actions:
        every[action.stage, action.kind].append(action.end_ns - action.start_ns)
    if not every:
        return None
    expected = {key: statistics.fmean(values) for key, values in every.items()}
    pipeline = evidence.report.pipeline
    if pipeline is None:
        return abstained(expected)
    seen: dict[Hashable, float | None] = {
        (row["stage"], row["kind"]): row["mean_ns"] for row in rows_of(pipeline, "by_stage")
    }
    return compare_each(seen, expected, within=5_000, share=0.03)


def heaviest_stage(evidence: Evidence) -> Outcome | None:
    """The uneven stage is the one that has more layers, and there is none in an even pipeline."""
    if evidence.spec.pp < 2:
        return None
    defect = evidence.spec.defect
    if defect is not None and defect.cause != "uneven_stage":
        return None
    expected = None if defect is None else defect.stage
    pipeline = evidence.report.pipeline
    if pipeline is None:
        return abstained(expected)
    seen: Any = pipeline.uneven_stage
    return right_if((None if seen is None else seen.stage) == expected, seen and seen.stage, expected)


CHECKS: tuple[Check, ...] = (
    pipeline_is_recognised,
    schedule,
    bubble_ratio,
    bubbles_of_ranks,
    causes_sum_to_the_bubble,
    times_of_stages,
    heaviest_stage,
)


def _spans_ns(evidence: Evidence) -> dict[int, float]:
    """Return the mean time from the first to the last action of each rank's pipeline in a step."""
    spec = evidence.spec
    bounds: dict[tuple[int, int, int], list[int]] = {}
    for action in evidence.truth.actions:
        _, dp, tp = spec.coordinates(action.rank)
        span = bounds.setdefault((dp, tp, action.step), [action.start_ns, action.end_ns])
        span[:] = [min(span[0], action.start_ns), max(span[1], action.end_ns)]
    mean_ns: dict[tuple[int, int], float] = {}
    for place in {key[:2] for key in bounds}:
        mean_ns[place] = statistics.fmean(end - start for key, (start, end) in bounds.items() if key[:2] == place)
    return {rank: mean_ns[spec.coordinates(rank)[1:]] for rank in range(spec.ranks)}
