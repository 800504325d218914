"""Which columns the tables of pipelines have, and what is kept of each rank's pipeline for them: one action a row."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.model.columnar import Columnar
from tracekit.model.events import Int32, Int64
from tracekit.model.summary import table_part
from tracekit.model.table import RANK, Column, Display, Table

PIPELINE_STAGES = Table(
    "pipeline_stages",
    (
        Column("stage", "int", "", "Number of the stage, from 0."),
        Column("kind", "str", "", "F forward, B backward, I its input gradient and W its weight gradient, if split."),
        Column("count", "int", "", "Actions in the steps that all ranks completed."),
        Column("mean_ns", "int", "ns", "Mean time of one, without waiting for a receive."),
    ),
)
PIPELINE_RANKS = Table(
    "pipeline_ranks",
    (
        RANK,
        Column("stages", "list[int]", "", "Its stages."),
        Column("busy_ns", "int", "ns", "Time covered by its actions in the steps that all ranks completed."),
        Column("bubble_ns", "int?", "ns", "The rest of the time from the pipeline's first to its last action."),
        Column("bubble_ratio", "float?", "ratio", "Bubble by that time; null where ranks or clocks are missing."),
        Column("warmup_ns", "int?", "ns", "Idle before its first backward if actions of a kind were alike."),
        Column("drain_ns", "int?", "ns", "Idle after its first backward, likewise."),
        Column("imbalance_ns", "int?", "ns", "What stages that take longer or shorter add to that."),
        Column("transfer_ns", "int?", "ns", "What typical transfers between stages add."),
        Column("late_peer_ns", "int?", "ns", "What the measured length of every action and transfer adds."),
        Column("other_ns", "int?", "ns", "The rest of the bubble; the six causes sum to it."),
    ),
    Display(
        "Bubbles by cause (ms a step; {of_time} of the pipeline's time{more})",
        "rank | {bubble_ns/steps} {bubble_ratio} | warm-up={warmup_ns/steps} | drain={drain_ns/steps} "
        "| uneven stages={imbalance_ns/steps} | transfer={transfer_ns/steps} "
        "| late peers={late_peer_ns/steps} | other={other_ns/steps}",
        most=16,
    ),
)
PIPELINE_ACTIONS = Table(
    "pipeline_actions",
    (
        RANK,
        Column("step", "int", "", "Number of the step, as recorded."),
        Column("stage", "int", "", "Number of the stage, from 0."),
        Column("microbatch", "int", "", "Number of the microbatch, from 0."),
        Column("kind", "str", "", "F, B, I or W."),
        Column("start_ns", "int", "ns", "On the run's clock."),
        Column("end_ns", "int", "ns", "On the run's clock."),
        Column("wait_ns", "int", "ns", "How much of it was waiting for a receive."),
    ),
)
PIPELINE_WHATIF = Table(
    "pipeline_whatif",
    (
        Column("what", "str", "", "A change of the pipeline, such as its schedule, in words."),
        Column("saves_ns_per_step", "int", "ns", "How much shorter the mean step would be, by a replay."),
        Column("error_ns", "int", "ns", "What that may be off."),
        Column("share", "float", "ratio", "The saving as a share of the time from the first to the last action."),
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Actions(Columnar):
    """n actions of one rank, in order of time.

    Attributes:
        step: int64 [n], as recorded.
        stage: int32 [n]; -1 in a pipeline written by hand until all ranks together tell it.
        microbatch: int32 [n].
        kind: int32 [n], index into `ACTION_KINDS`.
        issue_ns: int64 [n], when the host began it, on the rank's wall clock.
        start_ns: int64 [n], on the rank's wall clock; on a GPU rank of the first kernel.
        end_ns: int64 [n], on the rank's wall clock; on a GPU rank of the last kernel.
        wait_ns: int64 [n], how long of it was no work: waiting for a receive, or the time between its parts.
        idle_ns: int64 [n], how long of its work a GPU did nothing, because the host had not launched what comes next.
        other_ns: int64 [n], how long the rank computed or copied other things, was in a collective, or was blocked in
            a send behind its last receive, since the action before or the step's beginning.
        data_ns: int64 [n], how long it loaded data, and computed nothing, since then.
    """

    step: Int64
    stage: Int32
    microbatch: Int32
    kind: Int32
    issue_ns: Int64
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    idle_ns: Int64
    other_ns: Int64
    data_ns: Int64

    @property
    def work_ns(self) -> Int64:
        """How long each action took without waiting, int64 [n]."""
        return self.end_ns - self.start_ns - self.wait_ns


ACTIONS = table_part("actions", Actions)
