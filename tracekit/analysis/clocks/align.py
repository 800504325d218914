"""How far each rank's clock is from the run's, which is that of the lowest rank whose clock is known.

Ranks whose clocks agree throughout are aligned first, by what the ends of their collectives show. Each set of them is a
frame. Then frames are aligned by the moments of all their ranks together, and last by messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.clocks.assumed import UnfittedClock
from tracekit.analysis.clocks.by_collectives import fit_to_collectives
from tracekit.analysis.clocks.frames import join_by_collectives
from tracekit.analysis.clocks.measured import probe_clock, recorded_time
from tracekit.analysis.clocks.messages.joined_frames import join_frames
from tracekit.analysis.clocks.moments import Moments
from tracekit.analysis.clocks.notes import clock_notes
from tracekit.analysis.clocks.reference import on_reference
from tracekit.model.clocks import ClockModel
from tracekit.model.collectives import MatchedGroup
from tracekit.model.messages import MatchedMessages
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

__all__ = ["align"]


def align(
    ranks: Sequence[RankSummary],
    collectives: Sequence[MatchedGroup] = (),
    messages: MatchedMessages | None = None,
) -> tuple[tuple[ClockModel, ...], list[Note]]:
    """Return a clock model for each of the `ranks` (ascending), and notes about clocks.

    All models are against the lowest rank whose clock is known. `messages` join ranks that nothing else joins.
    """
    clocks = [
        UnfittedClock(
            number=summary.rank,
            measured=probe_clock(summary),
            machine=summary.machine,
            recorded_ns=recorded_time(summary, summary.first_event_ns or 0),
        )
        for summary in ranks
    ]
    moments = [group_moments for group in collectives if (group_moments := Moments.of(ranks, group)) is not None]
    fitted = fit_to_collectives(clocks, moments, agreeing_only=True)
    fitted = join_by_collectives(clocks, moments, fitted)
    models, frame = fitted.models, fitted.frame
    if messages is not None:
        models, frame = join_frames(ranks, models, frame, messages)
    aligned = on_reference(ranks, models, frame, fitted.root_error_ns)
    return aligned, clock_notes(ranks, aligned, {clock.number: clock.measured for clock in clocks})
