"""Windows of one rank are merged into one summary: no field and no part of a later window is lost."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.exchanges import WORLD, actions, rank, send
from tests.unit.loading.merged_parts import assert_merged_from_both, assert_not_lost
from tracekit.explain.communication.tables import (
    COMMUNICATION_SUMS,
    GROUP_TIMES,
    CommunicationSum,
    GroupTime,
)
from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.ddp.tables import (
    BUCKET_REDUCTIONS,
    DDP_MODULES,
    DDP_PASSES,
    EARLY_REDUCTIONS,
    GRADIENT_TIMES,
    MANUAL_GRADIENT_TIMES,
    MANUAL_REDUCTIONS,
    DdpModules,
    DdpPasses,
    EarlyReductions,
    GradientTimes,
    ManualReductions,
)
from tracekit.explain.diagnosis.tables import PHASE_ACTIVITIES
from tracekit.explain.fsdp.tables import FSDP_GATHERS, FSDP_REGATHERS, FSDP_UNITS, FsdpSum
from tracekit.explain.kernels.by_name import KERNEL_TIMES, OPERATOR_TIMES, OperationSums, OperationTimes
from tracekit.explain.kernels.by_shape import SHAPE_SUMS, ShapeSum, ShapeSums
from tracekit.explain.model_parallel.tables import (
    EXPERT_COMMUNICATION_SUMS,
    EXPERT_EXCHANGES,
    LAYERS,
    ExpertCommunicationSum,
    ExpertExchangeSum,
    TensorSum,
)
from tracekit.explain.pauses.tables import PAUSE_TIMES
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.sections import ALL_PARTS, SECTIONS
from tracekit.explain.step_time.tables import (
    FLOPS,
    IDLE_SUMS,
    LAUNCH_CALLS,
    MEMORY_USE,
    NAMED_WAITS,
    PHASE_SUMS,
    RECORDING_COST,
    UNCLASSIFIED_KERNELS,
    FlopSum,
    FlopSums,
    HostLocation,
    IdleSum,
    LaunchCalls,
    NamedWait,
    PhasePart,
    PhaseSums,
    RecordingCost,
    UnclassifiedKernel,
)
from tracekit.explain.step_time.timelines import STEP_TIMELINES
from tracekit.explain.stragglers.clock_rates import CLOCK_RATES, ClockRate
from tracekit.explain.stragglers.host_causes import HOST_TIMES
from tracekit.explain.whatif.tables import EXCHANGES, INTERRUPTIONS, LAUNCH_INTERVALS
from tracekit.loading.summarize import merge_recordings, without_repeated_steps
from tracekit.model.columnar import Columnar
from tracekit.model.communication import FlightRecorderMatch
from tracekit.model.metadata import (
    ClockMeasurement,
    DdpModule,
    MemoryUse,
    Mesh,
    PipelineLayout,
    Settings,
)
from tracekit.model.notes import Note
from tracekit.model.summary import Part, PipelineMembership, RankSummary
from tracekit.rank.recorded_steps import FLIGHT_RECORDER, STEP_ENDS, WAITS

DDP = DdpModule(module="model", bucket_cap_bytes=None, static_graph=False, find_unused=False, rebuilt=True, buckets=[])


KERNEL_OF_SHAPE = ShapeSum(
    phase="forward",
    module="layers.*",
    operator="aten::mm",
    shapes="4x6, 6x5",
    dtype="float32",
    kernel="gemm",
    kind="compute",
    count=2,
    total_ns=9,
    flops=240,
    size_bytes=296,
)


def one_row(table: type[Columnar]) -> Columnar:
    empty = table.empty()
    columns: dict[str, Any] = {
        field.name: np.ones(1, dtype=getattr(empty, field.name).dtype)
        for field in fields(empty)  # type: ignore[arg-type]
    }
    return table(**columns)


# For each part a value that is not empty, for the later of two windows.
LATER: dict[Part[Any], Any] = {
    COMMUNICATION_SUMS: (
        CommunicationSum(group=WORLD, kind="all_reduce", phase=None, count=1, size_bytes=8, total_ns=5, exposed_ns=3),
    ),
    GROUP_TIMES: (GroupTime(group=WORLD, messages=False, total_ns=7, exposed_ns=3),),
    CONFIGURATION: (Settings(component="fsdp2", modules=["layer"], values={"reshard_after_forward": True}),),
    DDP_MODULES: DdpModules(modules=(DDP,), inferred=True),
    DDP_PASSES: DdpPasses(forwards=3),
    EARLY_REDUCTIONS: one_row(EarlyReductions),
    MANUAL_REDUCTIONS: one_row(ManualReductions),
    MANUAL_GRADIENT_TIMES: one_row(GradientTimes),
    FSDP_UNITS: (
        FsdpSum(
            module="layer",
            unit_bytes=None,
            shards=None,
            phase=None,
            kind="all_gather",
            count=1,
            size_bytes=None,
            exposed_ns=9,
            ahead_count=0,
            ahead_ns=0,
        ),
    ),
    LAYERS: (
        TensorSum(
            module="layer", parallelism="tp", phase=None, kind="all_reduce", count=1, size_bytes=None, exposed_ns=9
        ),
    ),
    EXPERT_EXCHANGES: (ExpertExchangeSum(group=None, module=None, step=5, received_bytes=6, uncovered_ns=1),),
    EXPERT_COMMUNICATION_SUMS: (
        ExpertCommunicationSum(
            group=None,
            direction="dispatch",
            phase=None,
            microbatch=3,
            count=1,
            size_bytes=None,
            total_ns=5,
            overlapped_ns=2,
            exposed_ns=2,
        ),
    ),
    PHASE_SUMS: PhaseSums(
        parts=tuple(
            PhasePart(phase=phase, total_ns=4, compute_ns=4, exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=0)
            for phase in ("data", "forward", "backward", "optimizer", "other")
        )
    ),
    FLOPS: FlopSums(rows=(FlopSum(dtype="float32", recomputed=False, count=1, flops=10),)),
    MEMORY_USE: MemoryUse(parameter_bytes=1, gradient_bytes=2, optimizer_bytes=3, peak_bytes=4),
    RECORDING_COST: RecordingCost(per_step_ns=11, steps=2, options=("with_stack",)),
    IDLE_SUMS: (
        IdleSum(
            cause="synchronisation",
            total_ns=9,
            locations=(HostLocation(operator="aten::item", annotation=None, source="train.py(3): step", total_ns=8),),
        ),
    ),
    NAMED_WAITS: (NamedWait(what="remote calls", total_ns=13),),
    LAUNCH_CALLS: (LaunchCalls(api="cuda", count=9, behind=8),),
    UNCLASSIFIED_KERNELS: (UnclassifiedKernel(pattern="exchange", kind="unknown", count=2, total_ns=7),),
    CLOCK_RATES: (ClockRate(name="SM clock", total=3000.0, count=2),),
    FLIGHT_RECORDER: FlightRecorderMatch(recorded=4),
    ACTIONS: actions(("F", 0, 0, 10)),
    KERNEL_TIMES: OperationTimes(steps=2, sums=one_row(OperationSums)),  # type: ignore[arg-type]
    OPERATOR_TIMES: OperationTimes(steps=2, sums=one_row(OperationSums)),  # type: ignore[arg-type]
    SHAPE_SUMS: ShapeSums(steps=2, rows=(KERNEL_OF_SHAPE,)),
} | {
    part: one_row(part.type)
    for part in (
        *(BUCKET_REDUCTIONS, GRADIENT_TIMES, FSDP_GATHERS, FSDP_REGATHERS, STEP_ENDS, WAITS, PHASE_ACTIVITIES),
        *(LAUNCH_INTERVALS, INTERRUPTIONS, EXCHANGES, PAUSE_TIMES, HOST_TIMES, STEP_TIMELINES),
    )
}


def test_every_part_is_tested() -> None:
    """A part that a door's section keeps is tested with the door."""
    makers = {part.name: make for section in SECTIONS.values() for part, make in section.keeps.items()}
    of_doors = {
        name for name, make in makers.items() if not make.__module__.startswith(("tracekit.explain.", "tracekit.rank."))
    }
    assert {part.name for part in LATER} == ALL_PARTS.keys() - of_doors


@pytest.mark.parametrize("part", LATER, ids=lambda part: part.name)
def test_a_part_that_only_a_later_window_has_is_not_lost(part: Part[Any]) -> None:
    assert_not_lost(part, LATER[part])


@pytest.mark.parametrize("part", LATER, ids=lambda part: part.name)
def test_a_part_that_two_windows_have_is_merged_from_both(part: Part[Any]) -> None:
    assert_merged_from_both(part, LATER[part])


LAYOUT = PipelineLayout(schedule="1f1b", stages=2, virtual_stages=1, microbatches=4, stage_ids=[0])
CLOCK = ClockMeasurement(reference_rank=None, method="none", samples=[])
FIRST_STEPS = rank(0, steps=(5, 9)).steps
# For each field the values of the first and of the later window, and the value of the merged summary.
FIELDS: dict[str, tuple[Any, Any, Any]] = {
    "rank": (0, 0, 0),
    "world_size": (None, 8, 8),
    "files": (("a",), ("b",), ("a", "b")),
    "run_id": (None, "run-2", "run-2"),
    "attempt": (1, 1, 1),
    "host": (None, "node7", "node7"),
    "host_id": (None, "id", "id"),
    "process_id": (None, 4000, 4000),
    "device": ("gpu", "gpu", "gpu"),
    "device_name": (None, "H100", "H100"),
    "serves_only": (True, False, False),
    "unmeasured": ("no kernels", None, None),
    "strategies": (("ddp",), ("pp",), ("ddp", "pp")),
    "strategies_inferred": (False, True, True),
    "mesh": (None, Mesh(names=["dp"], shape=[2], coordinate=[0]), Mesh(names=["dp"], shape=[2], coordinate=[0])),
    "pipeline": (None, PipelineMembership(layout=LAYOUT), PipelineMembership(layout=LAYOUT)),
    "clock": (None, CLOCK, CLOCK),
    "has_backward": (False, True, True),
    "steps_from": ("spans", "spans", "spans"),
    "first_step": (2, 2, 2),
    "recorded_steps": ((5,), (9,), (5, 9)),
    "left_out": (FIRST_STEPS[:1], FIRST_STEPS[1:], FIRST_STEPS),
    "event_count": (3, 4, 7),
    "first_event_ns": (None, 50, 50),
    "profiler_options": ((), ("with_stack",), ("with_stack",)),
    "notes": ((), (Note(id="limit", severity="info", text="x"),), (Note(id="limit", severity="info", text="x"),)),
}
BY_THEIR_OWN_TESTS = {"groups", "steps", "collectives", "messages", "parts"}


def test_every_field_is_tested() -> None:
    assert FIELDS.keys() | BY_THEIR_OWN_TESTS == {field.name for field in fields(RankSummary)}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_merged(field: str) -> None:
    first, second, expected = FIELDS[field]

    merged = merge_recordings([replace(rank(0), **{field: first}), replace(rank(0), **{field: second})])

    assert getattr(merged, field) == expected


def test_steps_groups_and_messages_come_from_all_windows() -> None:
    other = replace(WORLD, description="tp")
    first = replace(rank(0, [send(1, 30)], steps=(5,)), groups=(WORLD,))
    second = replace(rank(0, [send(2, 60, step=9)], steps=(9,)), groups=(other, WORLD))

    merged = merge_recordings([first, second])

    assert [step.step for step in merged.steps] == [5, 9]
    assert merged.groups == (WORLD, other)
    assert merged.messages.peer.tolist() == [1, 2]
    assert merged.messages.group.tolist() == [0, 1]


def test_fields_that_must_be_the_same_and_differ_give_a_note() -> None:
    merged = merge_recordings([rank(0, world_size=4), rank(0, world_size=2)])

    assert merged.world_size == 2
    assert [note.text for note in merged.notes] == [
        "rank 0: its recordings name more than one world size; the latest is taken"
    ]


def test_of_two_recordings_with_a_step_in_common_the_newer_one_counts() -> None:
    """GIVEN windows of steps 3-4, 4-5 and 8, in any order THEN the second one replaces the first, as a note says."""
    windows = [
        replace(rank(1, steps=steps, files=(f"run/{name}.json",)), first_event_ns=first_ns)
        for first_ns, name, steps in ((10, "a", (3, 4)), (20, "b", (4, 5)), (30, "c", (8,)))
    ]
    for ordered in (windows, windows[::-1]):
        kept, notes = without_repeated_steps(ordered)
        assert kept == [window for window in ordered if window is not windows[0]]
        (note,) = notes
        assert (note.id, note.severity, note.rank, note.file) == ("duplicate-rank", "warning", 1, "a.json")
        assert note.text == "rank 1: a.json: step 4 is in b.json, too, which is newer; a.json is left out"
    assert without_repeated_steps(windows[1:]) == (windows[1:], [])
