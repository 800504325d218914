"""How much shorter a step would be at most if one of its parts vanished from all ranks.

In a synchronous run the slowest rank sets the pace: a rank that only waits for it gains nothing by waiting less. With
s_r the step and p_r the part on rank r, a step becomes max(s_r) - max(s_r - p_r) shorter. That is not the mean of the
part, but about the part on the rank that waits least. It tells whether the part is worth a finding, and is no saving
that a finding states: a replay knows more.
"""

from __future__ import annotations

from collections.abc import Mapping

from tracekit.model.run import Run

__all__ = ["saving_of_ns", "savings_ns"]


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
