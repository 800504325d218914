"""How long the job's steps are, which first ones are left out, whether they differ too much, and what a part costs.

What a part costs is how much shorter a step would be at most if the part vanished from all ranks. In a synchronous run
the slowest rank sets the pace: a rank that only waits for it gains nothing by waiting less. With s_r the step and p_r
the part on rank r, a step becomes max(s_r) - max(s_r - p_r) shorter. That is not the mean of the part, but about the
part on the rank that waits least. It tells whether the part is worth a finding, and is no saving that a finding states:
a replay knows more.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracekit.findings.finding import Finding
from tracekit.findings.steps import noisy_steps as finding_of_noise
from tracekit.findings.thresholds import UNCERTAIN_MEAN
from tracekit.model.run import LeftOutStep, Run
from tracekit.model.summary import RankSummary, StepParts
from tracekit.stats.uncertainty import standard_error

_MANY_OTHERS = 3  # steps beside the first one of the window
# A first step is left out if it is so many times as long as any other, and longer by so many times their range.
_LONGER_THAN_MANY = (1.1, 1.0)
_LONGER_THAN_TWO = (1.5, 3.0)  # two tell little of how steps differ
_MANY_STEPS = 4
_SAME_PACE = 1.25  # ranks that do not communicate share one length of the step if their means differ by less


@dataclass(frozen=True, kw_only=True)
class StepLengths:
    """The lengths of the job's steps."""

    count: int
    mean_ns: int
    median_ns: int
    min_ns: int
    max_ns: int


def step_lengths(run: Run) -> StepLengths | None:
    """Return the lengths of the steps that all ranks completed; None without any."""
    steps_ns = run.step_lengths_ns
    if not steps_ns:
        return None
    return StepLengths(
        count=len(steps_ns),
        mean_ns=round(statistics.fmean(steps_ns.values())),
        median_ns=round(statistics.median(steps_ns.values())),
        min_ns=min(steps_ns.values()),
        max_ns=max(steps_ns.values()),
    )


def mean_step_ns(run: Run) -> int:
    """Return the mean step of the job, of which savings are shares; 0 without any."""
    lengths = step_lengths(run)
    return 0 if lengths is None else lengths.mean_ns


def different_paces_ns(run: Run) -> tuple[int, int] | None:
    """Return the shortest and the longest mean step of ranks that do not communicate; None where all share a length."""
    if not run.ranks_are_independent:
        return None
    common = run.common_steps()
    lengths_ns = [[step.step_ns for step in summary.steps if step.step in common] for summary in run.ranks]
    means_ns = [round(statistics.fmean(of_rank_ns)) for of_rank_ns in lengths_ns if of_rank_ns]
    shortest_ns, longest_ns = min(means_ns, default=0), max(means_ns, default=0)
    return (shortest_ns, longest_ns) if longest_ns > _SAME_PACE * shortest_ns else None


def typical_step(run: Run) -> int | None:
    """Return the number of the step of median length; None without steps that all ranks completed."""
    by_length = sorted(run.step_lengths_ns.items(), key=lambda item: (item[1], item[0]))
    return by_length[(len(by_length) - 1) // 2][0] if by_length else None


def first_steps_to_leave_out(ranks: Sequence[RankSummary]) -> tuple[LeftOutStep, ...]:
    """Return the first steps of windows that are longer than the other steps, in order of number.

    Ranks begin to record at different times, and those that begin early wait in this step for the others. The profiler
    also sets itself up. A step counts with its longest time over ranks.
    """
    measured = [(*summary.left_out, *summary.steps) for summary in ranks if summary.is_measured]
    complete = [frozenset(step.step for step in steps if step.complete) for steps in measured]
    common = frozenset.intersection(*complete) if complete else frozenset()
    recorded = {step.step for steps in measured for step in steps}
    longest_ns = dict.fromkeys(sorted(common), 0)
    for steps in measured:
        for step in steps:
            if step.step in common:
                longest_ns[step.step] = max(longest_ns[step.step], step.step_ns)
    return tuple(LeftOutStep(step=step, step_ns=longest_ns[step]) for step in _longer_than_others(longest_ns, recorded))


def long_first_steps(steps: Sequence[StepParts]) -> frozenset[int]:
    """Return the numbers of the first steps that would be left out if the rank of these steps were alone."""
    lengths_ns = {step.step: step.step_ns for step in steps if step.complete}
    return frozenset(_longer_than_others(lengths_ns, {step.step for step in steps}))


def _longer_than_others(lengths_ns: Mapping[int, int], recorded: Collection[int]) -> list[int]:
    """Return the first steps of windows that are longer than all others, and by more than these differ.

    Beside one other step none is found: it is not known how steps differ.
    """
    others_ns = [length_ns for step, length_ns in lengths_ns.items() if step - 1 in recorded]
    if len(others_ns) < 2:
        return []
    times, ranges = _LONGER_THAN_MANY if len(others_ns) >= _MANY_OTHERS else _LONGER_THAN_TWO
    most_ns = max(others_ns)
    limit_ns = max(times * most_ns, most_ns + ranges * (most_ns - min(others_ns)))
    return [step for step, length_ns in lengths_ns.items() if step - 1 not in recorded and length_ns > limit_ns]


def noisy_steps(run: Run, paused_ns: Mapping[int, int]) -> list[Finding]:
    """Return a finding if the steps differ so much that their mean, and what it consists of, is not known.

    Ranks that do not wait for each other have no steps together: then most of them have steps that differ so much.

    paused_ns: by number of the step, what it is longer for a known reason, such as a checkpoint.
    """
    if not run.ranks_are_independent:
        lengths_ns = run.step_lengths_ns
        return list(_noisy_steps(lengths_ns.values(), _uncertainty(lengths_ns, paused_ns)))
    of_ranks_ns = {
        summary.rank: {step.step: step.step_ns for step in summary.steps if step.complete}
        for summary in run.ranks
        if summary.is_measured
    }
    uncertainty = {rank: _uncertainty(lengths_ns, paused_ns) for rank, lengths_ns in of_ranks_ns.items()}
    rank = max(uncertainty, key=lambda rank: uncertainty[rank])
    return list(_noisy_steps(of_ranks_ns[rank].values(), statistics.median_low(uncertainty.values()), rank))


def _uncertainty(lengths_ns: Mapping[int, int], paused_ns: Mapping[int, int]) -> float:
    """Return the standard error of the mean step, as a share of it, with or without what is known of its causes."""
    steps_ns = list(lengths_ns.values())
    unexplained_ns = [time_ns - paused_ns.get(step, 0) for step, time_ns in lengths_ns.items()]
    if len(steps_ns) < 2:
        return 0.0
    return min(standard_error(steps_ns), standard_error(unexplained_ns)) / max(statistics.fmean(steps_ns), 1)


def _noisy_steps(steps_ns: Collection[int], uncertainty: float, rank: int | None = None) -> Iterator[Finding]:
    """Yield the finding on two steps or more. rank: whose steps these are, if they are not the job's."""
    if len(steps_ns) < 2:
        return
    yield finding_of_noise(
        rank=rank,
        evidence={
            "median_ns": round(statistics.median(steps_ns)),
            "min_ns": min(steps_ns),
            "max_ns": max(steps_ns),
            "steps": len(steps_ns),
        },
        conditions=[UNCERTAIN_MEAN.reached_by(uncertainty)],
    )


def uncounted_first_steps(steps: int) -> int:
    """Return how many of the first of so many steps do not count where ranks are compared.

    What delayed a rank before the first step, such as loading, was not recorded.
    """
    return int(steps >= _MANY_STEPS)


def saving_of_ns(run: Run, part_ns: Mapping[tuple[int, int], int]) -> int | None:
    """Return the saving without a part of this length by rank and step, 0 where missing.

    The mean over the steps that all ranks completed; None without any.
    """
    savings = savings_ns(run, part_ns)
    return sum(savings) // len(savings) if savings else None


def savings_ns(run: Run, part_ns: Mapping[tuple[int, int], int]) -> list[int]:
    """Return the saving of each step that all ranks completed, in order."""
    common = run.common_steps()
    longest_ns = dict.fromkeys(sorted(common), 0)
    longest_without_ns = dict.fromkeys(common, 0)
    for summary in run.ranks:
        for step in summary.steps:
            if step.step in common:
                without_ns = step.step_ns - part_ns.get((summary.rank, step.step), 0)
                longest_ns[step.step] = max(longest_ns[step.step], step.step_ns)
                longest_without_ns[step.step] = max(longest_without_ns[step.step], without_ns)
    return [time_ns - longest_without_ns[step] for step, time_ns in longest_ns.items()]
