"""What waits for what in one training step of one replica of a Megatron-style job, from the types of its operations.

The rules are those of `megatron_graph`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from tracekit.model.events import ABSENT, Int64

__all__ = [
    "BACKWARD",
    "CHAIN",
    "COMMUNICATION",
    "DIRECTION",
    "FORWARD",
    "IS_SEND",
    "OPTYPES",
    "Template",
    "UnfitStepError",
    "build_template",
]

OPTYPES = (
    "forward-compute",
    "backward-compute",
    "forward-send",
    "forward-recv",
    "backward-send",
    "backward-recv",
    "params-all-gather",
    "grads-reduce-scatter",
    "gc",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
)
FORWARD, BACKWARD = 0, 1
_GATHER, _REDUCE, _PAUSE, _NORMS, _EMBEDDING, _SEPARATE, _CLIP, _OPTIMIZER = range(6, 14)
COMMUNICATION = frozenset((2, 3, 4, 5, _GATHER, _REDUCE, _NORMS, _EMBEDDING, _SEPARATE, _CLIP))
"""Codes of the types that transfer. A code is an index into `OPTYPES`."""
DIRECTION = np.array([0, 1, 0, 0, 1, 1, *(-1,) * 8])
"""Of each type the pass that it belongs to: forward 0, backward 1, neither -1."""
IS_SEND = np.array([code in (2, 4) for code in range(len(OPTYPES))])
CHAIN = np.array([0, 0, 2, 3, 4, 5, 1, 1, *range(8, 14)])
"""Of each type its chain. Operations of one chain run in order: computations, and collectives of sharded parameters."""
_NEXT_CHUNK = {2: 1, 3: -1, 4: -1, 5: 1}


class UnfitStepError(ValueError):
    """The operations of a step do not fit the rules."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """The dependencies of n operations, for every replica and step with the same operations in the same order.

    Attributes:
        before: int64 [e], the operation that `after` waits for.
        after: int64 [e].
        local: int64 [n], equal for operations that synchronise within the replica; -1 for the others.
        across: int64 [n], equal for operations that synchronise with those of other replicas; -1 for the others.
    """

    before: Int64
    after: Int64
    local: Int64
    across: Int64


@dataclass(kw_only=True)
class _Edges:
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    def add(self, before: int, after: int) -> None:
        self.before.append(before)
        self.after.append(after)

    def chain(self, operations: list[int]) -> None:
        for before, after in pairwise(operations):
            self.add(before, after)


def build_template(operations: Int64, *, stages: int, chunks: int, overlapped: bool) -> Template:
    """Return the dependencies of the operations of one replica in one step.

    operations: int64 [n, 7], by stage, chain and place in the chain. The columns are stage, type, number, chunk in the
    stage, chunk in the model, microbatch, and whether a send or receive lies outside of its pass's computations.
    overlapped: whether gradients are reduced during the backward pass.

    Raises UnfitStepError when the operations do not fit the rules.
    """
    stage, code, number, chunk, model_chunk, _, outside = operations.T
    edges = _Edges()
    local = np.full(len(operations), -1, dtype=np.int64)
    sends: dict[tuple[int, int, int], int] = {}
    receives: dict[tuple[int, int, int], int] = {}
    batch = _microbatches(operations)
    for number_of_stage in range(stages):
        rows = np.flatnonzero(stage == number_of_stage)
        of = {kind: rows[code[rows] == kind].tolist() for kind in range(len(OPTYPES))}
        computations = rows[code[rows] <= BACKWARD].tolist()
        if not computations:
            raise UnfitStepError(f"stage {number_of_stage} computes nothing")
        edges.chain(computations)
        for kind, delta in _NEXT_CHUNK.items():
            edges.chain(of[kind])
            inside = [row for row in of[kind] if not outside[row]]
            needed = of[int(DIRECTION[kind])]
            # With virtual stages the very first receive, which has no peer, may not be recorded.
            at_the_end = number_of_stage in (0, stages - 1)
            skipped = 1 if not IS_SEND[kind] and len(inside) == len(needed) - 1 and at_the_end else 0
            if inside and len(inside) + skipped != len(needed):
                what = f"{len(inside)} {OPTYPES[kind]} for {len(needed)} computations"
                raise UnfitStepError(f"{what} on stage {number_of_stage}")
            for i, row in enumerate(inside, start=skipped):
                computation = needed[i]
                peer_chunk = int(model_chunk[computation]) + delta
                key = (int(DIRECTION[kind]), peer_chunk if IS_SEND[kind] else int(model_chunk[computation]))
                if IS_SEND[kind]:
                    edges.add(computation, row)
                else:
                    edges.add(row, computation)
                    if i > 0:
                        edges.add(needed[i - 1], row)
                if 0 <= peer_chunk < chunks:
                    (sends if IS_SEND[kind] else receives)[*key, batch[computation]] = row
        _first_backward(edges, computations, code, of)
        _sharded(edges, of, chunk, overlapped)
        _after_computations(edges, computations[-1], of, overlapped)
    if unmet := sends.keys() ^ receives.keys():
        direction, where, which = min(unmet)
        has, lacks = ("send", "receive") if (direction, where, which) in sends else ("receive", "send")
        raise UnfitStepError(f"the {('forward', 'backward')[direction]} {has} {which} of chunk {where} has no {lacks}")
    for group, key_of_both in enumerate(sorted(sends)):
        local[[sends[key_of_both], receives[key_of_both]]] = group
    shared = np.flatnonzero(code == _EMBEDDING)
    local[shared] = len(sends) + number[shared]
    return Template(
        before=np.array(edges.before, dtype=np.int64),
        after=np.array(edges.after, dtype=np.int64),
        local=local,
        across=_across(stage, code, number, stages),
    )


def _microbatches(operations: Int64) -> list[int]:
    """Return which microbatch of its chunk each computation is: as recorded, otherwise by order."""
    code, model_chunk, microbatch = operations[:, 1], operations[:, 4], operations[:, 5]
    rows = np.flatnonzero(code <= BACKWARD)
    named = {(code[i], model_chunk[i], microbatch[i]) for i in rows.tolist()}
    result: list[int] = microbatch.tolist()
    if len(named) == len(rows) and (microbatch[rows] >= 0).all():
        return result
    seen: Counter[tuple[int, int]] = Counter()
    for i in rows.tolist():
        key = (int(code[i]), int(model_chunk[i]))
        result[i] = seen[key]
        seen[key] += 1
    return result


def _first_backward(edges: _Edges, computations: list[int], code: Int64, of: dict[int, list[int]]) -> None:
    """Post the first exchange of gradients before the last forward of the warm-up."""
    first = next((i for i, row in enumerate(computations) if code[row] == BACKWARD), 0)
    if first >= 2:
        for kind in (4, 5):
            for row in of[kind][:1]:
                edges.add(computations[first - 2], row)


def _sharded(edges: _Edges, of: dict[int, list[int]], chunk: Int64, overlapped: bool) -> None:
    """Gather parameters before the first forward of their chunk, reduce gradients after its last backward."""
    order = sorted(of[_GATHER] + of[_REDUCE])  # one chain, in the order of the rows
    edges.chain(order)
    last_gather = {int(chunk[row]): row for row in of[_GATHER]}
    first_forward = {int(chunk[row]): row for row in reversed(of[FORWARD])} | {ABSENT: next(iter(of[FORWARD]), ABSENT)}
    for which, row in last_gather.items():
        needing = first_forward.get(max(which, ABSENT), ABSENT)
        if needing != ABSENT:
            edges.add(row, needing)
    if not overlapped:
        return
    first_reduce: dict[int, int] = {}
    for row in of[_REDUCE]:
        first_reduce.setdefault(int(chunk[row]), row)
    last_backward = {int(chunk[row]): row for row in of[BACKWARD]} | {ABSENT: next(reversed(of[BACKWARD]), ABSENT)}
    for which, row in first_reduce.items():
        making = last_backward.get(max(which, ABSENT), ABSENT)
        if making != ABSENT:
            edges.add(making, row)


def _after_computations(edges: _Edges, last: int, of: dict[int, list[int]], overlapped: bool) -> None:
    """Run the reductions that are left, clipping and the optimizer one after another, behind the last computation."""
    first = [last]
    for row in of[_PAUSE]:
        edges.add(last, row)
        first = [row]
    if overlapped:
        first += of[_REDUCE][-1:]
        order = (_NORMS, _EMBEDDING, _SEPARATE, _CLIP, _OPTIMIZER)
    else:
        order = (_NORMS, _EMBEDDING, _REDUCE, _CLIP, _OPTIMIZER)
    rest = [row for kind in order for row in of[kind]]
    edges.chain(rest)
    for row in rest[:1]:
        for before in first:
            edges.add(before, row)


def _across(stage: Int64, code: Int64, number: Int64, stages: int) -> Int64:
    """Return a number, int64 [n], equal for operations that synchronise over replicas; -1 for the others.

    These are collectives of data parallelism. Clipping synchronises all stages as well.
    """
    synchronises = np.isin(code, (_GATHER, _REDUCE, _SEPARATE, _CLIP))
    where = np.where(code == _CLIP, 0, stage)
    return np.where(synchronises, (code * stages + where) * (1 << 32) + number, -1)
