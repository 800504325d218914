"""Which tracks a rank's page shows: those that tracekit adds, and the recorded slices that the user wants to see.

Tracks that tracekit adds have the category `CATEGORY`, slices on the run's clock, and the order in which they are
shown. Recorded slices keep all their arguments and their arrows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, DDP_MODULES, WHOLE
from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.step_time.phases import phase_times
from tracekit.explain.stragglers.peer_waits import Lateness, PeerWaits
from tracekit.loading.options import StepSelection
from tracekit.loading.recording import Recording
from tracekit.model.columnar import Columnar
from tracekit.model.communication import DTYPES, KINDS, GroupKey
from tracekit.model.events import ABSENT, Bool, EventTable, Int64
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.run import ClockModel, format_ranges
from tracekit.model.spans import ACTION_KINDS
from tracekit.rank.lanes import Lanes
from tracekit.rank.phases import STEP_PHASES
from tracekit.read.decode.field_values import IDS
from tracekit.render.merged.arrows import (
    CHAIN_ARROWS,
    COLLECTIVE_ARROWS,
    LATE_ARROWS,
    MESSAGE_ARROWS,
    autograd_arrows,
    ids_of,
    launch_arrows,
)
from tracekit.render.merged.plan import RankPlan
from tracekit.render.slices import ROLES, Argument, Flows, Slices

CATEGORY = "tracekit"
"""Category of the slices that tracekit adds. All other slices are the input's."""

DERIVED_GROUP = "analysis"
"""Name of the track under which each rank's page has these tracks."""

_PINNED = ("steps", "actions", "waits")


@dataclass(frozen=True, kw_only=True, eq=False)
class DerivedTrack:
    """Slices for a track under `DERIVED_GROUP`, and what they show. `track_name` has the track's name in the trace."""

    name: str
    slices: Slices


def track_name(shown: str, rank: int) -> str:
    """Return the name in the trace of the track that shows `shown` on the page of `rank`.

    It begins with the rank if the track is pinned beside those of other ranks or of the run: a pinned track is shown
    without its page, and Perfetto's commands choose tracks by name.
    """
    return f"rank {rank} {shown}" if shown.partition(" · ")[0] in _PINNED else shown


def tracks_of_recording(
    recording: Recording, clock: ClockModel, chosen: StepSelection, left_out: Sequence[int] = ()
) -> Iterator[DerivedTrack]:
    """Yield the chosen steps, and the phases and lanes of those of them that are complete and not `left_out`.

    The sums of the phases, `compute`, `communication`, `exposed communication`, `exposed copies` and `idle` equal the
    report's numbers, apart from the correction of the clock's drift.
    """
    lanes = recording.lanes
    windows = lanes.windows
    shown = chosen.mask(windows.step)
    counted = windows.complete & shown & ~np.isin(windows.step, left_out)
    step, complete = windows.step[shown], counted[shown]
    names = [
        f"step {number}{'' if counts else ' (left out)' if number in left_out else ' (incomplete)'}"
        for number, counts in zip(step.tolist(), complete.tolist(), strict=True)
    ]
    arguments = (_number("step", step), _number("complete", complete.astype(np.int64)))
    yield _track("steps", names, windows.start_ns[shown], windows.end_ns[shown], clock, arguments)
    yield _phases(recording, counted, clock)
    inside = Intervals.union_of(windows.start_ns[counted], windows.end_ns[counted])
    for name, intervals in (
        ("compute", lanes.compute & inside),
        ("communication", lanes.communication & inside),
        ("exposed communication", lanes.exposed_communication & inside),
        ("exposed copies", lanes.exposed_copy & inside),
        ("idle", inside - lanes.busy),
    ):
        yield _track(name, [name] * len(intervals), intervals.start_ns, intervals.end_ns, clock)


def _phases(recording: Recording, counted: Bool, clock: ClockModel) -> DerivedTrack:
    """Return the report's phases in the steps of the mask `counted` [s].

    `duration_ns` is on the rank's own clock, as all sums of the report are.
    """
    windows = recording.lanes.windows
    times = phase_times(recording.trace.events, recording.lanes, recording.phases)
    names: list[str] = []
    steps: list[int] = []
    intervals = [EMPTY]
    for window in np.flatnonzero(counted).tolist():
        for phase, time in zip(STEP_PHASES, times, strict=True):
            inside = time.clip(int(windows.start_ns[window]), int(windows.end_ns[window]))
            names += [phase] * len(inside)
            steps += [int(windows.step[window])] * len(inside)
            intervals.append(inside)
    start_ns, end_ns = _joined_bounds(intervals)
    arguments = (_number("step", np.array(steps, dtype=np.int64)), _number("duration_ns", end_ns - start_ns))
    return _track("phases", names, start_ns, end_ns, clock, arguments)


def tracks_of_rank(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    """Yield the tracks over all recordings: bubbles, actions, buckets, collectives, messages, waits, clock."""
    yield from _bubbles(plan, chosen)
    yield from _actions(plan, chosen)
    yield from _buckets(plan, chosen)
    yield from _collectives(plan, chosen)
    yield from _messages(plan, chosen)
    yield from _waits(plan, chosen)
    yield from _clock(plan)


def _bubbles(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    """Yield the time between the actions of each step of the pipeline. Waits inside actions are their `wait_ns`."""
    actions = plan.summary[ACTIONS]
    spans = plan.pipeline.rows(chosen.mask(plan.pipeline.step))
    names: list[str] = []
    steps: list[int] = []
    bubbles: list[Intervals] = []
    start_ns, end_ns = plan.clock.to_run(actions.start_ns), plan.clock.to_run(actions.end_ns)
    for step, from_ns, until_ns in zip(*(c.tolist() for c in (spans.step, spans.start_ns, spans.end_ns)), strict=True):
        rows = actions.step == step
        gaps = Intervals.union_of(start_ns[rows], end_ns[rows]).gaps(from_ns, until_ns)
        first_ns, last_ns = start_ns[rows].min(initial=until_ns), end_ns[rows].max(initial=from_ns)
        for begin_ns, finish_ns in zip(gaps.start_ns.tolist(), gaps.end_ns.tolist(), strict=True):
            names.append("warmup" if finish_ns <= first_ns else "drain" if begin_ns >= last_ns else "wait")
            steps.append(step)
        bubbles.append(gaps)
    if bubbles:
        arguments = (_number("step", np.array(steps, dtype=np.int64)),)
        slices = Slices.named(names, *_joined_bounds(bubbles), category=CATEGORY, arguments=arguments)
        yield DerivedTrack(name="bubble", slices=slices)


def _actions(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    actions = plan.summary[ACTIONS]
    actions = actions.rows(chosen.mask(actions.step))
    for stage in np.unique(actions.stage).tolist():
        of_stage = actions.rows(actions.stage == stage)
        kinds = [ACTION_KINDS[kind] for kind in of_stage.kind.tolist()]
        names = [f"{kind}{batch}" for kind, batch in zip(kinds, of_stage.microbatch.tolist(), strict=True)]
        arguments = [_number(name, getattr(of_stage, name)) for name in ("stage", "microbatch", "step", "wait_ns")]
        track = "actions" if stage == ABSENT else f"actions · stage {stage}"
        yield _track(track, names, of_stage.start_ns, of_stage.end_ns, plan.clock, arguments, {"kind": kinds})


def _buckets(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    runs = plan.summary[BUCKET_REDUCTIONS]
    runs = runs.rows(chosen.mask(runs.step))
    if not len(runs):
        return
    modules = [plan.summary[DDP_MODULES].modules[index].module for index in runs.module.tolist()]
    names = ["all gradients" if index == WHOLE else f"bucket {index}" for index in runs.index.tolist()]
    arguments = [
        _number("bucket", runs.index),
        *(_number(name, getattr(runs, name)) for name in ("step", "size_bytes", "uncovered_ns")),
        *(_number(name, plan.clock.to_run(getattr(runs, name))) for name in ("ready_ns", "launch_ns")),
    ]
    yield _track("buckets", names, runs.start_ns, runs.end_ns, plan.clock, arguments, {"module": modules})


def _collectives(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    collectives, labels = plan.summary.collectives, group_labels(plan.summary.groups)
    within = chosen.mask(collectives.step)
    for group in np.unique(collectives.group[within]).tolist():
        rows = np.flatnonzero(within & (collectives.group == group))
        of_group = collectives.rows(rows)
        kinds = [KINDS[kind] for kind in of_group.kind.tolist()]
        label = "unknown group" if group == ABSENT else labels[group]
        dtypes = ["" if dtype == ABSENT else DTYPES[dtype] for dtype in of_group.dtype.tolist()]
        instance = plan.instance[rows]
        texts = {"kind": kinds, "group": [label] * len(rows), "dtype": dtypes}
        flows = [Flows(ids=ids_of(COLLECTIVE_ARROWS, instance), role=plan.instance_role[rows])]
        arguments = [_number(name, getattr(of_group, name)) for name in ("size_bytes", "sequence", "step")]
        arguments.append(_number("instance", instance))
        bounds_ns = (of_group.start_ns, of_group.end_ns)
        yield _track(f"collectives · {label}", kinds, *bounds_ns, plan.clock, arguments, texts, flows)


def _messages(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    messages = plan.summary.messages
    rows = np.flatnonzero(chosen.mask(messages.step) & (messages.start_ns != ABSENT) & (messages.end_ns != ABSENT))
    if not len(rows):
        return
    messages, number = messages.rows(rows), plan.message[rows]
    names = [
        f"{'send to' if is_send else 'recv from'} {peer}"
        for is_send, peer in zip(messages.is_send, messages.peer, strict=True)
    ]
    flows = [Flows(ids=ids_of(MESSAGE_ARROWS, number), role=plan.message_role[rows])]
    labels = group_labels(plan.summary.groups)
    texts = {"group": ["" if group == ABSENT else labels[group] for group in messages.group.tolist()]}
    arguments = [_number(name, getattr(messages, name)) for name in ("peer", "is_send", "tag", "size_bytes", "step")]
    yield _track("point to point", names, messages.start_ns, messages.end_ns, plan.clock, arguments, texts, flows)


def _waits(plan: RankPlan, chosen: StepSelection) -> Iterator[DerivedTrack]:
    """Yield when the rank waited for others and when it was late. Their times are on the run's clock already.

    An arrow leads from the waits of other ranks to the arrival of the rank that was late. Another arrow leads there
    from an earlier wait of that rank itself, if that wait made it late.
    """
    if plan.waits is None or plan.late is None:
        return
    waits = plan.waits.rows(chosen.mask(plan.waits.step))
    late = plan.late.rows(chosen.mask(plan.late.step))
    if len(waits):
        slices = Slices.named(
            [f"waits for rank {rank}" for rank in waits.blamed_rank.tolist()],
            waits.start_ns,
            waits.end_ns,
            category=CATEGORY,
            arguments=[
                _number(name, getattr(waits, name)) for name in ("blamed_rank", "is_message", "instance", "step")
            ],
            flows=[
                Flows(ids=ids_of(LATE_ARROWS, waits.instance), role=waits.role),
                Flows(ids=ids_of(CHAIN_ARROWS, waits.leads_to), role=_constant_role("begins", waits)),
            ],
        )
        yield DerivedTrack(name="waits", slices=slices)
    if len(late):
        yield DerivedTrack(name="late", slices=_late_slices(late, waits))


def _late_slices(late: Lateness, waits: PeerWaits) -> Slices:
    """Return a slice for each time when the rank was late, and a slice of no duration for its arrival.

    Arrows from waits end in the arrival: waits start before it, and arrows lead forward in time.
    """
    numbers = {
        "instance": late.instance,
        "late_ns": late.end_ns - late.start_ns,
        "excess_ns": late.excess_ns,
        "step": late.step,
        "excess_compute_ns": late.compute_ns,
        "excess_data_ns": late.data_ns,
        "excess_host_ns": late.excess_ns - late.compute_ns - late.data_ns,
    }
    is_lateness = np.repeat([True, False], len(late))
    chained = np.where(np.isin(late.instance, waits.leads_to), late.instance, ABSENT)
    none = np.zeros(len(late), dtype=np.uint64)
    return Slices.named(
        ["others wait for this rank"] * len(late) + ["arrives"] * len(late),
        np.concatenate((late.start_ns, late.end_ns)),
        np.concatenate((late.end_ns, late.end_ns)),
        category=CATEGORY,
        arguments=[
            Argument(name=name, values=np.tile(values, 2), present=None if name == "instance" else is_lateness)
            for name, values in numbers.items()
        ],
        flows=[
            Flows(ids=np.concatenate((none, ids_of(kind, instance))), role=np.tile(_constant_role("ends", late), 2))
            for kind, instance in ((LATE_ARROWS, late.instance), (CHAIN_ARROWS, chained))
        ],
    )


def _clock(plan: RankPlan) -> Iterator[DerivedTrack]:
    clock, steps = plan.clock, plan.summary.steps
    if not steps or clock.method == "none" or clock.error_ns is None:
        return
    bounds = np.array([[steps[0].start_ns], [max(step.start_ns + step.step_ns for step in steps)]], dtype=np.int64)
    numbers = {"error_ns": clock.error_ns, "offset_ns": clock.offset_ns}
    arguments = [Argument(name=name, values=np.array([value], dtype=np.int64)) for name, value in numbers.items()]
    name = f"± {clock.error_ns / 1000:,.1f} us"
    yield _track("clock uncertainty", [name], bounds[0], bounds[1], clock, arguments, {"method": [clock.method]})


def _joined_bounds(intervals: Sequence[Intervals]) -> tuple[Int64, Int64]:
    """Return the starts and the ends of all the intervals."""
    return np.concatenate([each.start_ns for each in intervals]), np.concatenate([each.end_ns for each in intervals])


def _constant_role(role: str, rows: Columnar) -> npt.NDArray[np.uint8]:
    return np.full(len(rows), ROLES.index(role), dtype=np.uint8)


def group_labels(groups: Sequence[GroupKey]) -> list[str]:
    """Return a label for each group: its dimension or parallelism, else the job's description.

    A label that several groups would share also names the ranks.
    """
    labels = [group.label or "unknown group" for group in groups]
    count = Counter(labels)
    return [
        f"{label} ({format_ranges(group.ranks)})" if count[label] > 1 and group.ranks else label
        for label, group in zip(labels, groups, strict=True)
    ]


def _number(name: str, values: npt.NDArray[np.integer]) -> Argument:
    """Return an argument that rows with `ABSENT` (-1) do not have. Known values must not be negative."""
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
) -> DerivedTrack:
    """Return a track, on the run's clock. Starts and ends are converted each, so that slices that touched still do."""
    slices = Slices.named(
        names,
        *clock.intervals_to_run(start_ns, end_ns),
        category=CATEGORY,
        arguments=arguments,
        texts=texts or {},
        flows=flows,
    )
    return DerivedTrack(name=name, slices=slices)


@dataclass(frozen=True, kw_only=True)
class SliceFilter:
    """Which slices of the input to show. Slices that tracekit adds are not filtered.

    Attributes:
        categories: Categories to show; None: all.
        min_duration_ns: Shortest duration to show.
    """

    categories: frozenset[str] | None = None
    min_duration_ns: int = 0

    def of(self, events: EventTable, lanes: Lanes, steps: StepSelection) -> tuple[Bool, Counter[str]]:
        """Return a mask [n] of the slices to show, and the number of slices that each option leaves out.

        Slices that overlap the chosen steps are shown. A slice counts for the first option that leaves it out.
        """
        kept = np.ones(len(events), dtype=np.bool_)
        left_out: Counter[str] = Counter()
        if (time := chosen_time(lanes, steps)) is not None:
            within = time.covers(events.start_ns) | (time.covered_ns(events.start_ns, events.end_ns) > 0)
            left_out["--steps"], kept = int((kept & ~within).sum()), kept & within
        if self.categories is not None:
            within = events.in_category(*sorted(self.categories))
            left_out["--categories"], kept = int((kept & ~within).sum()), kept & within
        if self.min_duration_ns:
            within = events.duration_ns >= self.min_duration_ns
            left_out["--min-dur"], kept = int((kept & ~within).sum()), kept & within
        return kept, +left_out


def chosen_time(lanes: Lanes, steps: StepSelection) -> Intervals | None:
    """Return when the chosen steps were, on host and device; None if the whole recording is wanted or has no steps."""
    windows = lanes.windows
    if steps.is_everything or windows.source == "recording":
        return None
    chosen = steps.mask(windows.step)
    return Intervals.union_of(windows.start_ns[chosen], windows.end_ns[chosen]) | windows.host_time(chosen)


@dataclass(frozen=True, kw_only=True, eq=False)
class InputSlices:
    """The slices of one track.

    Attributes:
        track: Index into the events' tracks.
        slices: The slices to show.
    """

    track: int
    slices: Slices


def slices_by_track(
    events: EventTable, lanes: Lanes, clock: ClockModel, kept: Bool, *, rank_index: int, first_row: int = 0
) -> Iterator[InputSlices]:
    """Yield the slices in the mask `kept` [n] by track, the thread of the steps first.

    rank_index: in the ranks of the run. first_row: number of events in the rank's earlier recordings, so that arrows of
    different recordings have different ids.
    """
    start_ns, end_ns = clock.intervals_to_run(events.start_ns, events.end_ns)
    arrows = (
        launch_arrows(events, lanes.device_events, kept, rank_index=rank_index, first_row=first_row),
        autograd_arrows(events, kept, rank_index=rank_index, first_row=first_row),
    )
    slices_of = partial(
        Slices,
        name=events.name,
        category=events.category,
        strings=events.strings,
        arguments=tuple(_ids(events)),
        extra_args=events.extra_args,
        flows=tuple(flows for flows in arrows if flows.ids.any()),
    )
    order = np.flatnonzero(kept).astype(np.int32)
    order = order[np.argsort(events.track[order].astype(np.min_scalar_type(len(events.tracks))), kind="stable")]
    edges = np.searchsorted(events.track[order], np.arange(len(events.tracks) + 1))
    for track in _by_interest(len(events.tracks), lanes):
        rows = order[edges[track] : edges[track + 1]]
        if len(rows):
            starts_ns = start_ns[rows]
            slices = slices_of(start_ns=starts_ns, duration_ns=end_ns[rows] - starts_ns, rows=rows)
            yield InputSlices(track=track, slices=slices)


def _by_interest(tracks: int, lanes: Lanes) -> Sequence[int]:
    return sorted(range(tracks), key=lambda track: (track != lanes.windows.thread, track not in lanes.threads, track))


def _ids(events: EventTable) -> Iterator[Argument]:
    """Yield the ids that events have as arguments. Events without an id have no such argument."""
    for name, column in IDS.items():
        values = getattr(events, column)
        present = values != ABSENT
        if present.any():
            yield Argument(name=name, values=values, present=None if present.all() else present)
