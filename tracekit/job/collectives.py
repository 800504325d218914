"""Which collectives of different ranks are the same instance, and where ranks differ in an instance.

Instances are matched by (group, sequence id) if every rank of the group has ids. Otherwise they are matched by order:
the k-th collective of a kind and step in a group is the same one on all ranks. If a rank has fewer or more of them than
most ranks, only those are matched whose position their sizes prove. So the gap of one rank never shifts another. A
collective whose trace names no group counts as one of all ranks.

Ranks differ in kind, size or data type, or by absence. The value that most ranks have counts as right; each other rank
gets a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.model.communication import DTYPES, KINDS, GroupKey, MatchedGroup
from tracekit.model.events import ABSENT, Int64
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary
from tracekit.model.texts import count_text

_SPARSE = 16  # the most ids per collective, on average, for which a dense table of ids is used

# In collectives of these kinds all ranks pass arrays of one size; in others the sizes may differ.
_EQUAL_SIZES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce_scatter", "broadcast", "reduce"))


def groups_of_run(ranks: Sequence[RankSummary], world_size: int | None) -> tuple[GroupKey, ...]:
    """Return all groups of all ranks, sorted. Where collectives do not name their group, a nameless one of all
    ranks is added.
    """
    groups = {group for summary in ranks for group in summary.groups}
    if any((summary.collectives.group == ABSENT).any() for summary in ranks):
        groups.add(_everyone(ranks, world_size))
    return tuple(sorted(groups))


def match_collectives(
    ranks: Sequence[RankSummary], groups: Sequence[GroupKey], world_size: int | None
) -> tuple[tuple[MatchedGroup, ...], list[Note]]:
    """Return the matched collectives of each group that has any, and notes about what does not fit.

    `ranks` are ascending; `groups` come from `groups_of_run`.
    """
    number = {group: i for i, group in enumerate(groups)}
    everyone = number.get(_everyone(ranks, world_size), ABSENT)
    members: dict[int, list[Member]] = {}
    for summary in ranks:
        by_group = np.argsort(summary.collectives.group, kind="stable")
        local_groups, first = np.unique(summary.collectives.group[by_group], return_index=True)
        for local, rows in zip(local_groups.tolist(), np.split(by_group, first[1:]), strict=False):
            index = everyone if local == ABSENT else number[summary.groups[local]]
            members.setdefault(index, []).append(Member(summary=summary, rows=rows))
    matched_groups, notes = [], []
    for index in sorted(members):
        present = _with_absent_ranks(members[index], ranks, groups[index])
        matched_group, group_notes = _match(index, groups[index].label or "all ranks", present)
        matched_groups.append(matched_group)
        notes += group_notes
    return tuple(matched_groups), sorted(notes, key=lambda note: (note.rank or 0, note.text))


def _everyone(ranks: Sequence[RankSummary], world_size: int | None) -> GroupKey:
    world = range(world_size) if world_size is not None else (summary.rank for summary in ranks)
    return GroupKey(description="", ranks=tuple(world))


def _with_absent_ranks(members: list[Member], ranks: Sequence[RankSummary], group: GroupKey) -> list[Member]:
    """Return the members, and the group's ranks that have no collective in it: they lack every instance.

    Servers of RPC take no part, and of ranks whose device records are lost it is not known.
    """
    with_collectives = {member.summary.rank for member in members}
    belongs = frozenset(group.ranks)
    no_rows = np.empty(0, dtype=np.int64)
    without = [s for s in ranks if s.rank in belongs and s.rank not in with_collectives and s.is_measured]
    return sorted(
        [*members, *(Member(summary=s, rows=no_rows) for s in without)], key=lambda member: member.summary.rank
    )


def _match(index: int, name: str, members: list[Member]) -> tuple[MatchedGroup, list[Note]]:
    sequences = [member.column("sequence") for member in members]
    with_ids = all((ids != ABSENT).any() for ids in sequences if len(ids))
    matched_by: Literal["seq", "order"] = "seq" if with_ids else "order"
    row, unplaced = _by_sequence(members, sequences) if with_ids else _by_order(members)
    row, kind, notes = drop_other_kinds(members, row, name)
    step, _ = majority_values(members, row, "step")
    size_bytes, about_sizes = check_sizes(members, row, kind, name)
    notes += [*about_sizes, *check_types(members, row, name)]
    matched_group = MatchedGroup(
        group=index,
        matched_by=matched_by,
        ranks=np.array([member.summary.rank for member in members], dtype=np.int32),
        row=row,
        kind=kind.astype(np.int32),
        step=step,
        size_bytes=size_bytes,
    )
    return matched_group, [
        *notes,
        *absence_notes(members, matched_group, name),
        *unplaced_notes(members, unplaced, name),
    ]


# ---- by sequence id -------------------------------------------------------------------------------------------------
def _by_sequence(members: Sequence[Member], sequences: Sequence[Int64]) -> tuple[Int64, list[int]]:
    """Return rows int64 [k, m] in order of ids, and how many collectives of each rank's steps have no id."""
    if (simple := _by_increasing_ids(members, sequences)) is not None:
        return simple, [0] * len(members)
    keys = [_keys(ids[ids != ABSENT]) for ids in sequences]
    all_keys = np.unique(np.concatenate(keys))
    result = np.full((len(members), len(all_keys)), ABSENT, dtype=np.int64)
    for r, (member, ids) in enumerate(zip(members, sequences, strict=True)):
        result[r, np.searchsorted(all_keys, keys[r])] = member.rows[ids != ABSENT]
    steps = [member.column("step") for member in members]
    unnumbered = [int(((ids == ABSENT) & (step != ABSENT)).sum()) for ids, step in zip(sequences, steps, strict=True)]
    return result, unnumbered


def _by_increasing_ids(members: Sequence[Member], sequences: Sequence[Int64]) -> Int64 | None:
    """Return the rows without sorting, in the usual case: each rank's ids increase, and there are few gaps. Else
    None.
    """
    if not all(len(ids) == 0 or (ids[0] > ABSENT and (ids[1:] > ids[:-1]).all()) for ids in sequences):
        return None
    nonempty = [ids for ids in sequences if len(ids)]
    low, high = min(int(ids[0]) for ids in nonempty), max(int(ids[-1]) for ids in nonempty)
    if high - low > _SPARSE * max(map(len, nonempty)):
        return None
    is_used = np.zeros(high - low + 1, dtype=np.bool_)
    for ids in nonempty:
        is_used[ids - low] = True
    number = np.cumsum(is_used) - 1
    result = np.full((len(members), int(number[-1]) + 1), ABSENT, dtype=np.int64)
    for r, (member, ids) in enumerate(zip(members, sequences, strict=True)):
        result[r, number[ids - low]] = member.rows
    return result


def _keys(ids: Int64) -> Int64:
    """Return int64 [n]: ids, made distinct where several collectives share one, as coalesced ones do."""
    order = np.argsort(ids, kind="stable")
    position = np.arange(len(ids))
    opens = np.ones(len(ids), dtype=np.bool_)
    opens[1:] = np.diff(ids[order]) > 0
    occurrence = np.empty(len(ids), dtype=np.int64)
    occurrence[order] = position - np.maximum.accumulate(np.where(opens, position, 0))
    return (ids << 16) + occurrence


# ---- by order -------------------------------------------------------------------------------------------------------
def _by_order(members: Sequence[Member]) -> tuple[Int64, list[int]]:
    """Return rows int64 [k, m] in order of steps and launches, and how many collectives of each rank's steps have no
    position.

    What was launched outside of the recorded steps has no position either, and is not counted. A GPU that is behind its
    host still runs such collectives as a recording begins, and the other ranks may have ended theirs by then.
    """
    columns = [(member.column("step"), member.column("kind")) for member in members]
    all_equal = all(
        np.array_equal(step, columns[0][0]) and np.array_equal(kind, columns[0][1]) for step, kind in columns[1:]
    )
    if all_equal and (columns[0][0] != ABSENT).all():
        return np.stack([member.rows for member in members]), [0] * len(members)
    streams: dict[tuple[int, int], dict[int, Int64]] = {}  # by step and kind: the rows of each member
    for r, (member, (step, kind)) in enumerate(zip(members, columns, strict=True)):
        order = np.lexsort((kind, step))
        edges = np.flatnonzero((np.diff(step[order]) != 0) | (np.diff(kind[order]) != 0)) + 1
        for part in np.split(order, edges):
            if len(part) and step[part[0]] != ABSENT:
                streams.setdefault((int(step[part[0]]), int(kind[part[0]])), {})[r] = member.rows[part]
    blocks, unplaced = [np.empty((len(members), 0), dtype=np.int64)], [0] * len(members)
    for key in sorted(streams):
        block = _stream(members, streams[key])
        blocks.append(block)
        for r, rows in streams[key].items():
            unplaced[r] += len(rows) - int((block[r] != ABSENT).sum())
    result = np.concatenate(blocks, axis=1)
    return result[:, _launch_order(members, result)], unplaced


def _stream(members: Sequence[Member], rows: dict[int, Int64]) -> Int64:
    """Return the rows of one kind in one step, int64 [k, n], where n is the count that most ranks have."""
    counts, votes = np.unique([len(rank_rows) for rank_rows in rows.values()], return_counts=True)
    count = int(counts[votes == votes.max()][-1])
    block = np.full((len(members), count), ABSENT, dtype=np.int64)
    for r, rank_rows in rows.items():
        if len(rank_rows) == count:
            block[r] = rank_rows
    usual_sizes = _agreed_sizes(members, block)
    for r, rank_rows in rows.items():
        if len(rank_rows) != count:
            positions = _positions_by_size(members[r].summary.collectives.size_bytes[rank_rows], usual_sizes)
            block[r, positions[positions != ABSENT]] = rank_rows[positions != ABSENT]
    return block


def _agreed_sizes(members: Sequence[Member], block: Int64) -> Int64:
    """Return int64 [n]: the size of each instance where all complete ranks agree on it, else ABSENT."""
    complete = [
        (m.summary.collectives.size_bytes[rank_rows])
        for m, rank_rows in zip(members, block, strict=True)
        if rank_rows[0] >= 0
    ]
    sizes = np.stack(complete)
    return np.where((sizes == sizes[0]).all(axis=0), sizes[0], ABSENT)


def _positions_by_size(sizes: Int64, usual: Int64) -> Int64:
    """Return int64 [n]: the only position in the `usual` sizes (int64 [m]) that each of `sizes` can have, or ABSENT.

    For a rank that lacks some instances, its sizes are a subsequence of the usual ones. A rank with more instances has
    no certain position.
    """
    if len(sizes) >= len(usual) or (usual == ABSENT).any() or (sizes == ABSENT).any():
        return np.full(len(sizes), ABSENT, dtype=np.int64)
    few, many = sizes.tolist(), usual.tolist()
    return certain_positions(len(few), len(many), lambda member, position: bool(few[member] == many[position]))


def _launch_order(members: Sequence[Member], row: Int64) -> Int64:
    """Return int64 [m]: the order of instances by step, then by position on the lowest rank that has them."""
    first = np.argmax(row >= 0, axis=0)
    step = np.full(row.shape[1], ABSENT, dtype=np.int64)
    position = np.zeros(row.shape[1])
    for r, member in enumerate(members):
        is_first = first == r
        rank_rows = row[r, is_first]
        if len(rank_rows):
            # A share of the rank's collectives: a rank that lacks some would put its others too early.
            step[is_first] = member.summary.collectives.step[rank_rows]
            position[is_first] = rank_rows / len(member.summary.collectives)
    return np.lexsort((np.arange(row.shape[1]), position, step))


# ---- where ranks differ ----------------------------------------------------------------------------------------------
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
        instances: the instances, int64 [d].
        values: what the rank has there, int64 [d].
    """

    instances: Int64
    values: Int64


def majority_values(members: Sequence[Member], row: Int64, name: str) -> tuple[Int64, Mapping[int, _Differences]]:
    """Return int64 [m]: the value of a column that most ranks have; and the ranks that differ, by their index.

    `row` is int64 [k, m]. ABSENT values do not count. Of equally frequent values the smallest is taken.
    """
    usual = np.full(row.shape[1], ABSENT, dtype=np.int64)
    conflict = np.zeros(row.shape[1], dtype=np.bool_)
    for instances, values in _columns(members, row, name):
        earlier = usual[instances]
        unknown = earlier == ABSENT
        usual[instances[unknown]] = values[unknown]
        conflict[instances] |= ~unknown & (values != earlier) & (values != ABSENT)
    disputed = np.flatnonzero(conflict)
    if not len(disputed):
        return usual, {}
    table = np.full((len(members), len(disputed)), ABSENT, dtype=np.int64)
    for r, (instances, values) in enumerate(_columns(members, row[:, disputed], name)):
        table[r, instances] = values
    for i, instance in enumerate(disputed.tolist()):
        known, votes = np.unique(table[table[:, i] != ABSENT, i], return_counts=True)
        usual[instance] = known[np.argmax(votes)]
    differs = (table != ABSENT) & (table != usual[disputed])
    return usual, {
        r: _Differences(instances=disputed[differs[r]], values=table[r, differs[r]])
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
            instances = np.flatnonzero(rank_rows != ABSENT)
            yield instances, values[rank_rows[instances]]


def drop_other_kinds(members: Sequence[Member], row: Int64, group: str) -> tuple[Int64, Int64, list[Note]]:
    """Return `row` without the collectives of another kind than most ranks', that kind (int64 [m]), and notes."""
    kind, differences = majority_values(members, row, "kind")
    if differences:
        row = row.copy()
        for r, difference in differences.items():
            row[r, difference.instances] = ABSENT
    return row, kind, _notes(members, group, differences, kind, KINDS.__getitem__)


def check_sizes(members: Sequence[Member], row: Int64, kind: Int64, group: str) -> tuple[Int64, list[Note]]:
    """Return int64 [m]: the largest size that a rank shows; and notes where sizes differ that must be equal."""
    largest = np.full(row.shape[1], ABSENT, dtype=np.int64)
    for instances, values in _columns(members, row, "size_bytes"):
        largest[instances] = np.maximum(largest[instances], values)
    usual, differences = majority_values(members, row, "size_bytes")
    must_be_equal = {}
    for r, difference in differences.items():
        counts = np.isin(kind[difference.instances], _EQUAL_SIZES)
        if counts.any():
            must_be_equal[r] = _Differences(instances=difference.instances[counts], values=difference.values[counts])
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
        i, rank = int(difference.instances[0]), members[r].summary.rank
        more = f", and so in {len(difference.instances) - 1} more" if len(difference.instances) > 1 else ""
        text = (
            f"rank {rank}: collective {i} of group {group} is {describe(int(difference.values[0]))} there and "
            f"{describe(int(usual[i]))} on most ranks{more}"
        )
        notes.append(Note(id="unlinked", severity="warning", rank=rank, text=text))
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
        notes.append(Note(id="unlinked", severity="warning" if is_within else "info", rank=rank, text=text))
    return notes


def unplaced_notes(members: Sequence[Member], unplaced: Iterable[int], group: str) -> list[Note]:
    """Return a note for each rank with collectives whose counterparts on other ranks are not known."""
    notes = []
    for member, count in zip(members, unplaced, strict=True):
        if count:
            rank = member.summary.rank
            what = f"{count_text(count, 'collective')} of group {group} {'has' if count == 1 else 'have'}"
            text = f"rank {rank}: {what} no known counterpart on other ranks"
            notes.append(Note(id="unlinked", severity="info", rank=rank, text=text))
    return notes


# ---- certain positions -----------------------------------------------------------------------------------------------
def certain_positions(count: int, positions: int, fits: Callable[[int, int], bool]) -> Int64:
    """Return int64 [count]: the only position that each of `count` members can have among the `positions`, or ABSENT.

    Members keep their order, and no two share a position. `fits(member, position)` says whether a member may stand at a
    position. All members are laid as far left and as far right as possible. Any other layout lies between these two, so
    a position is certain if both agree. All are ABSENT if there is no layout.
    """
    first = _leftmost(count, positions, fits)
    last = _leftmost(count, positions, lambda member, position: fits(count - 1 - member, positions - 1 - position))
    if first is None or last is None:
        return np.full(count, ABSENT, dtype=np.int64)
    return np.where(first == positions - 1 - last[::-1], first, ABSENT)


def _leftmost(count: int, positions: int, fits: Callable[[int, int], bool]) -> Int64 | None:
    """Return the leftmost layout, int64 [count]; None if there is none."""
    result, position = [], 0
    for member in range(count):
        while position < positions and not fits(member, position):
            position += 1
        if position == positions:
            return None
        result.append(position)
        position += 1
    return np.array(result, dtype=np.int64)
