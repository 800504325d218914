"""Which group a collective belongs to, where the trace does not name it, as with Gloo in recordings of other tools.

A trace lists the groups of its rank, but not which of them a collective is of. Those of one dimension of a mesh, which
share no rank, are one choice. All collectives of a kind and size are of one choice, unless the ranks contradict it: all
members have as many in each step, none leaves before the last has entered, and they leave together. If more than one
choice remains, or none, these collectives are matched with none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from tracekit.model.communication import SYNCHRONISING, Collectives, GroupKey
from tracekit.model.events import ABSENT, Int64
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.model.texts import count_text

_TOGETHER_NS = 50_000  # ends that are so close are one moment
_AS_CLOSE = 2.0  # times the distance between ends of the best choice is still as good

_Choice = tuple[tuple[int, ...], ...]  # the members of groups that share no rank


def with_inferred_groups(ranks: Sequence[RankSummary]) -> tuple[tuple[RankSummary, ...], list[Note]]:
    """Return the summaries with the groups of collectives that name none, and a note about those that fit none.

    Ranks with a device, and jobs whose traces list one group alone, stay as they are: it is the one of all ranks. What
    fits no choice is put into a group of its rank alone.
    """
    nameless = {s.rank: s for s in ranks if s.device == "cpu" and (s.collectives.group == ABSENT).any()}
    listed = {group.ranks: group for group in sorted(group for s in nameless.values() for group in s.groups)}
    choices = _choices(listed)
    if len(choices) < 2:
        return tuple(ranks), []
    columns = {rank: summary.collectives.group.copy() for rank, summary in nameless.items()}
    groups = {rank: list(summary.groups) for rank, summary in nameless.items()}
    no_rows, unknown = np.empty(0, dtype=np.int64), 0
    for (kind, _), rows in _rows_by_kind_and_size(nameless).items():
        collectives = {rank: s.collectives.rows(rows.get(rank, no_rows)) for rank, s in nameless.items()}
        group_of = {rank: listed[members] for members in _choice_of(choices, collectives, kind) for rank in members}
        for rank, of_rank in rows.items():
            group = group_of.get(rank, GroupKey(description="", ranks=(), name=f"unknown groups of rank {rank}"))
            if group not in groups[rank]:
                groups[rank].append(group)
            columns[rank][of_rank] = groups[rank].index(group)
            unknown += 0 if rank in group_of else len(of_rank)
    for rank, summary in nameless.items():
        collectives_of_rank = replace(summary.collectives, group=columns[rank])
        nameless[rank] = replace(summary, groups=tuple(groups[rank]), collectives=collectives_of_rank)
    text = f"{count_text(unknown, 'collective')}: the trace names no group, nor do ends tell it; matched with none"
    notes = [Note(id="unlinked", severity="warning", text=text)] if unknown else []
    return tuple(nameless.get(summary.rank, summary) for summary in ranks), notes


def _choices(listed: Iterable[tuple[int, ...]]) -> list[_Choice]:
    """Return the groups that the traces list, as choices of groups of one size that share no rank, largest first."""
    choices: list[list[tuple[int, ...]]] = []
    for members in sorted((each for each in listed if len(each) > 1), key=lambda each: (-len(each), each)):
        apart = (choice for choice in choices if set(members).isdisjoint(chain(*choice)))
        fitting = next((choice for choice in apart if len(choice[0]) == len(members)), None)
        if fitting is None:
            choices.append(fitting := [])
        fitting.append(members)
    return [tuple(choice) for choice in choices]


def _rows_by_kind_and_size(ranks: Mapping[int, RankSummary]) -> dict[tuple[int, int], dict[int, Int64]]:
    """Return for each kind and size the rows of each rank's collectives without a group, int64 [n]."""
    result: dict[tuple[int, int], dict[int, Int64]] = {}
    for rank, summary in ranks.items():
        kinds, sizes = summary.collectives.kind, summary.collectives.size_bytes
        rows = np.flatnonzero(summary.collectives.group == ABSENT)
        for kind, size in dict.fromkeys(zip(kinds[rows].tolist(), sizes[rows].tolist(), strict=True)):
            result.setdefault((kind, size), {})[rank] = rows[(kinds[rows] == kind) & (sizes[rows] == size)]
    return result


def _choice_of(choices: Sequence[_Choice], collectives: Mapping[int, Collectives], kind: int) -> _Choice:
    """Return the choice whose members leave together; of choices that are as good the one whose groups contain those of
    the others. Empty without one.
    """
    ranks = {rank for rank, of_rank in collectives.items() if len(of_rank)}
    apart_ns = {choice: _apart_ns(choice, collectives, kind) for choice in choices if ranks <= set(chain(*choice))}
    best_ns = min((ns for ns in apart_ns.values() if not math.isnan(ns)), default=0.0)
    good = [choice for choice, ns in apart_ns.items() if ns <= _AS_CLOSE * best_ns + _TOGETHER_NS]
    is_whole = all(any(set(few) <= set(many) for many in good[0]) for choice in good[1:] for few in choice)
    return good[0] if good and is_whole else ()


def _apart_ns(choice: _Choice, collectives: Mapping[int, Collectives], kind: int) -> float:
    """Return how far the ends of a member are from those of its group, in the mean over members of the median.

    NaN if they cannot have met: one rank has others, or leaves before another enters. Infinite where no two ranks of a
    group were recorded.
    """
    apart_ns = []
    for members in choice:
        present = [collectives[rank] for rank in members if rank in collectives]
        if any(not np.array_equal(of_rank.step, present[0].step) for of_rank in present):
            return math.nan
        if len(present) > 1 and len(present[0]):
            ends_ns = np.stack([of_rank.end_ns for of_rank in present])
            entered_ns = np.stack([of_rank.start_ns for of_rank in present]).max(axis=0)
            if SYNCHRONISING[kind] and (entered_ns > ends_ns.min(axis=0)).any():
                return math.nan
            ends_ns -= ends_ns[0].copy()  # exact as floats
            apart_ns += np.median(np.abs(ends_ns - np.median(ends_ns, axis=0)), axis=1).tolist()
    return sum(apart_ns) / len(apart_ns) if apart_ns else math.inf
