"""All checks, by topic.

A check is a function of a job's `Evidence`. It compares one statement of the report with the truth and returns an
`Outcome`, or None where the job has no such statement. To add one, write it in the module of its topic and list it in
`CHECKS` there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.studies.gpu_jobs.checks import (
    clocks,
    collectives,
    communication,
    data_parallel,
    experts,
    lost_records,
    messages,
    pipelines,
    savings,
    step_times,
    verdicts,
)
from benchmarks.studies.gpu_jobs.outcome import Check

__all__ = ["TOPICS", "TOPICS_OF_LOSSES"]

TOPICS: Mapping[str, Sequence[Check]] = {
    "steps": step_times.CHECKS,
    "communication": communication.CHECKS,
    "collectives": collectives.CHECKS,
    "messages": messages.CHECKS,
    "clocks": clocks.CHECKS,
    "data parallel": data_parallel.CHECKS,
    "experts": experts.CHECKS,
    "pipelines": pipelines.CHECKS,
    "verdicts": verdicts.CHECKS,
    "savings": savings.CHECKS,
}
"""Of jobs whose records are all there."""

TOPICS_OF_LOSSES: Mapping[str, Sequence[Check]] = {"lost records": lost_records.CHECKS}
"""Of jobs some of whose records are lost."""
