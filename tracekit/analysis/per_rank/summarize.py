"""One rank, in a worker: trace files to a `RankSummary`.

Comes in: the paths of one rank's windows and the options. Goes out: sums and notes; the events stay here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tracekit.analysis.communication.overlap import communication_sums, merge_communication_sums
from tracekit.analysis.communication.per_rank.traffic import merge_traffic_times, traffic_times
from tracekit.analysis.ddp.manual_gradients import gradient_sums
from tracekit.analysis.ddp.per_rank.bucket_reductions import bucket_runs, gradient_reductions
from tracekit.analysis.ddp.per_rank.gradient_times import gradient_times
from tracekit.analysis.ddp.per_rank.inferred_buckets import inferred_modules
from tracekit.analysis.ddp.per_rank.passes import ddp_passes
from tracekit.analysis.events.communication_rules import DEFAULT_RULES, CommunicationRule
from tracekit.analysis.events.flight_recorder import join_notes, merge_joins
from tracekit.analysis.events.strategies import strategies_of
from tracekit.analysis.fsdp.per_rank.gathers import fsdp_gathers
from tracekit.analysis.fsdp.units import fsdp_sums, merge_fsdp_sums
from tracekit.analysis.model_parallel.layers import merge_tensor_sums, tensor_sums
from tracekit.analysis.model_parallel.per_rank.expert_exchanges import expert_exchanges
from tracekit.analysis.pipeline.per_rank import rank_actions, ranks_of_pipeline
from tracekit.analysis.rpc.calls import merge_rpc_uses
from tracekit.analysis.step_time.breakdown import step_parts
from tracekit.analysis.step_time.per_rank.flops import flop_sums, merge_flop_sums
from tracekit.analysis.step_time.phases import merge_phase_sums, phase_sums
from tracekit.analysis.timeline.lanes import Lanes
from tracekit.analysis.timeline.point_to_point import merge_messages, rank_messages
from tracekit.analysis.timeline.recording import Recording, recording_of
from tracekit.analysis.timeline.segments import merge_collectives, rank_segments
from tracekit.analysis.timeline.waits import rank_waits
from tracekit.errors import InputError
from tracekit.model.actions import Actions
from tracekit.model.bucket_runs import BucketRuns
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, DecodedTrace, Int64
from tracekit.model.fsdp_gathers import FsdpGathers
from tracekit.model.gradients import GradientTimes
from tracekit.model.metadata import ClockMeasurement
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.step_tails import StepTails
from tracekit.model.summary import DdpPasses, RankSummary
from tracekit.model.waits import Waits
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.decode.decoder import decode
from tracekit.read.files.identify import rank_in_name
from tracekit.read.files.storage import TracePath

__all__ = ["RankFailure", "StepSelection", "SummaryOptions", "summarize", "summarize_trace"]


@dataclass(frozen=True, kw_only=True)
class StepSelection:
    """Steps first <= k < stop; `whole` takes the recording as one window, steps or not."""

    first: int | None = None
    stop: int | None = None
    whole: bool = False

    def __contains__(self, step: int) -> bool:
        return (self.first is None or step >= self.first) and (self.stop is None or step < self.stop)

    @property
    def is_everything(self) -> bool:
        return self.whole or (self.first is None and self.stop is None)

    def mask(self, step: Int64) -> Bool:
        """Which of `step`, int64 [n], are chosen: bool [n]. What is in no step (-1) is when everything is."""
        if self.is_everything:
            return np.ones(len(step), dtype=np.bool_)
        chosen: Bool = step != ABSENT
        if self.first is not None:
            chosen &= step >= self.first
        if self.stop is not None:
            chosen &= step < self.stop
        return chosen


# Of the fields of a summary those that only some sections of a report read. The others belong to the run as a whole:
# its notes, clocks, collectives and messages are the same whichever sections are asked for.
_READ_BY: Mapping[str, frozenset[str]] = {
    "expert_exchanges": frozenset({"tensor"}),
    "flops": frozenset({"roofline"}),
    "fsdp": frozenset({"fsdp"}),
    "fsdp_gathers": frozenset({"fsdp"}),
    "gradient_times": frozenset({"buckets"}),
    "gradients": frozenset({"overlap"}),
    "phases": frozenset({"phases", "breakdown"}),
    "tensor": frozenset({"tensor"}),
    "traffic": frozenset({"dimensions"}),
}


@dataclass(frozen=True, kw_only=True)
class SummaryOptions:
    """`sections`: those that reports will have; None: any."""

    steps: StepSelection = StepSelection()
    rules: tuple[CommunicationRule, ...] = DEFAULT_RULES
    sections: frozenset[str] | None = None

    def reads(self, field: str) -> bool:
        """Whether a section that is wanted reads this field of a summary."""
        return self.sections is None or bool(self.sections & _READ_BY[field])


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """A rank none of whose files could be used. `internal_error`: not through their own fault."""

    rank: int
    notes: tuple[Note, ...]
    internal_error: bool = False


def summarize(
    rank: int, paths: Sequence[TracePath], options: SummaryOptions, spool: DecodedSpool | None = None
) -> RankSummary | RankFailure:
    """Summarise one rank from its windows. `rank` is what discovery made of the files; what a trace says itself wins.
    Each `Recording` is put into the `spool`, too.

    A file that cannot be used is a note; a rank without any usable file is a `RankFailure`. An error of our own in one
    file must not lose the others either.
    """
    summaries: list[RankSummary] = []
    failures: list[Note] = []
    internal_error = False
    for path in paths:
        try:
            trace = decode(path, extra_args=spool is not None)  # a merged trace shows them
            recording = recording_of(trace, options.rules, whole=options.steps.whole)
            if spool is not None:
                spool.put(path, recording)
            summaries.append(_summary_of(recording, rank, options))
            del trace, recording  # of several windows one is in memory at a time
        except InputError as error:
            failures.append(_left_out(path, error.kind, error.reason))
        except MemoryError:
            failures.append(_left_out(path, "limit", "reading it takes more memory than there is; try --jobs 1"))
        except Exception as error:
            internal_error = True
            failures.append(_left_out(path, "ignored_file", f"a bug in tracekit ({type(error).__name__}: {error})"))
    failures = [note.about_rank(rank) for note in failures]
    if not summaries:
        return RankFailure(rank=rank, notes=tuple(failures), internal_error=internal_error)
    groups = tuple(dict.fromkeys(group for summary in summaries for group in summary.groups))
    return replace(
        summaries[0],
        strategies=tuple(sorted({slug for summary in summaries for slug in summary.strategies})),
        groups=groups,
        clock=_all_samples([summary.clock for summary in summaries if summary.clock is not None]),
        ddp=next((summary.ddp for summary in reversed(summaries) if summary.ddp), ()),  # rebuilt after the first steps
        ddp_passes=sum((summary.ddp_passes for summary in summaries), DdpPasses()),
        overhead_per_step_ns=_mean_overhead_ns(summaries),
        files=tuple(file for summary in summaries for file in summary.files),
        recorded_steps=tuple(step for summary in summaries for step in summary.recorded_steps),
        steps=tuple(step for summary in summaries for step in summary.steps),
        communication=merge_communication_sums([row for summary in summaries for row in summary.communication]),
        fsdp=merge_fsdp_sums([row for summary in summaries for row in summary.fsdp]),
        fsdp_gathers=FsdpGathers.concatenate([summary.fsdp_gathers for summary in summaries]),
        tensor=merge_tensor_sums([row for summary in summaries for row in summary.tensor]),
        traffic=merge_traffic_times([row for summary in summaries for row in summary.traffic]),
        expert_exchanges=tuple(row for summary in summaries for row in summary.expert_exchanges),
        bucket_runs=BucketRuns.concatenate([summary.bucket_runs for summary in summaries]),
        gradient_times=GradientTimes.concatenate([summary.gradient_times for summary in summaries]),
        gradients=tuple(row for summary in summaries for row in summary.gradients),
        joins=merge_joins([summary.joins for summary in summaries if summary.joins is not None]),
        phases=merge_phase_sums([summary.phases for summary in summaries]),
        flops=merge_flop_sums([summary.flops for summary in summaries]),
        memory=next((summary.memory for summary in reversed(summaries) if summary.memory is not None), None),
        messages=merge_messages([(summary.messages, summary.groups) for summary in summaries], groups),
        waits=Waits.concatenate([summary.waits for summary in summaries]),
        tails=StepTails.concatenate([summary.tails for summary in summaries]),
        collectives=merge_collectives([(summary.collectives, summary.groups) for summary in summaries], groups),
        actions=Actions.concatenate([summary.actions for summary in summaries]),
        rpc=merge_rpc_uses([summary.rpc for summary in summaries if summary.rpc is not None]),
        event_count=sum(summary.event_count for summary in summaries),
        first_event_ns=min((s.first_event_ns for s in summaries if s.first_event_ns is not None), default=None),
        notes=(*failures, *(note for summary in summaries for note in summary.notes)),
    )


def _mean_overhead_ns(windows: Sequence[RankSummary]) -> int | None:
    """A step's, over all windows that measured it."""
    measured = [(w.overhead_per_step_ns, len(w.recorded_steps)) for w in windows if w.overhead_per_step_ns is not None]
    steps = sum(count for _, count in measured)
    return sum(cost_ns * count for cost_ns, count in measured) // steps if steps else None


def _left_out(path: TracePath, kind: str, reason: str) -> Note:
    return Note(kind=kind, severity="error", file=path.name, text=f"{path.name}: {reason}; left out")


def _all_samples(clocks: Sequence[ClockMeasurement]) -> ClockMeasurement | None:
    """What all windows measured of the rank's clock, which is one and the same."""
    measured = [clock for clock in clocks if clock.method != "none"] or list(clocks)
    if not measured:
        return None
    samples = [sample for clock in measured for sample in clock.samples]
    return msgspec.structs.replace(measured[0], samples=samples)


def summarize_trace(trace: DecodedTrace, rank: int, options: SummaryOptions) -> RankSummary:
    """Summarise one recording."""
    return _summary_of(recording_of(trace, options.rules, whole=options.steps.whole), rank, options)


def _summary_of(recording: Recording, rank: int, options: SummaryOptions) -> RankSummary:
    trace, lanes, phases = recording.trace, recording.lanes, recording.phases
    header, metadata = trace.header, trace.header.metadata
    serves = metadata is not None and metadata.rpc is not None and not metadata.steps  # and has no steps of its own
    steps = [
        parts for parts in step_parts(lanes) if not serves and (options.steps.whole or parts.step in options.steps)
    ]
    own_rank = metadata.rank if metadata is not None else header.rank
    notes = (*trace.notes, *_recording_notes(trace, lanes, own_rank))
    rank = rank if own_rank is None else own_rank
    strategies, inferred = strategies_of(trace)
    messages = rank_messages(trace, lanes.windows, lanes.communication_events)
    collectives, tails = rank_segments(trace, lanes, exchanges_messages=bool(len(messages)))
    layout = metadata.pipeline if metadata is not None else None
    reductions = gradient_reductions(lanes, phases)
    modules = tuple(metadata.ddp) if metadata is not None else inferred_modules(trace, lanes, reductions)
    buckets = bucket_runs(trace, lanes, reductions, modules)
    for_sections: dict[str, Callable[[], object]] = {
        "expert_exchanges": lambda: tuple(expert_exchanges(trace, lanes, phases, steps)),
        "flops": lambda: flop_sums(trace, lanes, steps),
        "fsdp": lambda: tuple(fsdp_sums(trace, lanes, phases, steps)),
        "fsdp_gathers": lambda: fsdp_gathers(trace, lanes, phases, steps),
        "gradient_times": lambda: gradient_times(trace, lanes, buckets, modules),
        "gradients": lambda: tuple(gradient_sums(trace, lanes, phases, steps)),
        "phases": lambda: phase_sums(trace, lanes, phases, steps),
        "tensor": lambda: tuple(tensor_sums(trace, lanes, phases, steps)),
        "traffic": lambda: tuple(traffic_times(lanes, steps)),
    }
    wanted: dict[str, Any] = {field: table() for field, table in for_sections.items() if options.reads(field)}
    return RankSummary(
        rank=rank,
        world_size=metadata.world_size if metadata is not None else header.world_size,
        files=(trace.file,),
        run_id=metadata.run_id if metadata is not None else None,
        attempt=metadata.attempt if metadata is not None else 0,
        host_id=metadata.host_id if metadata is not None else None,
        host=metadata.host if metadata is not None else header.host,
        device=lanes.device,
        device_name=metadata.device.name if metadata is not None else next(iter(header.device_names), None),
        strategies=strategies,
        strategies_inferred=inferred,
        groups=lanes.communication_events.groups,
        mesh=metadata.mesh if metadata is not None else None,
        clock=metadata.clock if metadata is not None else None,
        ddp=modules,
        ddp_passes=ddp_passes(trace, lanes, steps) if modules else DdpPasses(),
        ddp_inferred=metadata is None and bool(modules),
        overhead_per_step_ns=metadata.overhead.per_step_ns if metadata is not None and metadata.overhead else None,
        overhead_options=tuple(metadata.overhead.options) if metadata is not None and metadata.overhead else (),
        recorded_steps=() if serves else tuple(lanes.windows.step.tolist()),
        steps=tuple(steps),
        communication=tuple(communication_sums(lanes, phases, steps)),
        bucket_runs=buckets,
        joins=lanes.joins,
        memory=metadata.memory if metadata is not None else None,
        messages=messages,
        waits=rank_waits(trace, lanes),
        tails=tails,
        collectives=collectives,
        actions=rank_actions(trace, lanes, messages),
        pipeline=layout,
        pipeline_ranks=() if metadata is None else ranks_of_pipeline(metadata),
        rpc=metadata.rpc if metadata is not None else None,
        event_count=len(trace.events),
        first_event_ns=int(trace.events.start_ns.min()) if len(trace.events) else None,
        notes=tuple(note.about_rank(rank) for note in notes),
        **wanted,
    )


def _recording_notes(trace: DecodedTrace, lanes: Lanes, own_rank: int | None) -> list[Note]:
    file = Path(trace.file).name
    notes = []
    named_rank = rank_in_name(Path(trace.file))
    if own_rank is not None and named_rank is not None and own_rank != named_rank:
        text = f"{file}: the file says rank {own_rank}, its name {named_rank}; the file is believed"
        notes.append(Note(kind="rank_mismatch", severity="warning", file=file, text=text))
    metadata = trace.header.metadata
    serves = metadata is not None and metadata.rpc is not None and not metadata.steps
    if lanes.windows.source == "recording" and not serves:
        text = f"{file}: no steps recorded; the whole recording counts as one"
        notes.append(Note(kind="no_steps", severity="info", file=file, text=text))
    device = lanes.device_events
    early_kernels = device.row[device.before_recording & device.is_kernel]
    if len(early_kernels):
        communication = int(np.isin(early_kernels, lanes.communication_events.row).sum())
        text = (
            f"{file}: {len(early_kernels)} kernels ({communication} of them communication) were launched before the "
            f"recording; the first step begins when those that compute have ended"
        )
        notes.append(Note(kind="before_recording", severity="info", file=file, text=text))
    unclassified = int((lanes.communication_events.kind == KINDS.index("unclassified")).sum())
    if unclassified:
        text = f"{file}: {unclassified} kernels look like communication and match no rule: listed as unclassified"
        notes.append(Note(kind="unclassified", severity="warning", file=file, text=text))
    if not len(lanes.compute) and not len(lanes.communication) and not serves:
        text = f"{file}: no kernel, operator or collective in it; nothing can be said about its time"
        notes.append(Note(kind="no_device_records", severity="warning", file=file, text=text))
    windows = lanes.windows
    if trace.complete and not windows.complete.all():
        text = (
            f"{file}: step {format_ranges(windows.step[~windows.complete].tolist())} is incomplete and does not count"
        )
        notes.append(Note(kind="unterminated", severity="warning", file=file, text=text))
    notes += join_notes(lanes.joins, file)
    if metadata is not None:
        if metadata.window.partial:
            text = f"{file}: the job ended before the window was full; {len(metadata.steps)} steps were recorded"
            notes.append(Note(kind="partial", severity="warning", file=file, text=text))
        notes += [
            Note(kind="capture", severity="info", file=file, text=f"{file}: {note.text}") for note in metadata.notes
        ]
    return notes
