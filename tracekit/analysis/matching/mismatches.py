"""Where ranks differ in the instances of a group's collectives: in kind, size or data type, or by absence.

The value that most ranks have counts as right; each other rank gets a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.model.collectives import MatchedGroup
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, Int64
from tracekit.model.notes import Note
from tracekit.model.quantities import count_text
from tracekit.model.summary import RankSummary

# In collectives of these kinds all ranks pass arrays of one size; in others the sizes may differ.
_EQUAL_SIZES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce_scatter", "broadcast", "reduce"))

__all__ = [
    "Member",
    "absence_notes",
    "check_sizes",
    "check_types",
    "drop_other_kinds",
    "majority_values",
    "unplaced_notes",
]


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A rank of a group.

    Attributes:
        rows: its collectives in that group, in order of launch, int64 [n].
    """

    summary: RankSummary
    rows: Int64

    def column(self, name: str) -> np.ndarray:
        """Return a column of the rank's collectives in the group."""
        values: np.ndarray = getattr(self.summary.collectives, name)
        return values if len(self.rows) == len(values) else values[self.rows]


@dataclass(frozen=True, kw_only=True, eq=False)
class _Differences:
    """Where a rank differs from most ranks.

    Attributes:
        places: the instances, int64 [d].
        values: what the rank has there, int64 [d].
    """

    places: Int64
    values: Int64


def majority_values(members: Sequence[Member], row: Int64, name: str) -> tuple[Int64, Mapping[int, _Differences]]:
    """Return int64 [m]: the value of a column that most ranks have; and the ranks that differ, by their place.

    `row` is int64 [k, m]. ABSENT values do not count. Of equally frequent values the smallest is taken.
    """
    usual = np.full(row.shape[1], ABSENT, dtype=np.int64)
    conflict = np.zeros(row.shape[1], dtype=np.bool_)
    for places, values in _columns(members, row, name):
        earlier = usual[places]
        unknown = earlier == ABSENT
        usual[places[unknown]] = values[unknown]
        conflict[places] |= ~unknown & (values != earlier) & (values != ABSENT)
    disputed = np.flatnonzero(conflict)
    if not len(disputed):
        return usual, {}
    table = np.full((len(members), len(disputed)), ABSENT, dtype=np.int64)
    for r, (places, values) in enumerate(_columns(members, row[:, disputed], name)):
        table[r, places] = values
    for i, place in enumerate(disputed.tolist()):
        known, votes = np.unique(table[table[:, i] != ABSENT, i], return_counts=True)
        usual[place] = known[np.argmax(votes)]
    differs = (table != ABSENT) & (table != usual[disputed])
    return usual, {
        r: _Differences(places=disputed[differs[r]], values=table[r, differs[r]])
        for r in np.flatnonzero(differs.any(axis=1)).tolist()
    }


def _columns(members: Sequence[Member], row: Int64, name: str) -> Iterable[tuple[Int64, Int64]]:
    """Yield for each rank the instances that it has, int64 [n], and its values there, int64 [n]."""
    all_places = np.arange(row.shape[1])
    for member, rank_rows in zip(members, row, strict=True):
        values = getattr(member.summary.collectives, name).astype(np.int64, copy=False)
        if rank_rows.min(initial=0) > ABSENT:
            yield all_places, values[rank_rows]
        else:
            places = np.flatnonzero(rank_rows != ABSENT)
            yield places, values[rank_rows[places]]


def drop_other_kinds(members: Sequence[Member], row: Int64, group: str) -> tuple[Int64, Int64, list[Note]]:
    """Return `row` without the collectives of another kind than most ranks', that kind (int64 [m]), and notes."""
    kind, differences = majority_values(members, row, "kind")
    if differences:
        row = row.copy()
        for r, difference in differences.items():
            row[r, difference.places] = ABSENT
    return row, kind, _notes(members, group, differences, kind, KINDS.__getitem__)


def check_sizes(members: Sequence[Member], row: Int64, kind: Int64, group: str) -> tuple[Int64, list[Note]]:
    """Return int64 [m]: the largest size that a rank shows; and notes where sizes differ that must be equal."""
    largest = np.full(row.shape[1], ABSENT, dtype=np.int64)
    for places, values in _columns(members, row, "size_bytes"):
        largest[places] = np.maximum(largest[places], values)
    usual, differences = majority_values(members, row, "size_bytes")
    must_be_equal = {}
    for r, difference in differences.items():
        counts = np.isin(kind[difference.places], _EQUAL_SIZES)
        if counts.any():
            must_be_equal[r] = _Differences(places=difference.places[counts], values=difference.values[counts])
    return largest, _notes(members, group, must_be_equal, usual, lambda size: f"of {size} bytes")


def check_types(members: Sequence[Member], row: Int64, group: str) -> list[Note]:
    """Return notes where data types differ."""
    usual, differences = majority_values(members, row, "dtype")
    return _notes(members, group, differences, usual, lambda dtype: f"of {DTYPES[dtype]}")


def _notes(
    members: Sequence[Member],
    group: str,
    differences: Mapping[int, _Differences],
    usual: Int64,
    describe: Callable[[int], str],
) -> list[Note]:
    """Return a note for each rank that differs, about its first difference."""
    notes = []
    for r, difference in differences.items():
        i, rank = int(difference.places[0]), members[r].summary.rank
        more = f", and so in {len(difference.places) - 1} more" if len(difference.places) > 1 else ""
        text = (
            f"rank {rank}: collective {i} of group {group} is {describe(int(difference.values[0]))} there and "
            f"{describe(int(usual[i]))} on most ranks{more}"
        )
        notes.append(Note(kind="unlinked", severity="warning", rank=rank, text=text))
    return notes


def absence_notes(members: Sequence[Member], matched_group: MatchedGroup, group: str) -> list[Note]:
    """Return a note for each rank that lacks instances of steps that it completed.

    Instances before its first or after its last may have been in progress when its recording began or ended.
    """
    notes = []
    for member, rank_rows in zip(members, matched_group.row, strict=True):
        missing = np.flatnonzero(rank_rows == ABSENT)
        if len(missing):
            complete = [step.step for step in member.summary.steps if step.complete]
            missing = missing[np.isin(matched_group.step[missing], complete)]
        if not len(missing):
            continue
        present = np.flatnonzero(rank_rows != ABSENT)
        is_within = len(present) > 0 and bool(((missing > present[0]) & (missing < present[-1])).any())
        rank, i = member.summary.rank, int(missing[0])
        where = f"collective {i} ({KINDS[matched_group.kind[i]]} in step {matched_group.step[i]})"
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        text = f"rank {rank}: {where}{more} of group {group} is not in its trace; comparisons over ranks leave it out"
        notes.append(Note(kind="unlinked", severity="warning" if is_within else "info", rank=rank, text=text))
    return notes


def unplaced_notes(members: Sequence[Member], unplaced: Iterable[int], group: str) -> list[Note]:
    """Return a note for each rank with collectives whose counterparts on other ranks are not known."""
    notes = []
    for member, count in zip(members, unplaced, strict=True):
        if count:
            rank = member.summary.rank
            what = f"{count_text(count, 'collective')} of group {group} {'has' if count == 1 else 'have'}"
            text = f"rank {rank}: {what} no known counterpart on other ranks"
            notes.append(Note(kind="unlinked", severity="info", rank=rank, text=text))
    return notes
