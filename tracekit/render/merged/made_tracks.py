"""The tracks that tracekit adds to a rank's page.

Comes in: the rank's `RankPlan`, and the lanes of its recordings. Goes out: `MadeTrack`s, in the order to show them.
Their slices are on the run's clock, in the category `CATEGORY`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analysis.align import ends_on_run_clock, on_run_clock
from tracekit.analysis.lanes import Lanes
from tracekit.analysis.phases import PHASES, PhaseTimeline
from tracekit.analysis.summarize import StepSelection
from tracekit.model.actions import ACTION_KINDS
from tracekit.model.bucket_runs import WHOLE
from tracekit.model.columnar import Columnar
from tracekit.model.communication import DTYPES, KINDS, GroupKey
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import ClockModel
from tracekit.render.merged.plan import RankPlan
from tracekit.render.merged.slices import ROLES, Argument, Flows, Slices

__all__ = ["CATEGORY", "MADE_GROUP", "MadeTrack", "group_label", "tracks_of_rank", "tracks_of_recording"]

CATEGORY = "tracekit"
"""Category of the slices that tracekit adds; all others are the input's."""

MADE_GROUP = "analysis"
"""What these tracks are under, on each page."""

_COLLECTIVE_IDS, _MESSAGE_IDS, _LATE_IDS, _CHAIN_IDS = (kind << 60 for kind in (1, 2, 3, 4))


@dataclass(frozen=True, kw_only=True, eq=False)
class MadeTrack:
    name: str
    slices: Slices


def tracks_of_recording(
    lanes: Lanes, phases: PhaseTimeline, clock: ClockModel, chosen: StepSelection
) -> Iterator[MadeTrack]:
    """Steps, phases and the parts of the steps that count: complete, and chosen. The sums of `compute`,
    `communication`, `exposed communication`, `exposed copies` and `idle` are the report's numbers.
    """
    windows = lanes.windows
    counted = windows.complete & np.array([chosen.whole or int(step) in chosen for step in windows.step])
    done = zip(windows.step.tolist(), windows.complete.tolist(), strict=True)
    names = [f"step {step}{'' if complete else ' (incomplete)'}" for step, complete in done]
    said = (_number("step", windows.step), _number("complete", windows.complete.astype(np.int64)))
    yield _track("steps", names, windows.start_ns, windows.end_ns, clock, said)
    change_ns = phases.change_ns[phases.change_ns < windows.host_end_ns]
    ends_ns = np.append(change_ns[1:], windows.host_end_ns)[: len(change_ns)]
    yield _track("phases", [PHASES[phase] for phase in phases.phase[: len(change_ns)]], change_ns, ends_ns, clock)
    inside = Intervals.union_of(windows.start_ns[counted], windows.end_ns[counted])
    busy = lanes.compute | lanes.communication | lanes.copy
    for name, intervals in (
        ("compute", lanes.compute & inside),
        ("communication", lanes.communication & inside),
        ("exposed communication", lanes.exposed_communication & inside),
        ("exposed copies", lanes.exposed_copy & inside),
        ("idle", inside - busy),
    ):
        yield _track(name, [name] * len(intervals), intervals.start_ns, intervals.end_ns, clock)


def tracks_of_rank(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    """What is known of the rank as a whole: its pipeline, collectives, messages, buckets, waits and clock."""
    yield from _bubbles(plan, chosen)
    yield from _actions(plan, chosen)
    yield from _buckets(plan, chosen)
    yield from _collectives(plan, chosen)
    yield from _messages(plan, chosen)
    yield from _waits(plan)
    yield from _clock(plan)


def _bubbles(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    """Between the actions of a step of the pipeline; waiting inside actions is their `wait_ns`."""
    spans, actions = plan.pipeline, plan.summary.actions
    names: list[str] = []
    steps: list[int] = []
    found: list[Intervals] = []
    start_ns, end_ns = on_run_clock(actions.start_ns, plan.clock), on_run_clock(actions.end_ns, plan.clock)
    for step, from_ns, until_ns in zip(*(c.tolist() for c in (spans.step, spans.start_ns, spans.end_ns)), strict=True):
        if not (chosen.whole or step in chosen):
            continue
        rows = actions.step == step
        gaps = Intervals.union_of(start_ns[rows], end_ns[rows]).gaps(from_ns, until_ns)
        first_ns, last_ns = start_ns[rows].min(), end_ns[rows].max()
        for begin_ns, finish_ns in zip(gaps.start_ns.tolist(), gaps.end_ns.tolist(), strict=True):
            names.append("warmup" if finish_ns <= first_ns else "drain" if begin_ns >= last_ns else "wait")
            steps.append(step)
        found.append(gaps)
    if found:
        columns = (np.concatenate([each.start_ns for each in found]), np.concatenate([each.end_ns for each in found]))
        said = (_number("step", np.array(steps, dtype=np.int64)),)
        yield MadeTrack(name="bubble", slices=Slices.named(names, *columns, category=CATEGORY, arguments=said))


def _actions(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    actions = plan.summary.actions
    actions = actions.rows(_in_steps(actions.step, chosen))
    for stage in np.unique(actions.stage).tolist():
        own = actions.rows(actions.stage == stage)
        kinds = [ACTION_KINDS[kind] for kind in own.kind.tolist()]
        names = [f"{kind}{batch}" for kind, batch in zip(kinds, own.microbatch.tolist(), strict=True)]
        arguments = [_number(name, getattr(own, name)) for name in ("stage", "microbatch", "step", "wait_ns")]
        track = "actions" if stage == ABSENT else f"actions · stage {stage}"
        yield _track(track, names, own.start_ns, own.end_ns, plan.clock, arguments, {"kind": kinds})


def _buckets(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    runs = plan.summary.bucket_runs
    runs = runs.rows(_in_steps(runs.step, chosen))
    if not len(runs):
        return
    modules = [plan.summary.ddp[place].module for place in runs.module.tolist()]
    names = ["all gradients" if index == WHOLE else f"bucket {index}" for index in runs.index.tolist()]
    arguments = [
        _number("bucket", runs.index),
        *(_number(name, getattr(runs, name)) for name in ("step", "size_bytes", "exposed_ns")),
        *(_number(name, on_run_clock(getattr(runs, name), plan.clock)) for name in ("ready_ns", "launch_ns")),
    ]
    yield _track("buckets", names, runs.start_ns, runs.end_ns, plan.clock, arguments, {"module": modules})


def _collectives(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    every, groups = plan.summary.collectives, plan.summary.groups
    within = _in_steps(every.step, chosen)
    for group in np.unique(every.group[within]).tolist():
        rows = np.flatnonzero(within & (every.group == group))
        own = every.rows(rows)
        kinds = [KINDS[kind] for kind in own.kind.tolist()]
        label = group_label(groups, group)
        dtypes = ["" if dtype == ABSENT else DTYPES[dtype] for dtype in own.dtype.tolist()]
        instance = plan.instance[rows]
        said = {"size_bytes": own.size_bytes, "sequence": own.sequence, "step": own.step, "instance": instance}
        texts = {"kind": kinds, "group": [label] * len(rows), "dtype": dtypes}
        flows = [Flows(ids=_ids(_COLLECTIVE_IDS, instance), role=plan.instance_role[rows])]
        arguments = [_number(name, values) for name, values in said.items()]
        yield _track(f"collectives · {label}", kinds, own.start_ns, own.end_ns, plan.clock, arguments, texts, flows)


def _messages(plan: RankPlan, chosen: StepSelection) -> Iterator[MadeTrack]:
    every = plan.summary.messages
    rows = np.flatnonzero(_in_steps(every.step, chosen) & (every.start_ns != ABSENT) & (every.end_ns != ABSENT))
    if not len(rows):
        return
    own, number = every.rows(rows), plan.message[rows]
    names = [f"{'send to' if sent else 'recv from'} {peer}" for sent, peer in zip(own.is_send, own.peer, strict=True)]
    said = {"peer": own.peer, "is_send": own.is_send, "tag": own.tag, "size_bytes": own.size_bytes, "step": own.step}
    flows = [Flows(ids=_ids(_MESSAGE_IDS, number), role=plan.message_role[rows])]
    groups = [group_label(plan.summary.groups, group) for group in own.group.tolist()]
    arguments = [_number(name, values.astype(np.int64)) for name, values in said.items()]
    yield _track("point to point", names, own.start_ns, own.end_ns, plan.clock, arguments, {"group": groups}, flows)


def _waits(plan: RankPlan) -> Iterator[MadeTrack]:
    """An arrow leads from the ranks that wait to the one that is late; and to there from its own wait before, if that
    is what made it late. Times are on the run's clock already."""
    waits, late = plan.waits, plan.late
    if len(waits):
        slices = Slices.named(
            [f"waits for rank {rank}" for rank in waits.blamed_rank.tolist()],
            waits.start_ns,
            waits.end_ns,
            category=CATEGORY,
            arguments=[_number("blamed_rank", waits.blamed_rank), _number("instance", waits.instance)],
            flows=[
                Flows(ids=_ids(_LATE_IDS, waits.instance), role=waits.role),
                Flows(ids=_ids(_CHAIN_IDS, waits.leads_to), role=_every("begins", waits)),
            ],
        )
        yield MadeTrack(name="waits", slices=slices)
    if len(late):
        host_ns = late.excess_ns - late.compute_ns - late.data_ns
        said = {"instance": late.instance, "late_ns": late.end_ns - late.start_ns, "excess_ns": late.excess_ns}
        said |= {"excess_compute_ns": late.compute_ns, "excess_data_ns": late.data_ns, "excess_host_ns": host_ns}
        slices = Slices.named(
            ["others wait for this rank"] * len(late),
            late.start_ns,
            late.end_ns,
            category=CATEGORY,
            arguments=[Argument(name=name, values=values) for name, values in said.items()],
            flows=[Flows(ids=_ids(kind, late.instance), role=_every("ends", late)) for kind in (_LATE_IDS, _CHAIN_IDS)],
        )
        yield MadeTrack(name="late", slices=slices)


def _clock(plan: RankPlan) -> Iterator[MadeTrack]:
    clock, steps = plan.clock, plan.summary.steps
    if not steps or clock.method == "none" or clock.error_ns is None:
        return
    bounds = np.array([[steps[0].start_ns], [max(step.start_ns + step.step_ns for step in steps)]], dtype=np.int64)
    said = {"error_ns": clock.error_ns, "offset_ns": clock.offset_ns}
    arguments = [Argument(name=name, values=np.array([value], dtype=np.int64)) for name, value in said.items()]
    name = f"± {clock.error_ns / 1000:,.1f} us"
    yield _track("clock uncertainty", [name], bounds[0], bounds[1], clock, arguments, {"method": [clock.method]})


def _ids(kind: int, number: Int64) -> npt.NDArray[np.uint64]:
    return np.where(number == ABSENT, 0, number + (kind + 1)).astype(np.uint64)


def _every(role: str, rows: Columnar) -> npt.NDArray[np.uint8]:
    return np.full(len(rows), ROLES.index(role), dtype=np.uint8)


def _in_steps(step: Int64, chosen: StepSelection) -> Bool:
    """Mask [n]: in chosen steps, or in none where all are."""
    if chosen.whole or chosen == StepSelection():
        return np.ones(len(step), dtype=np.bool_)
    return np.array([number in chosen for number in step.tolist()], dtype=np.bool_)


def group_label(groups: Sequence[GroupKey], group: int) -> str:
    """What to call a group: what it is for, else as the job describes it."""
    if group == ABSENT:
        return "unknown group"
    return groups[group].parallelism or groups[group].description or groups[group].name or "unknown group"


def _number(name: str, values: npt.NDArray[np.integer]) -> Argument:
    """Absent where it is `ABSENT`: a number that is negative only where it is not known."""
    wide = values.astype(np.int64)
    known = wide != ABSENT
    return Argument(name=name, values=wide, present=None if known.all() else known)


def _track(
    name: str,
    names: Sequence[str],
    start_ns: Int64,
    end_ns: Int64,
    clock: ClockModel,
    arguments: Sequence[Argument] = (),
    texts: Mapping[str, Sequence[str]] | None = None,
    flows: Sequence[Flows] = (),
) -> MadeTrack:
    """Starts and ends are each put on the run's clock: what met still meets."""
    slices = Slices.named(
        names,
        *ends_on_run_clock(start_ns, end_ns, clock),
        category=CATEGORY,
        arguments=arguments,
        texts=texts or {},
        flows=flows,
    )
    return MadeTrack(name=name, slices=slices)
