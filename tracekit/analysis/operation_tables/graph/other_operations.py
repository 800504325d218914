"""Operations of a rank besides forwards, backwards and messages: when they run, and what they delay.

    rank 3   | backward 7 |  | all-reduce |   | optimizer |       each waits for the one before it
    rank 7   | backward 7 |      | all-reduce | optimizer |       the all-reduces synchronise the replicas

An operation waits for the last forward or backward that ended before it began, and for the other operation before it.
What lies between two forwards or backwards delays the second. What runs beside them delays none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.analysis.operation_tables.graph.graph_builder import OTHER_KINDS, TYPES, GraphBuilder
from tracekit.analysis.operation_tables.operations import COLLECTIVES, KINDS, Operations
from tracekit.model.events import ABSENT, Int64

__all__ = [
    "AddedOthers",
    "OtherOperations",
    "RankActions",
    "add_others",
    "others_by_step",
    "synchronised_collectives",
]

_TYPE_OF_KIND = np.array([TYPES.index(kind) if kind in OTHER_KINDS else ABSENT for kind in KINDS])


@dataclass(frozen=True, kw_only=True, eq=False)
class OtherOperations:
    """m other operations of a rank in a step, by start.

    Attributes:
        kinds: indices into `KINDS`.
        start_ns: int64 [m].
        end_ns: int64 [m].
    """

    kinds: tuple[int, ...]
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class RankActions:
    """The n forwards and backwards of a rank, in its order, in k steps.

    Attributes:
        numbers: of the operations in the graph, int64 [n].
        start_ns: int64 [n, k].
        end_ns: int64 [n, k].
    """

    numbers: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass(frozen=True, kw_only=True, eq=False)
class AddedOthers:
    """m other operations in the graph, in k steps.

    Attributes:
        numbers: of the operations in the graph, int64 [m].
        kinds: indices into `KINDS`.
        start_ns: int64 [m, k].
        end_ns: int64 [m, k].
        delays: the place of the rank's forward or backward that each delays, int64 [m], or -1.
    """

    numbers: Int64
    kinds: tuple[int, ...]
    start_ns: Int64
    end_ns: Int64
    delays: Int64


def others_by_step(operations: Operations) -> dict[int, dict[int, OtherOperations]]:
    """Return the other operations by step and rank."""
    rest = operations.rows(operations.of_kinds(OTHER_KINDS))
    result: dict[int, dict[int, OtherOperations]] = defaultdict(dict)
    opens = np.flatnonzero((np.diff(np.stack((rest.step, rest.rank)), axis=1, prepend=ABSENT - 1) != 0).any(axis=0))
    for first, stop in zip(opens.tolist(), [*opens[1:].tolist(), len(rest)][: len(opens)], strict=True):
        rows = rest.rows(slice(first, stop))
        result[int(rows.step[0])][int(rows.rank[0])] = OtherOperations(
            kinds=tuple(rows.kind.tolist()), start_ns=rows.start_ns, end_ns=rows.end_ns
        )
    return result


def add_others(
    builder: GraphBuilder, others: Sequence[OtherOperations], actions: RankActions, origin_ns: Int64, *, rank: int
) -> AddedOthers:
    """Add the other operations of a rank to the graph. others: of each step, of the same kinds.

    origin_ns: when each step began, int64 [k]: what waits for nothing is paused since then.
    """
    start_ns, end_ns = (np.stack([getattr(rest, name) for rest in others], axis=1) for name in ("start_ns", "end_ns"))
    kinds = others[0].kinds
    after, delays = _neighbours(actions, start_ns, end_ns)
    numbers = builder.add(end_ns - start_ns, type=_TYPE_OF_KIND[list(kinds)], rank=rank)
    ended = np.vstack((origin_ns, actions.end_ns))  # of the actions, behind the begin of the step
    ready_ns = ended[after + 1]
    follows = np.zeros(len(kinds), dtype=np.bool_)
    follows[1:] = (end_ns[:-1] <= start_ns[1:]).all(axis=1)
    ready_ns[1:][follows[1:]] = np.maximum(ready_ns[1:], end_ns[:-1])[follows[1:]]
    waits = [
        (np.where(after == ABSENT, ABSENT, actions.numbers[after]), numbers),
        (np.where(follows, np.roll(numbers, 1), ABSENT), numbers),
    ]
    builder.wait_with_pauses(waits, numbers, start_ns - ready_ns)
    return AddedOthers(numbers=numbers, kinds=kinds, start_ns=start_ns, end_ns=end_ns, delays=delays)


def _neighbours(actions: RankActions, start_ns: Int64, end_ns: Int64) -> tuple[Int64, Int64]:
    """Return the place of the action that each other operation follows in most steps, and of the one that it delays,
    int64 [m] each, or -1.
    """
    steps = start_ns.shape[1]
    ended, begun = np.empty((2, *start_ns.shape), dtype=np.int64)
    for step in range(steps):
        ended[:, step] = np.searchsorted(np.maximum.accumulate(actions.end_ns[:, step]), start_ns[:, step], "right")
        begun[:, step] = np.searchsorted(actions.start_ns[:, step], end_ns[:, step])
    middle = (steps - 1) // 2
    after, before = (np.sort(places, axis=1)[:, middle] for places in (ended, begun))
    serial = (after == before) & (before < len(actions.numbers))
    return after - 1, np.where(serial, before, ABSENT)


def synchronised_collectives(added: Sequence[tuple[int, AddedOthers]], replicas: int) -> list[tuple[Int64, int, Int64]]:
    """Return the collectives that all replicas have: their operations, a number, and how long they take once the last
    rank has come, int64 [m, k].

    added: with the first stage of the rank. The n-th collective of a kind and stage is the same one.
    """
    members: dict[tuple[int, int, int], list[tuple[AddedOthers, int]]] = defaultdict(list)
    for stage, others in added:
        seen: dict[int, int] = defaultdict(int)
        for place, kind in enumerate(others.kinds):
            if KINDS[kind] in COLLECTIVES:
                members[stage, kind, seen[kind]].append((others, place))
                seen[kind] += 1
    result = []
    for number, of_group in enumerate(group for group in members.values() if len(group) == replicas > 1):
        arrived_ns = np.max([others.start_ns[place] for others, place in of_group], axis=0)
        transfer_ns = np.stack([others.end_ns[place] - arrived_ns for others, place in of_group])
        result.append((np.array([others.numbers[place] for others, place in of_group]), number, transfer_ns))
    return result
