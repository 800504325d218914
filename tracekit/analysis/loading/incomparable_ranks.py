"""Which ranks cannot be compared with the others of their run, as their recordings contradict those of most ranks.

Such a rank would make the steps, the means or the verdict of all others wrong. So its times are n/a, as if its device
records were lost, and a note says why.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tracekit.analysis.clocks.jumps import odd_rates
from tracekit.analysis.loading.ranks_without_compute import ranks_without_compute
from tracekit.analysis.loading.unshared_collectives import ranks_that_share_no_collective
from tracekit.analysis.per_rank.summarize import RankFailure
from tracekit.analysis.per_rank.unmeasured import without_times
from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, StepParts

# Units are thousands apart. Recorded steps of one job differ less than two-fold from that.
_UNIT_FACTORS = (10**3, 10**6)
_SAMPLED_COLLECTIVES = 16
# An empty kernel takes about a microsecond on the GPUs of today, so no rank's kernels take less on average.
_SHORTEST_KERNEL_NS = 1_000
_FAR_SHORTER = 100  # times: GPUs of one job differ less in how fast they compute

__all__ = ["Reason", "incomparable_in_run", "without_incomparable_times", "without_times_of"]


class Reason(NamedTuple):
    """Why a rank cannot be compared with the others.

    Attributes:
        kind: of the note about it.
        text: completes "its times are n/a: ".
    """

    kind: str
    text: str


def without_incomparable_times(outcomes: Sequence[RankSummary | RankFailure]) -> list[RankSummary | RankFailure]:
    """Return the outcomes of all ranks, of which those that cannot be compared with most others have no times."""
    measured = [outcome for outcome in outcomes if isinstance(outcome, RankSummary) and outcome.is_measured]
    reasons: dict[int, Reason] = {}
    for kind, find in (
        ("no_device_records", _without_device),
        ("unit", _with_impossible_kernels),
        ("unit", _in_another_unit),
        ("step_mismatch", _with_shifted_steps),
        ("step_mismatch", _with_other_steps),
        ("unlinked", ranks_that_share_no_collective),
        ("lost_device_records", ranks_without_compute),
        ("lost_device_records", _without_launches),
    ):
        found = find([summary for summary in measured if summary.rank not in reasons])
        reasons |= {rank: Reason(kind, text) for rank, text in found.items()}
    return without_times_of(outcomes, reasons)


def incomparable_in_run(run: Run, wrong: Mapping[int, Collection[int]]) -> dict[int, Reason]:
    """Return the ranks that cannot be compared, as what they share with the others shows.

    wrong: steps whose times are known to be wrong, by rank.
    """
    clocks = {clock.rank: _jumping(clock.jump_ns) for clock in run.clocks if clock.method != "none" and clock.jump_ns}
    clocks |= {rank: _of_other_rate(rate) for rank, rate in odd_rates(run.clocks).items()}
    if clocks:
        return clocks
    ranks = [summary for summary in run.ranks if summary.is_measured]
    counting = {
        summary.rank: {step.step for step in summary.steps if step.complete}.difference(wrong.get(summary.rank, ()))
        for summary in ranks
    }
    usual = _usual_steps(counting.values())
    without = [rank for rank in wrong if usual and rank in counting and not counting[rank] & usual]
    text = "what it exchanges with other ranks shows that the times of each of its steps are wrong"
    return dict.fromkeys(without, Reason("step_mismatch", text))


def _jumping(by_ns: int) -> Reason:
    return Reason("clock_step", f"its clock jumps by {by_ns / 1e6:+,.3f} ms within the recording")


def _of_other_rate(rate: float) -> Reason:
    as_if = "as if its clock ran at another rate, or it were of another job"
    return Reason("clock_drift", f"its times are {rate:.3g} times those of the other ranks, {as_if}")


def without_times_of(
    outcomes: Sequence[RankSummary | RankFailure], reasons: Mapping[int, Reason]
) -> list[RankSummary | RankFailure]:
    """Return the outcomes of all ranks, of which those with a reason have no times."""
    return [
        _without_times(outcome, reasons[outcome.rank])
        if isinstance(outcome, RankSummary) and outcome.is_measured and outcome.rank in reasons
        else outcome
        for outcome in outcomes
    ]


def _without_times(summary: RankSummary, reason: Reason) -> RankSummary:
    file = summary.file_name
    text = ": ".join(filter(None, (file, f"{reason.text}: its times are n/a and join no comparison")))
    note = Note(kind=reason.kind, severity="warning", file=file, text=text).about_rank(summary.rank)
    return without_times(replace(summary, notes=(*summary.notes, note)), reason.text)


def _without_device(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks that seem to compute on a CPU, where most ranks have a GPU and none of them talks to it.

    A rank that makes remote calls may have no GPU.
    """
    on_gpu = sum(summary.device == "gpu" for summary in ranks)
    if 2 * on_gpu <= len(ranks) or any("rpc" in summary.strategies for summary in ranks):
        return {}
    reason = "it has no kernels, though most ranks have some"
    return {
        summary.rank: reason
        for summary in ranks
        if summary.device == "cpu" and not len(summary.collectives) and not len(summary.messages)
    }


def _with_impossible_kernels(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks whose kernels take less time than a kernel can, and far less than those of most ranks.

    Their durations are 0, or in a larger unit than the other times of the file.
    """
    mean_ns = {summary.rank: summary.kernels_ns / summary.kernel_count for summary in ranks if summary.kernel_count}
    if not mean_ns:
        return {}
    usual_ns = statistics.median_high(mean_ns.values())
    return {
        rank: f"its kernels take {length_ns / 1000:.2g} us on average, which is less than a kernel can, and those of "
        f"the other ranks {usual_ns / 1000:,.3g} us"
        for rank, length_ns in mean_ns.items()
        if length_ns < _SHORTEST_KERNEL_NS and _FAR_SHORTER * length_ns < usual_ns
    }


def _without_launches(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks of whose kernels most have no launch, where those of most ranks have one.

    Nothing tells where the steps of such a rank begin on its device.
    """
    of_gpus = [summary for summary in ranks if summary.kernel_count]
    without = [summary for summary in of_gpus if 2 * summary.kernels_without_launch > summary.kernel_count]
    if 2 * len(without) >= len(of_gpus):
        return {}
    reason = "most of its kernels have no launch, while those of most ranks have one, so that their steps are not known"
    return {summary.rank: reason for summary in without}


def _in_another_unit(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks whose steps take a thousand times as long as those of most ranks, or a thousandth."""
    typical_ns = {
        summary.rank: statistics.median(lengths_ns)
        for summary in ranks
        if (lengths_ns := [step.step_ns for step in _all_steps(summary) if step.complete and step.step_ns > 0])
    }
    if len(typical_ns) < 2:
        return {}
    usual_ns = statistics.median_low(typical_ns.values())
    reasons = {}
    for rank, length_ns in typical_ns.items():
        ratio = max(length_ns, usual_ns) / min(length_ns, usual_ns)
        if any(factor / 2 <= ratio <= 2 * factor for factor in _UNIT_FACTORS):
            times = f"{ratio:,.0f} times as long as" if length_ns > usual_ns else f"{1 / ratio:.2g} of the time of"
            reasons[rank] = f"its steps take {times} those of the other ranks, as if written in another unit"
    return reasons


def _with_shifted_steps(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks that number their steps otherwise than most: the ids of their collectives show it."""
    by_group: dict[GroupKey, list[tuple[RankSummary, Int64]]] = {}
    for summary in ranks:
        collectives = summary.collectives
        known = (collectives.sequence != ABSENT) & (collectives.step != ABSENT) & (collectives.group != ABSENT)
        for local in np.unique(collectives.group[known]).tolist():
            rows = np.flatnonzero(known & (collectives.group == local))
            by_group.setdefault(summary.groups[local], []).append((summary, rows))
    shifts: dict[int, int] = {}
    for members in by_group.values():
        longest, rows = max(members, key=lambda member: len(member[1]))
        step_of_id = _step_of_id(longest, rows)
        apart = {summary.rank: _steps_apart(summary, rows, step_of_id) for summary, rows in members}
        known_apart = {rank: shift for rank, shift in apart.items() if shift is not None}
        for usual, votes in Counter(known_apart.values()).most_common(1):  # none if no rank is known
            if 2 * votes > len(known_apart):
                shifts |= {rank: shift - usual for rank, shift in known_apart.items() if shift != usual}
    return {
        rank: f"its steps are numbered {abs(shift)} {'higher' if shift > 0 else 'lower'} than those of the other ranks"
        for rank, shift in shifts.items()
    }


def _step_of_id(summary: RankSummary, rows: Int64) -> dict[int, int]:
    """Return the step of each sequence id in `rows`, int64 [n]. An id that begins again in a later step names none."""
    ids, steps = summary.collectives.sequence[rows].tolist(), summary.collectives.step[rows].tolist()
    last = dict(zip(ids, steps, strict=True))
    first = dict(zip(reversed(ids), reversed(steps), strict=True))
    return {number: step for number, step in last.items() if first[number] == step}


def _steps_apart(summary: RankSummary, rows: Int64, step_of_id: Mapping[int, int]) -> int | None:
    """Return by how much a rank's step numbers are higher than those of the same collectives on another rank.

    `rows` are the rank's collectives in their group, int64 [n]. None if they share none, or differ in this.
    """
    collectives = summary.collectives
    sample = rows[:: max(1, len(rows) // _SAMPLED_COLLECTIVES)]
    pairs = zip(collectives.sequence[sample].tolist(), collectives.step[sample].tolist(), strict=True)
    apart = {step - step_of_id[number] for number, step in pairs if number in step_of_id}
    return apart.pop() if len(apart) == 1 else None


def _with_other_steps(ranks: Sequence[RankSummary]) -> dict[int, str]:
    """Return the ranks that completed none of the steps which most ranks completed.

    Comparisons are over the steps that all ranks completed, so one such rank would leave none. Ranks that make remote
    calls number their steps each for itself.
    """
    if any("rpc" in summary.strategies for summary in ranks):
        return {}
    complete = {summary.rank: {step.step for step in _all_steps(summary) if step.complete} for summary in ranks}
    usual = _usual_steps(complete.values())
    if not usual:
        return {}
    others = f"the other ranks completed {format_ranges(usual)}"
    return {
        rank: f"it completed step {format_ranges(steps)}, {others}" if steps else f"no step of it is complete, {others}"
        for rank, steps in complete.items()
        if not steps & usual
    }


def _usual_steps(steps_of_ranks: Collection[set[int]]) -> set[int]:
    """Return the steps that most ranks have."""
    count = Counter(step for steps in steps_of_ranks for step in steps)
    return {step for step, ranks_with_it in count.items() if 2 * ranks_with_it > len(steps_of_ranks)}


def _all_steps(summary: RankSummary) -> tuple[StepParts, ...]:
    return (*summary.left_out, *summary.steps)
