"""Which steps of different ranks are the same, where no marks number them.

Recordings on demand begin at different moments. Ranks meet in collectives, so a step is the one in which others have
the same sequence ids. Without ids it is the one whose last collective ends at about the same time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tracekit.model.communication import GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.summary import MARKED, RankSummary


def first_steps(ranks: Sequence[RankSummary]) -> Mapping[int, int]:
    """Return the number that the first step of each rank should have, for those whose steps no marks number.

    The earliest first step is 0. `ranks` number their steps from 0.
    """
    found = [summary for summary in ranks if summary.is_measured and summary.steps_from not in (*MARKED, "recording")]
    by_id: dict[tuple[GroupKey, int], int] = {}
    first: dict[int, int] = {}
    for summary in found:
        ids = _steps_by_id(summary)
        shifts = Counter(by_id[key] - step for key, step in ids.items() if key in by_id)
        shift = shifts.most_common(1)[0][0] if shifts else _shift_by_time(summary, found[0])
        first[summary.rank] = shift
        by_id |= {key: step + shift for key, step in ids.items()}
    earliest = min(first.values(), default=0)
    return {rank: shift - earliest for rank, shift in first.items()}


def _steps_by_id(summary: RankSummary) -> dict[tuple[GroupKey, int], int]:
    """Return the step of each collective of the rank that has a sequence id, by its group and the id."""
    collectives = summary.collectives
    has_id = (collectives.sequence != ABSENT) & (collectives.step != ABSENT) & (collectives.group != ABSENT)
    columns = (column[has_id].tolist() for column in (collectives.group, collectives.sequence, collectives.step))
    return {(summary.groups[group], sequence): step for group, sequence, step in zip(*columns, strict=True)}


def _shift_by_time(summary: RankSummary, reference: RankSummary) -> int:
    """Return by how much the steps of a rank have lower numbers than those of the reference; 0 if nothing tells."""
    mine, others = _moments_ns(summary), _moments_ns(reference)
    if len(mine) < 2 or len(others) < 2:
        return 0
    distance_ns = np.abs(mine[:, None] - others[None, :])
    nearest = distance_ns.argmin(axis=1)
    is_near = 2 * distance_ns.min(axis=1) < np.median(np.diff(others))
    shifts = Counter((nearest - np.arange(len(mine)))[is_near].tolist())
    return int(shifts.most_common(1)[0][0]) if shifts else 0


def _moments_ns(summary: RankSummary) -> Int64:
    """Return a moment of each step of the rank that others share, int64 [s]: the last end of a collective."""
    step, end_ns = summary.collectives.step, summary.collectives.end_ns
    moments_ns = np.zeros(len(summary.recorded_steps), dtype=np.int64)
    np.maximum.at(moments_ns, step[step != ABSENT], end_ns[step != ABSENT])
    if moments_ns.all():
        return moments_ns
    return np.array([part.start_ns for part in (*summary.left_out, *summary.steps)], dtype=np.int64)
