"""Which sections a step's time has: breakdown, phases, memory, roofline.

Memory is parameters, gradients, optimizer state and the peak of each rank. The capture counts them as its last window
closes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.section import Section
from tracekit.explain.step_time import tables
from tracekit.explain.step_time.blocking_launches import launch_calls
from tracekit.explain.step_time.breakdown import Breakdown, breakdown
from tracekit.explain.step_time.flops import flop_sums
from tracekit.explain.step_time.idle import idle_sums
from tracekit.explain.step_time.phases import StepPhases, phase_sums, step_phases
from tracekit.explain.step_time.roofline import Roofline, roofline, unclassified_kernels
from tracekit.explain.step_time.tables import (
    FLOPS,
    IDLE_SUMS,
    LAUNCH_CALLS,
    MEMORY_USE,
    NAMED_WAITS,
    PHASE_SUMS,
    RECORDING_COST,
    UNCLASSIFIED_KERNELS,
    RecordingCost,
)
from tracekit.explain.step_time.timelines import STEP_TIMELINES, step_timelines
from tracekit.findings.finding import Finding
from tracekit.model.metadata import MemoryUse
from tracekit.model.run import Run
from tracekit.model.table import Frame
from tracekit.rank.recorded_steps import RecordedSteps


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The memory of all ranks.

    Attributes:
        ranks: rows of tables.MEMORY; a rank of which nothing is known has no row.
    """

    ranks: Frame = Frame(tables.MEMORY)
    findings: tuple[Finding, ...] = ()


def memory(run: Run) -> Memory:
    rows = [
        tables.MEMORY.row(use, rank=summary.rank) for summary in run.ranks if (use := summary[MEMORY_USE]) is not None
    ]
    return Memory(ranks=rows)


def _memory(recorded: RecordedSteps) -> MemoryUse | None:
    metadata = recorded.trace.header.metadata
    return None if metadata is None else metadata.memory


def _recording_cost(recorded: RecordedSteps) -> RecordingCost | None:
    metadata = recorded.trace.header.metadata
    cost = None if metadata is None else metadata.overhead
    if cost is None or cost.per_step_ns is None:
        return None
    steps = len(recorded.lanes.windows)
    return RecordingCost(per_step_ns=cost.per_step_ns, steps=steps, options=tuple(cost.options))


PHASES_SECTION: Section[StepPhases] = Section(
    name="phases",
    reads=(PHASE_SUMS,),
    keeps={PHASE_SUMS: phase_sums},
    analyze=lambda given: step_phases(given.run),
    tables=(tables.PHASES, tables.PHASES_BY_PHASE, tables.PHASE_FACTS),
)


BREAKDOWN_SECTION: Section[Breakdown] = Section(
    name="breakdown",
    reads=(CONFIGURATION, IDLE_SUMS, LAUNCH_CALLS, NAMED_WAITS, STEP_TIMELINES, UNCLASSIFIED_KERNELS),
    keeps={
        IDLE_SUMS: idle_sums,
        LAUNCH_CALLS: launch_calls,
        RECORDING_COST: _recording_cost,
        STEP_TIMELINES: step_timelines,
        UNCLASSIFIED_KERNELS: unclassified_kernels,
    },
    analyze=lambda given: breakdown(given.run),
    tables=(tables.RANKS, tables.STEPS, tables.IDLE, tables.IDLE_LOCATIONS),
)


MEMORY_SECTION: Section[Memory] = Section(
    name="memory",
    reads=(MEMORY_USE,),
    keeps={MEMORY_USE: _memory},
    analyze=lambda given: memory(given.run),
    tables=(tables.MEMORY,),
)


ROOFLINE_SECTION: Section[Roofline] = Section(
    name="roofline",
    reads=(FLOPS,),
    keeps={FLOPS: flop_sums},
    analyze=lambda given: roofline(given.run, given.known_work),
    tables=(tables.ROOFLINE,),
)
