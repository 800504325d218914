"""In which steps a rank lacks its collectives, though it must have taken part in them: their records are lost.

Other records of these steps are lost, too, or are not known to be there. Without them a step would seem idle.
"""

from __future__ import annotations

import numpy as np

from tracekit.model.communication import SYNCHRONISING_WITH_ANY_SHARES
from tracekit.model.events import ABSENT
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary

EVIDENCE = "the other ranks have collectives with it that it does not have"

__all__ = ["EVIDENCE", "steps_without_collectives"]


def steps_without_collectives(run: Run) -> dict[int, frozenset[int]]:
    """Return, by rank, the steps that lack the records of its collectives.

    Most other ranks of a group have synchronising collectives in such a step. The rank has some of the group in other
    steps, and in this one it has no collective of any group. Sequence ids show that these collectives are in no other
    step of it. Where there are no ids, nothing else must have run in the step either.
    """
    result: dict[int, frozenset[int]] = {}
    for matched in run.collectives:
        there = matched.row >= 0
        on_most_others = 2 * (there.sum(axis=0) - there) > len(matched.ranks) - 1
        lacking = ~there & on_most_others & SYNCHRONISING_WITH_ANY_SHARES[matched.kind] & (matched.step != ABSENT)
        for place in np.flatnonzero(lacking.any(axis=1) & there.any(axis=1)).tolist():
            summary = run.ranks[run.places[int(matched.ranks[place])]]
            lost = _certainly_lost(summary, frozenset(matched.step[lacking[place]].tolist()), matched.matched_by)
            if lost:
                result[summary.rank] = result.get(summary.rank, frozenset()) | lost | _delayed(summary, lost)
    return result


def _certainly_lost(summary: RankSummary, lacking: frozenset[int], matched_by: str) -> frozenset[int]:
    """Return those of the steps in which a rank lacks collectives of a group that have no other collective either."""
    numbers = {
        step.step
        for step in summary.steps
        if step.complete and (matched_by == "seq" or (step.compute_ns == 0 and step.comm_ns == 0))
    }
    return (lacking & numbers).difference(summary.collectives.step.tolist())


def _delayed(summary: RankSummary, lost: frozenset[int]) -> frozenset[int]:
    """Return the steps after those that lack records: lost kernels may have delayed their begin."""
    if summary.device != "gpu":
        return frozenset()
    return frozenset(step.step for step in summary.steps if step.step - 1 in lost)
