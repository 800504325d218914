"""The checks of a run: which ranks cannot be compared with the others, as their recordings contradict those of most.

Such a rank would make the steps, the means or the verdict of all others wrong. So its times are n/a, as if its device
records were lost, and a note says why. The checks of clocks run later, as clocks need the collectives of all ranks.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from tracekit.explain.configuration import CONFIGURATION
from tracekit.explain.sections import ALL_PARTS
from tracekit.explain.step_time.tables import MEMORY_USE
from tracekit.health.check import NO_TIMES, Check, Doubt
from tracekit.job.clocks.jumps import odd_rates
from tracekit.job.servers import named_by_answers, ranks_that_serve
from tracekit.model.communication import Collectives, Messages
from tracekit.model.notes import Note
from tracekit.model.run import ClockModel, format_ranges
from tracekit.model.summary import MARKED, RankFailure, RankSummary

_SAME_LENGTH = 1.25
_OF_METADATA = (CONFIGURATION, MEMORY_USE)  # parts that need no times


def with_servers(outcomes: Sequence[RankSummary | RankFailure]) -> list[RankSummary | RankFailure]:
    """Return the outcomes of all ranks, of which those that serve others by messages have no steps, only messages."""
    serving = ranks_that_serve([outcome for outcome in outcomes if isinstance(outcome, RankSummary)])
    return [
        replace(
            _without_parts(outcome), messages=named_by_answers(outcome.messages), serves_only=True, recorded_steps=()
        )
        if isinstance(outcome, RankSummary) and outcome.rank in serving
        else outcome
        for outcome in outcomes
    ]


def without_incomparable_times(outcomes: Sequence[RankSummary | RankFailure]) -> list[RankSummary | RankFailure]:
    """Return the outcomes of all ranks, of which those that cannot be compared with most others have no times."""
    result = list(outcomes)
    for check in RUN_CHECKS:
        measured = [outcome for outcome in result if isinstance(outcome, RankSummary) and outcome.is_measured]
        result = _without_excluded(result, check.id, check.find(measured))
    return result


def without_jumping_clocks(
    outcomes: Sequence[RankSummary | RankFailure], clocks: Sequence[ClockModel]
) -> list[RankSummary | RankFailure]:
    """Return the outcomes of all ranks, of which those whose clocks no line describes have no times."""
    result = list(outcomes)
    for check in CLOCK_CHECKS:
        result = _without_excluded(result, check.id, check.find(clocks))
    return result


def _without_excluded(
    outcomes: Sequence[RankSummary | RankFailure], kind: str, doubts: Iterable[Doubt]
) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which those of ranks in doubt have no times. kind: of the notes about them."""
    reasons = {doubt.rank: doubt.reason for doubt in doubts}
    return [
        _with_note(outcome, kind, reasons[outcome.rank])
        if isinstance(outcome, RankSummary) and outcome.is_measured and outcome.rank in reasons
        else outcome
        for outcome in outcomes
    ]


def _with_note(summary: RankSummary, kind: str, reason: str) -> RankSummary:
    file = summary.file_name
    text = ": ".join(filter(None, (file, f"{reason}: {NO_TIMES}")))
    note = Note(id=kind, severity="warning", file=file, text=text).about_rank(summary.rank)
    return without_times(replace(summary, notes=(*summary.notes, note)), reason)


def without_times(summary: RankSummary, reason: str) -> RankSummary:
    """Return the summary without all that depends on times. `reason` completes "its times are n/a: "."""
    return replace(_without_parts(summary), unmeasured=reason)


def _without_parts(summary: RankSummary) -> RankSummary:
    return replace(
        summary,
        steps=(),
        left_out=(),
        collectives=Collectives.empty(),
        messages=Messages.empty(),
        parts={
            name: value if ALL_PARTS[name] in _OF_METADATA else ALL_PARTS[name].empty()
            for name, value in summary.parts.items()
        },
    )


def _without_device(ranks: Sequence[RankSummary]) -> Iterator[Doubt]:
    """Yield the ranks that seem to compute on a CPU and talk to none, where most ranks have a GPU, or some that talk.

    A rank that makes remote calls may have no GPU.
    """
    on_gpu = [summary for summary in ranks if summary.device == "gpu"]
    is_usual = 2 * len(on_gpu) > len(ranks) or sum(len(summary.collectives) > 0 for summary in on_gpu) > 1
    if not is_usual or any("rpc" in summary.strategies for summary in ranks):
        return
    for summary in ranks:
        if summary.device == "cpu" and not len(summary.collectives) and not len(summary.messages):
            reason = "it has no kernels, though other ranks have some, and communicates with none of them"
            yield Doubt(rank=summary.rank, reason=reason)


def _with_other_steps(ranks: Sequence[RankSummary]) -> Iterator[Doubt]:
    """Yield the ranks that completed none of the steps which most ranks completed.

    Comparisons are over the steps that all ranks completed, so one such rank would leave none. Ranks that make remote
    calls number their steps each for itself.
    """
    if any("rpc" in summary.strategies for summary in ranks):
        return
    complete = {
        summary.rank: {step.step for step in (*summary.left_out, *summary.steps) if step.complete} for summary in ranks
    }
    usual = _usual_steps(complete.values())
    others = f"the other ranks completed {format_ranges(usual)}"
    for rank, steps in complete.items() if usual else ():
        if not steps & usual:
            reason = f"it completed step {format_ranges(steps)}" if steps else "no step of it is complete"
            yield Doubt(rank=rank, reason=f"{reason}, {others}")


def _of_other_length(ranks: Sequence[RankSummary]) -> Iterator[Doubt]:
    """Yield the ranks whose steps, which no marks show, cannot be those that were found on the others."""
    found = [summary for summary in ranks if summary.steps_from not in MARKED]
    of_found = [summary for summary in found if summary.steps_from != "recording"]
    if not of_found or not any(len(summary.collectives) or len(summary.messages) for summary in ranks):
        return
    lengths_ns = {s.rank: statistics.median(step.step_ns for step in s.steps) for s in found if s.steps}
    usual_ns = statistics.median_low(lengths_ns[summary.rank] for summary in of_found if summary.steps)
    for summary in found:
        ratio = lengths_ns.get(summary.rank, usual_ns) / max(usual_ns, 1)
        if summary.steps_from == "recording" or not 1 / _SAME_LENGTH <= ratio <= _SAME_LENGTH:
            yield Doubt(rank=summary.rank, reason=f"what seems to be its step is {ratio:.3g} times that of other ranks")


def _usual_steps(steps_of_ranks: Collection[set[int]]) -> set[int]:
    """Return the steps that most ranks have."""
    count = Counter(step for steps in steps_of_ranks for step in steps)
    return {step for step, ranks_with_it in count.items() if 2 * ranks_with_it > len(steps_of_ranks)}


def _jumping(clocks: Sequence[ClockModel]) -> Iterator[Doubt]:
    for clock in clocks:
        if clock.method != "none" and clock.jump_ns is not None:
            reason = f"its clock jumps by {clock.jump_ns / 1e6:+,.3f} ms within the recording"
            yield Doubt(rank=clock.rank, reason=reason)


def _of_another_rate(clocks: Sequence[ClockModel]) -> Iterator[Doubt]:
    as_if = "as if its clock ran at another rate, or it were of another job"
    for rank, rate in odd_rates(clocks).items():
        yield Doubt(rank=rank, reason=f"its times are {rate:.3g} times those of the other ranks, {as_if}")


RUN_CHECKS: tuple[Check[Sequence[RankSummary]], ...] = (
    Check(
        *("no-device-records", "rank", _without_device),
        "A rank has no kernels, and communicates with none of the ranks that have some: it may be no rank of the job.",
        "record CUDA activity on all ranks",
    ),
    Check(
        *("step-mismatch", "rank", _of_other_length),
        "Where steps are not marked: those that were found on a rank are longer or shorter than on most.",
        "name what begins a step with `--step-anchor`",
    ),
    Check(
        *("step-mismatch", "rank", _with_other_steps),
        "A rank completed none of the steps that most ranks completed.",
        "record the same steps on all ranks",
    ),
)
"""In the order in which they run."""

CLOCK_CHECKS: tuple[Check[Sequence[ClockModel]], ...] = (
    Check("clock-step", "rank", _jumping, "A rank's clock jumps within the recording.", "record again"),
    Check("clock-drift", "rank", _of_another_rate, "A rank's clock is 1 % faster or slower than those of most ranks."),
)
"""In the order in which they run, once the clocks of ranks that can be compared are known."""
