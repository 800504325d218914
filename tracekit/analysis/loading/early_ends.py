"""In which steps the last kernel of a rank ends before collectives of the step begin, though not on other ranks.

A GPU rank's step ends when the kernels that it launched in the step have ended. Those that run after the last
collective, such as the optimizer's, may be lost together with their launches. Then this step ends too early, and the
next one begins too early.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import SYNCHRONISING_WITH_ANY_SHARES
from tracekit.model.events import ABSENT, Bool
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

EVIDENCE = "the kernels that the other ranks run after their last collectives are missing"
_FEWEST_OTHERS = 2  # ranks for each that differs from them

__all__ = ["EVIDENCE", "steps_that_end_early"]


def steps_that_end_early(run: Run) -> dict[int, frozenset[int]]:
    """Return, by rank, the steps that end before one of their collectives begins, and the steps behind these.

    At least two thirds of the ranks of the collective's group have no such step. The rank itself has less than half of
    its steps so: else it may be one that runs nothing after its collectives, as it has nothing to update.
    """
    result: dict[int, frozenset[int]] = {}
    for matched in run.collectives:
        members = [run.ranks[run.places[rank]] for rank in matched.ranks.tolist()]
        if len(members) <= _FEWEST_OTHERS or any(member.device != "gpu" for member in members):
            continue
        early = np.stack([_begins_behind_step(member, matched, row) for row, member in enumerate(members)])
        differing = np.flatnonzero(early.any(axis=1))
        if (1 + _FEWEST_OTHERS) * len(differing) <= len(members):
            for row in differing.tolist():
                member, steps = members[row], frozenset(matched.step[early[row]].tolist())
                if 2 * len(steps) < len(member.steps):
                    behind = {step.step for step in member.steps if step.step - 1 in steps}
                    result[member.rank] = result.get(member.rank, frozenset()) | steps | behind
    return result


def _begins_behind_step(summary: RankSummary, matched: MatchedGroup, member: int) -> Bool:
    """Return bool [m]: which collectives that nobody completes alone begin behind the complete step of their launch."""
    steps = sorted((step.step, step.start_ns + step.step_ns) for step in summary.steps if step.complete)
    number, end_ns = np.array(steps, dtype=np.int64).reshape(-1, 2).T
    there = matched.row[member] != ABSENT
    chosen = np.flatnonzero(there & SYNCHRONISING_WITH_ANY_SHARES[matched.kind] & np.isin(matched.step, number))
    begin_ns = summary.collectives.start_ns[matched.row[member, chosen]]
    behind: Bool = np.zeros(len(matched.step), dtype=np.bool_)
    behind[chosen] = begin_ns >= end_ns[np.searchsorted(number, matched.step[chosen])]
    return behind
