"""Which ranks pause their training for checkpoints, evaluation or logging, and what that costs the steps."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tracekit.analysis.events.pauses.pause_times import PAUSES
from tracekit.analysis.finding import Finding, Remedy
from tracekit.analysis.pauses import columns
from tracekit.analysis.pauses.rank_pause import RankPause, rank_pauses
from tracekit.analysis.pauses.texts import action_text, longer_text, pause_text
from tracekit.analysis.pauses.waits import WaitsForPauses
from tracekit.analysis.step_time.step_lengths import mean_step_ns
from tracekit.analysis.table import Frame
from tracekit.model.run import Run

_NOTABLE = 0.05  # of the step
_AS_LONG = 0.5  # times the longest: a rank that pauses at least so long pauses as well
_EXPLAINED = 0.5  # of a rank's delay

__all__ = ["CostlyPause", "Pauses", "pauses", "pauses_behind_delays", "reason_of_delay"]


@dataclass(frozen=True, kw_only=True)
class CostlyPause:
    """A kind of pause that takes a notable share of the steps.

    Attributes:
        longest: of the rank that pauses longest.
        ranks: those that pause about as long; empty if all do.
        text: in words.
        waits_ns: for how long others wait for the longest, by kind of communication; None if that is not known, or
            nobody waits, as all ranks pause.
    """

    longest: RankPause
    ranks: tuple[int, ...]
    text: str
    waits_ns: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Pauses:
    """`ranks`: rows of columns.PAUSES_BY_RANK."""

    ranks: Frame = Frame(columns.PAUSES_BY_RANK)
    findings: tuple[Finding, ...] = ()


def pauses(run: Run) -> Pauses:
    """Return the pauses of all ranks, and a finding on each kind that costs."""
    found = rank_pauses(run)
    waits = WaitsForPauses(run, found)
    rows = [_row(each, waits.by_kind_ns(each)) for each in found]
    return Pauses(ranks=rows, findings=tuple(_finding(costly) for costly in _costly_pauses(run, found, waits)))


def _row(pause: RankPause, waits_ns: Mapping[str, int] | None) -> dict[str, object]:
    return {
        "rank": pause.rank,
        "pause": pause.pause,
        "action": pause.action,
        "function": pause.function,
        "steps": len(pause.by_step_ns),
        "of_steps": pause.of_steps,
        "total_ns": pause.total_ns,
        "each_ns": pause.each_ns,
        "others_wait_ns": None if waits_ns is None else sum(waits_ns.values()) / len(pause.by_step_ns),
        "wait_kind": _longest_wait(waits_ns),
    }


def _costly_pauses(run: Run, found: Sequence[RankPause], waits: WaitsForPauses) -> list[CostlyPause]:
    """Return the kinds of pauses that cost, one for each kind at most.

    A pause of some ranks costs if others wait for it for a notable part of the step. found: the pauses of all ranks.
    """
    step_ns = mean_step_ns(run)
    training = [summary for summary in run.ranks if summary.is_measured and any(s.complete for s in summary.steps)]
    result = []
    for pause in PAUSES:
        of_kind = [each for each in found if each.pause == pause]
        longest = max(of_kind, key=lambda each: (each.mean_ns, -each.rank), default=None)
        if longest is None or longest.mean_ns < _NOTABLE * step_ns:
            continue
        ranks = tuple(each.rank for each in of_kind if each.mean_ns >= _AS_LONG * longest.mean_ns)
        if len(ranks) == len(training):
            ranks = ranks if len(ranks) == 1 else ()
            result.append(CostlyPause(longest=longest, ranks=ranks, text=pause_text(longest, ranks)))
            continue
        waits_ns = waits.by_kind_ns(longest)
        if waits_ns is not None and sum(waits_ns.values()) < _NOTABLE * step_ns * longest.of_steps:
            continue
        waiting = 0 if waits_ns is None else len(training) - len(ranks)
        text = pause_text(longest, ranks, waiting, _longest_wait(waits_ns))
        result.append(CostlyPause(longest=longest, ranks=ranks, text=text, waits_ns=waits_ns))
    return result


def _longest_wait(waits_ns: Mapping[str, int] | None) -> str | None:
    return max(waits_ns, key=waits_ns.__getitem__) if waits_ns else None


def reason_of_delay(run: Run, ranks: Sequence[int], delay_ns: float) -> CostlyPause | None:
    """Return the pause that explains why these ranks delay the others by so long in a step; None if none does.

    If all ranks pause, these ranks do so longer than the others.
    """
    found = rank_pauses(run)
    for costly in _costly_pauses(run, found, WaitsForPauses(run, found)):
        if set(costly.ranks) == set(ranks) and costly.longest.each_ns >= _EXPLAINED * delay_ns:
            return costly
        of_kind = [each for each in found if each.pause == costly.longest.pause]
        others_ns = [each.working_ns for each in of_kind if each.rank not in ranks]
        longest = max((each for each in of_kind if each.rank in ranks), key=lambda each: each.working_ns, default=None)
        if costly.ranks or longest is None or not others_ns:
            continue
        longer_ns = longest.working_ns - statistics.median(others_ns)
        if longer_ns >= _EXPLAINED * delay_ns:
            return replace(costly, ranks=tuple(ranks), text=longer_text(longest, ranks, longer_ns))
    return None


def pauses_behind_delays(run: Run, delays_ns: Mapping[int, float]) -> dict[int, str]:
    """Return the kind of pause that explains a rank's delay in the mean step, for the ranks that have one alone."""
    found = rank_pauses(run)
    return {
        rank: costly.longest.pause
        for costly in _costly_pauses(run, found, WaitsForPauses(run, found))
        for rank in costly.ranks
        if len(costly.ranks) == 1 and costly.longest.mean_ns >= _EXPLAINED * delays_ns.get(rank, 0.0) > 0
    }


def _finding(costly: CostlyPause) -> Finding:
    longest = costly.longest
    return Finding(
        severity="warning",
        text=costly.text,
        rank=costly.ranks[0] if len(costly.ranks) == 1 else None,
        ranks=costly.ranks,
        cause=longest.pause,
        time_ns=round(longest.mean_ns),
        action=action_text(longest, everywhere=not costly.ranks),
        remedy=cast(Remedy, longest.pause),
        evidence={
            "each_ns": round(longest.each_ns),
            "steps_with_it": len(longest.by_step_ns),
            "steps": longest.of_steps,
            "longest_ns": max(longest.by_step_ns.values()),
            "median_ns": round(statistics.median(longest.by_step_ns.values())),
            "others_wait_in_ns": costly.waits_ns,
            "function": longest.function,
        },
    )
