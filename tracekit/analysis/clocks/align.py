"""How far each rank's clock is from the run's, which is that of the lowest rank whose clock is known.

What the probe measured holds, and that ranks of one host share a clock, unless the ends of collectives contradict it.
The other clocks are fitted to these ends. Ranks that no collective joins are joined by messages. Where wall clocks may
be one clock, as far as these show, they are taken for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tracekit.analysis.clocks.by_collectives import FittedClocks, UnfittedClock, fit_to_collectives
from tracekit.analysis.clocks.by_messages import join_by_messages
from tracekit.analysis.clocks.hosts import host_of_ranks
from tracekit.analysis.clocks.jumps import with_comparable_rates, with_jumps
from tracekit.analysis.clocks.measured import probe_clock, recorded_time
from tracekit.analysis.clocks.moments import Moments
from tracekit.analysis.clocks.notes import clock_notes
from tracekit.analysis.clocks.relative import relative
from tracekit.model.clocks import ClockModel
from tracekit.model.collectives import MatchedGroup
from tracekit.model.messages import MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

# Of the times in a file against the clock of the host. The profiler converts the device's.
_RESOLUTION_NS = {"cpu": 1_000, "gpu": 10_000}

__all__ = ["align"]


def align(
    ranks: Sequence[RankSummary],
    collectives: Sequence[MatchedGroup] = (),
    messages: MatchedMessages | None = None,
) -> tuple[tuple[ClockModel, ...], list[Note]]:
    """Return a clock model for each of the `ranks` (ascending), and notes about clocks.

    All models are against the lowest rank whose clock is known. `messages` join ranks that nothing else joins.
    """
    hosts = host_of_ranks([summary for summary in ranks if summary.unmeasured is None])
    clocks = [
        UnfittedClock(
            rank=summary.rank,
            measured=probe_clock(summary),
            host=hosts.get(summary.rank),
            recorded_ns=recorded_time(summary, summary.first_event_ns or 0),
            resolution_ns=_RESOLUTION_NS[summary.device],
        )
        for summary in ranks
    ]
    moments = [group_moments for group in collectives if (group_moments := Moments.of(ranks, group)) is not None]
    fitted = fit_to_collectives(clocks, moments)
    if messages is not None:
        models, frame = join_by_messages(ranks, fitted.models, fitted.frame, messages)
        fitted = replace(fitted, models=models, frame=frame)
    aligned = with_comparable_rates(_as_one_wall_clock(_on_reference(ranks, fitted)))
    aligned = with_jumps(aligned, moments, hosts)
    named = {summary.rank: summary.machine for summary in ranks if summary.machine is not None}
    return aligned, clock_notes(ranks, aligned, {clock.rank: clock.measured for clock in clocks}, named)


def _on_reference(ranks: Sequence[RankSummary], fitted: FittedClocks) -> list[ClockModel]:
    """Return a model against the reference, the lowest rank whose clock is known, for each of the ranks."""
    models, frame = fitted.models, fitted.frame
    joined = {frame[rank] for rank, model in models.items() if frame[rank] != rank}
    known = [rank for rank, model in models.items() if model.method != "none" or rank in joined]
    if not known:
        return [models[summary.rank] for summary in ranks]
    reference = min(known)
    in_frame = {rank: model for rank, model in models.items() if frame[rank] == frame[reference]}
    root = in_frame.get(frame[reference])
    if root is not None and root.method == "none":  # it was not measured, so it is the frame itself
        methods = {model.method for model in in_frame.values()}
        in_frame[root.rank] = replace(
            root,
            method=next(method for method in ("collectives", "messages", "host") if method in methods),
            at_ns=models[reference].at_ns - models[reference].offset_ns,
            drift_ppm=0.0,
            error_ns=fitted.root_error_ns.get(root.rank, 0),
        )
    return [
        relative(in_frame[summary.rank], in_frame[reference])
        if summary.rank in in_frame
        else ClockModel(rank=summary.rank, method="none")  # it is known against others, but not against the reference
        for summary in ranks
    ]


def _as_one_wall_clock(models: Sequence[ClockModel]) -> list[ClockModel]:
    """Return the models; offsets that are 0 within their errors become 0, if those of all fitted clocks are."""
    fitted = [model for model in models if model.method in ("collectives", "messages")]
    reference_error_ns = next((model.error_ns or 0 for model in models if model.method != "none"), 0)
    if any(model.drift_ppm or abs(model.offset_ns) > (model.error_ns or 0) + reference_error_ns for model in fitted):
        return list(models)
    return [
        replace(model, method="wall", offset_ns=0, error_ns=(model.error_ns or 0) + abs(model.offset_ns))
        if model.method in ("collectives", "messages")
        else model
        for model in models
    ]
