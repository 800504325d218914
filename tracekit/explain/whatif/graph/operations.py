"""The operations of a recorded run while its graph is built: rank after rank, with numbers for tasks and kinds.

A label is a number for what tasks are compared by: the same position in a step, or the same transfer.

`ProgramOrder` notes which waits for communication are the program's doing. They would vanish if only data had to be
waited for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tracekit.explain.whatif.graph.run_communication import (
    ACCUMULATED,
    GRADIENTS,
    PARAMETERS,
    REGATHERED,
    Communication,
)
from tracekit.model.communication import KINDS
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.replay.operation_graph import EARLY, REGATHER, WORK, Exchanges

"""The types of a pipeline's actions, by kind."""

# Numbers of operations, tasks and kinds fit in 32 bits. Half the memory is much where there are millions of them.
_DTYPES: dict[str, type[np.generic]] = {"host_share": np.float64, "duration_ns": np.int64}

_GATHERS = (PARAMETERS, REGATHERED)
PROGRAM_ORDER = "program order"
"""The label of tasks whose operations stand for waits that the program orders and no data requires."""


@dataclass(kw_only=True)
class Interner:
    """Gives each name a number, in order of first use.

    `behind` numbers whole arrays of names `(*name, code)` that differ in a whole number only.

    Attributes:
        of: the number of each name.
        codes: of each tuple the numbers behind it, ascending, and the numbers of the names that they make.
        count: how many names there are.
    """

    of: dict[object, int] = field(default_factory=dict)
    codes: dict[tuple[object, ...], tuple[Int64, Int64]] = field(default_factory=dict)
    count: int = 0

    def __getitem__(self, name: object) -> int:
        number = self.of.get(name)
        if number is None:
            number = self.of[name] = self.count
            self.count += 1
        return number

    def numbers(self, names: Iterable[object]) -> Int64:
        """Return the numbers of several names, int64 [k]."""
        return np.array([self[name] for name in names], dtype=np.int64)

    def behind(self, name: tuple[object, ...], codes: Int64) -> Int64:
        """Return the numbers of `(*name, code)` for many codes, int64 [k] both."""
        known, numbers = self.codes.get(name, (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)))
        index = np.searchsorted(known, codes)
        unknown = np.append(known, ABSENT)[index] != codes
        if unknown.any():
            new = np.unique(codes[unknown])
            known = np.concatenate((known, new))
            numbers = np.concatenate((numbers, np.arange(self.count, self.count + len(new))))
            order = np.argsort(known, kind="stable")
            known, numbers = known[order], numbers[order]
            self.codes[name] = (known, numbers)
            self.count += len(new)
            index = np.searchsorted(known, codes)
        return np.asarray(numbers[index])

    def tuples(self, first: Collection[str]) -> Iterator[tuple[tuple[object, ...], int]]:
        """Yield the names that begin with one of some words, without the number behind them, and their numbers."""
        for name, number in self.of.items():
            if isinstance(name, tuple) and name[0] in first:
                yield name, number
        for name, (_, numbers) in self.codes.items():
            if name[0] in first:
                yield from ((name, number) for number in numbers.tolist())


@dataclass(frozen=True, kw_only=True)
class Interners:
    """Numbers of kinds, comparison classes and types, the same in all ranges of steps."""

    kinds: Interner = field(default_factory=Interner)
    comparison_classes: Interner = field(default_factory=Interner)
    types: Interner = field(default_factory=Interner)


@dataclass(kw_only=True)
class Operations:
    """The operations of all ranks in a range of steps, in blocks.

    Attributes:
        begin_ns: to which times of the run's clock refer.
        count: how many operations there are.
        task_count: how many tasks there are.
        exchanges: those of `GraphSteps`, in parts.
    """

    begin_ns: int
    count: int = 0
    task_count: int = 0
    exchanges: list[Exchanges] = field(default_factory=list)
    _blocks: dict[str, list[NDArray[np.generic]]] = field(default_factory=dict)
    _constants: dict[str, NDArray[np.generic] | None] = field(default_factory=dict)
    _edges: list[tuple[Int32, Int32]] = field(default_factory=list)
    _times: list[tuple[Int64, Int64, bool]] = field(default_factory=list)
    _left: list[Int64] = field(default_factory=list)

    def add(
        self,
        duration_ns: Int64,
        *,
        task: Int64,
        type: Int64 | int,  # noqa: A002
        rank: int,
        stage: Int64 | int = ABSENT,
        group: Int64 | int = ABSENT,
        network_link: Int64 | int = ABSENT,
    ) -> Int64:
        """Add k operations, and return their indexes, int64 [k]. All is as in `GraphSteps` and `build_graph`."""
        count = len(duration_ns)
        self._append(count, {"duration_ns": duration_ns, "task": task, "type": type, "rank": rank})
        self._append(count, {"stage": stage, "group": group, "network_link": network_link})
        self.count += count
        return np.arange(self.count - count, self.count)

    def add_tasks(
        self,
        kind: Int64,
        comparison_class: Int64,
        *,
        role: Int64 | int = WORK,
        host_task: Int64 | int = ABSENT,
        device_task: Int64 | int = ABSENT,
        host_share: Float64 | float = 0.0,
    ) -> Int64:
        """Add k tasks, and return their numbers, int64 [k]. All is as in `GraphSteps`."""
        count = len(kind)
        self._append(count, {"kind": kind, "comparison_class": comparison_class, "role": role})
        self._append(count, {"host_task": host_task, "device_task": device_task, "host_share": host_share})
        self.task_count += count
        return np.arange(self.task_count - count, self.task_count)

    def _append(self, count: int, columns: Mapping[str, Int64 | Float64 | float]) -> None:
        for name, values in columns.items():
            if isinstance(values, np.ndarray):
                block: NDArray[np.generic] = values.astype(_DTYPES.get(name, np.int32), copy=False)
                self._constants[name] = None
            else:
                constant = np.asarray(values, dtype=_DTYPES.get(name, np.int32))
                block = np.broadcast_to(constant, count)
                known = self._constants.setdefault(name, constant)
                self._constants[name] = constant if known is not None and known == constant else None
            self._blocks.setdefault(name, []).append(block)

    def wait(self, before: Int64, after: Int64) -> None:
        """Let operations wait for others, int64 [k] each; -1 is none."""
        known = before != ABSENT
        before, after = (before, after) if known.all() else (before[known], after[known])
        self._edges.append((before.astype(np.int32), after.astype(np.int32)))

    def wait_in_order(self, before: Int64, after: Int64, *, task: Int64, rank: int) -> None:
        """Let operations wait for others because the program says so, int64 [k] each, though no data does.

        They wait through operations that vanish with `NEVER_NS`. task: of these, int64 [1].
        """
        known = before != ABSENT
        before, after = before[known], after[known]
        if len(before):
            nothing = np.zeros(len(before), dtype=np.int64)
            through = self.add(nothing, task=np.broadcast_to(task, len(before)), type=ABSENT, rank=rank)
            self.wait(before, through)
            self.wait(through, after)

    def set_times(self, operations: Int64, duration_ns: Int64, *, add: bool = False) -> None:
        """Set how long operations last, or add to it: int64 [k] each, each operation at most once."""
        self._times.append((operations, duration_ns, add))

    def leave_group(self, operations: Int64) -> None:
        """Let operations synchronise with no others, int64 [k]."""
        self._left.append(operations)

    def column(self, name: str) -> Int64:
        """Return a column of the operations or tasks, int32 unless it is a time, and forget its blocks."""
        blocks = self._blocks.pop(name, [])
        constant = self._constants.get(name)
        if constant is not None and not (name == "group" and self._left):
            return np.broadcast_to(constant, sum(len(block) for block in blocks))  # which takes no memory
        column: Int64 = np.concatenate([np.empty(0, dtype=_DTYPES.get(name, np.int32)), *blocks])
        if name == "duration_ns":
            for operations, duration_ns, add in self._times:
                column[operations] = duration_ns + column[operations] if add else duration_ns
        if name == "group":
            for operations in self._left:
                column[operations] = ABSENT
        return column

    def edges(self) -> tuple[Int32, Int32]:
        """Return which operations others wait for, and those that wait, int32 [e] each, and forget their blocks."""
        none = np.empty(0, dtype=np.int32)
        before, after = (np.concatenate([none, *(edge[side] for edge in self._edges)]) for side in (0, 1))
        self._edges = []
        return before, after


@dataclass(frozen=True, kw_only=True, eq=False)
class RankReplay:
    """Where the operations of one rank are.

    Attributes:
        ends: the operations that end its steps, int64 [s].
        rows: rows of its communication that were issued in these steps, int64 [c].
        operations: the operation of each of them, int64 [c].
        arrived_ns: when the rank was ready for each of them, on the run's clock, int64 [c].
    """

    ends: Int64
    rows: Int64
    operations: Int64
    arrived_ns: Int64


def signature_of_step(interner: Interner, kind: Int64, size_bytes: Int64) -> int:
    """Return a number for what a rank communicates in a step: equal for the same kinds and sizes in order."""
    return interner["signature", kind.tobytes(), size_bytes.tobytes()]


def numbers_at_positions(interner: Interner, what: str, signature: Int64, slot: Int64) -> Int64:
    """Return the numbers of tasks at positions in steps, in order of time, int64 [k].

    signature: what the rank communicates in the step, int64 [k]. slot: how much of that it has issued, int64 [k].
    """
    result = np.empty(len(signature), dtype=np.int64)
    for number in dict.fromkeys(signature[np.flatnonzero(np.diff(signature, prepend=-1))].tolist()):
        here = signature == number
        result[here] = interner.behind((what, number), slot[here])
    return result


def numbers_of_transfers(
    interners: Interners, communication: Communication, signature: Int64, slot: Int64
) -> tuple[Int64, Int64]:
    """Return kind and comparison class of transfers, int64 [k] each: of one kind and size, among as many ranks.

    Where other ranks and steps may have other sizes, they have to be at the same position in a step as well.
    signature, slot: as in `numbers_at_positions`.
    """
    size_bytes = communication.comparable_size_bytes
    columns = (size_bytes, communication.kind, communication.members, np.where(communication.uneven, signature, -1))
    key = np.zeros(len(communication), dtype=np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values, index = np.unique(column, return_inverse=True)
            key = key * len(values) + index.reshape(-1)
    kinds, classes = np.empty((2, len(communication)), dtype=np.int64)
    for row in np.unique(key, return_index=True)[1].tolist():
        here = key == key[row]
        size, kind, members, of_step = (int(column[row]) for column in columns)
        name = ("transfer", KINDS[kind], size, members)
        for interner, result in ((interners.kinds, kinds), (interners.comparison_classes, classes)):
            uneven = communication.uneven[row]
            result[here] = interner.behind((*name, of_step), slot[here]) if uneven else interner[name]
    return kinds, classes


def roles_of_transfers(communication: Communication) -> Int64 | int:
    """Return the roles of transfers, int64 [k], or that of all of them."""
    roles = np.select([communication.purpose == REGATHERED, communication.purpose == ACCUMULATED], [REGATHER, EARLY])
    return roles if roles.any() else WORK


class ProgramOrder:
    """Lets the communication of one rank wait for work, and work for it."""

    def __init__(self, operations: Operations, interners: Interners, rank: int, purpose: Int64) -> None:
        """purpose: of the rank's communication, int64 [c]."""
        self.operations, self.interners, self.rank, self.purpose = operations, interners, rank, purpose
        self._task: Int64 | None = None

    def _wait(self, before: Int64, after: Int64, by_program: Bool) -> None:
        self.operations.wait(before[~by_program], after[~by_program])
        if not by_program.any():
            return
        if self._task is None:
            names = [(PROGRAM_ORDER,)]
            kind, label = self.interners.kinds.numbers(names), self.interners.comparison_classes.numbers(names)
            self._task = self.operations.add_tasks(kind, label)
        self.operations.wait_in_order(before[by_program], after[by_program], task=self._task, rank=self.rank)

    def launched_after(self, work: Int64, transfers: Int64, rows: Int64 | None = None) -> None:
        """Let communication wait for the work before it, int64 [k] each; -1 is none.

        rows: of the communication, int64 [k]; None: all.
        """
        known = work != ABSENT
        purpose = self.purpose if rows is None else self.purpose[rows]
        self._wait(work[known], transfers[known], np.isin(purpose[known], _GATHERS))

    def known_since(self, step_ends: Int64, transfers: Int64) -> None:
        """Let parameters wait for the end of the step before, which made them, int64 [c] each.

        They stay in the order of their process group, so that reductions that were issued before them go first.
        """
        gathers = np.isin(self.purpose, _GATHERS)
        self.operations.wait(step_ends[gathers], transfers[gathers])

    def await_all(self, transfers: Int64, waiting: Int64, order: Int64, step: Int64, rows: Int64 | None = None) -> None:
        """Let work wait for communication; for gradients only the last work of the step that does.

        transfers, waiting: the operations, int64 [k] each; a missing one is -1. order: ascending with the time at
        which the rank waits, int64 [k]. step: in which the communication was issued, int64 [k]. rows: of the
        communication, int64 [k].
        """
        known = np.flatnonzero((waiting != ABSENT) & (transfers != ABSENT))
        transfers, waiting, order, step = transfers[known], waiting[known], order[known], step[known]
        gradients = np.isin((self.purpose if rows is None else self.purpose[rows])[known], (GRADIENTS, ACCUMULATED))
        last = np.full(int(step.max(initial=0)) + 1, ABSENT)
        np.maximum.at(last, step[gradients], order[gradients])
        early = gradients & (order < last[step])
        self._wait(transfers, waiting, early)
        if early.any():
            final = np.full(len(last), ABSENT)
            at_last = gradients & ~early
            final[step[at_last]] = waiting[at_last]
            self.operations.wait(transfers[early], final[step[early]])
