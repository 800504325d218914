"""Which columns the tables of the critical path and of step causes have, and what is kept of each rank for them.

A rank keeps how long it did what in each interval of one phase.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import table_part
from tracekit.model.table import RANK, Column, Display, Table
from tracekit.rank.idle_causes import IDLE_CAUSES

_CAUSE_NAMES = {
    "variation": "jitter",
    "warmup": "pipeline warm-up",
    "drain": "pipeline drain",
    "imbalance": "uneven stages",
    "late_peer": "late peers",
    "other": "other idle time",
}

CRITICAL_PATH = Table(
    "critical_path",
    (
        RANK,
        Column("kind", "str", "", "communication, compute, copy, or the cause of idle time.", form="words"),
        Column("name", "str", "", "Operation and group of communication; of other kinds, what they led to."),
        Column("total_ns", "int", "ns", "Time on the chain that bounds the steps, over the counted steps."),
        Column("share", "float", "ratio", "The time as a share of the chain."),
    ),
    Display(
        "Critical path over all ranks, by rank (ms a step)",
        "rank | what=kind | where=name | time={total_ns/steps} | share",
        most=6,
        bars="time={total_ns/steps}",
        least="share",
    ),
)
CAUSES = Table(
    "causes",
    (
        Column("cause", "str", "", "What the time of the mean step goes to; docs/definitions.md, Diagnosis."),
        Column("ranks", "list[int]", "", "The ranks that are the cause; empty if it is on no rank in particular."),
        Column("group", "str?", "", "The process group of a transfer."),
        Column("kind", "str?", "", "The kind of communication of a transfer."),
        Column("phase", "str?", "", "The phase that it is in."),
        Column("module", "str?", "", "The stage of a pipeline, as stage 2."),
        Column("time_ns", "int", "ns", "Its time in the mean step; all rows sum to the step."),
    ),
    Display(
        "Critical path: where the {step_ns} ms go",
        "cause | where | time_ns | share",
        most=8,
        bars="time_ns",
        least="share",
    ),
)

ACTIVITIES = ("compute", "copy", *IDLE_CAUSES)
"""What a rank does when it does not wait in communication: it computes or copies, or is idle for a cause."""


def cause_name(cause: str) -> str:
    """Return what a cause of the step is called: most by their own name, others as those say who know pipelines."""
    return _CAUSE_NAMES.get(cause, cause.replace("_", " "))


@dataclass(frozen=True, kw_only=True, eq=False)
class PhaseActivities(Columnar):
    """n times that a rank spent on one activity in one interval of a phase, in order of the intervals.

    Attributes:
        begin_ns: when the interval begins, on the rank's wall clock, int64 [n].
        end_ns: when it ends; intervals do not overlap, int64 [n].
        phase: index into `STEP_PHASES`, int32 [n].
        activity: index into `ACTIVITIES`, int32 [n].
        time_ns: more than 0, int64 [n].
    """

    begin_ns: Int64
    end_ns: Int64
    phase: Int32
    activity: Int32
    time_ns: Int64


PHASE_ACTIVITIES = table_part("phase_activities", PhaseActivities)
