"""By how much longer than their peers ranks work in a step, and which ones stand out, alone or together.

A rank's own time in a step is the step without its exposed communication: compute, copies and idle time. Ranks that run
the same program take equally long for it, and slow ones among them take longer in every step. This needs no common
clock, and finds ranks that are slow so equally that none of them is late to the others, such as all ranks of one
machine. Ranks run the same program if they are in one process group, whose ranks all communicate alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from tracekit.explain.stragglers.delay_attribution import MORE_OPERATIONS
from tracekit.model.events import Bool, Int64
from tracekit.model.run import Run
from tracekit.model.summary import RankSummary, StepParts
from tracekit.stats.connected_components import connected_components
from tracekit.stats.grouped import grouped
from tracekit.stats.uncertainty import leave_one_out_medians

_EXPLAINED = 0.25  # of how much longer ranks compute, by the share of additional operations
_MANY_OPERATIONS = 10  # in a step; of fewer a single one may take all the time
_NAMED = 3  # machines and groups that may stand out


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkTimes:
    """How long k ranks work in s steps.

    Attributes:
        run: the ranks' run.
        steps: the numbers of the steps.
        rank_indexes: of the ranks in `run.ranks`.
        program: int64 [k], equal for ranks that run the same program.
        own_ns: int64 [s, k], their own times.
    """

    run: Run
    steps: Sequence[int]
    rank_indexes: tuple[int, ...]
    program: Int64
    own_ns: Int64

    def beyond_peers(self, values: Int64, slow: Bool) -> Int64:
        """Return by how much values, int64 [s, k], exceed the median of peers that are not slow, int64 [s, k].

        slow: bool [k]. Without such a peer it is 0 (`is_compared`).
        """
        result = np.zeros_like(values)
        for program in np.unique(self.program).tolist():
            here = np.flatnonzero(self.program == program)
            usual = np.broadcast_to(~slow[here], (len(values), len(here)))
            result[:, here] = values[:, here] - _medians_of_others(values[:, here], usual)
        return np.where(self.is_compared(slow), result, 0)

    def is_compared(self, slow: Bool) -> Bool:
        """Return a mask [k] of the ranks that have another peer that is not slow."""
        usual = np.bincount(self.program, weights=~slow)[self.program]
        return np.asarray(usual - ~slow > 0)

    def standing_out(self, first: int) -> list[tuple[int, ...]]:
        """Return which ranks stand out in the steps from `first` on, each set by its indexes in the run's ranks.

        One set is those above the largest gap in how much longer they work, medians over the steps; it holds no more
        than half of each program. The others are the machines and process groups whose ranks work longest.
        """
        nobody = np.zeros(len(self.rank_indexes), dtype=np.bool_)
        longer_ns = np.median(self.beyond_peers(self.own_ns, nobody)[first:], axis=0)
        order = np.argsort(-longer_ns, kind="stable")
        gaps_ns = longer_ns[order][:-1] - longer_ns[order][1:]
        found: list[tuple[int, ...]] = []
        for count in (np.argsort(-gaps_ns, kind="stable") + 1).tolist():
            above = np.isin(np.arange(len(order)), order[:count])
            if longer_ns[above].min() > 0 and self._is_minority(above):
                found.append(self._rank_indexes_of(above))
                break
        named = [
            (float(np.median(longer_ns[self.mask(rank_indexes)])), rank_indexes) for rank_indexes in self.named_sets
        ]
        longest = sorted((n for n in named if n[0] > 0), reverse=True)[:_NAMED]
        return list(
            dict.fromkeys(
                [*found, *(rank_indexes for _, rank_indexes in longest if self._is_minority(self.mask(rank_indexes)))]
            )
        )

    def mask(self, rank_indexes: Sequence[int]) -> Bool:
        """Return a mask [k] of these indexes in the run's ranks."""
        return np.isin(np.array(self.rank_indexes), np.array(rank_indexes))

    def cause(self, rank_indexes: Sequence[int], first: int) -> str:
        """Return what most of the additional time of slow ranks is: compute, more_work, host or data."""
        slow = self.mask(rank_indexes)
        compute_ns, _ = self._longer(slow, self.compute_ns, first)
        data_ns, _ = self._longer(slow, self._per_step(lambda part: max(part.data_ns or 0, 0)), first)
        longer_ns, _ = self._longer(slow, self.own_ns, first)
        additional, usual = self._additional_operations(rank_indexes, first)
        more = additional > MORE_OPERATIONS * usual and self.may_be_more_work(rank_indexes, first)
        host_ns = longer_ns - compute_ns - data_ns
        by_cause = {"more_work" if more else "compute": compute_ns, "host": host_ns, "data": data_ns}
        return max(by_cause, key=lambda cause: by_cause[cause])

    def longer_compute_ns(self, rank_indexes: Sequence[int], first: int) -> float:
        """Return how much longer slow ranks compute than their peers in the mean step; 0 without peers."""
        slow = self.mask(rank_indexes)
        return float(self.beyond_peers(self.compute_ns, slow)[first:][:, slow].mean()) if slow.any() else 0.0

    def _additional_operations(self, rank_indexes: Sequence[int], first: int) -> tuple[float, float]:
        """Return how many more operations slow ranks begin in a step than their peers, and how many these begin."""
        operations = np.stack(
            [_operations(self.run.ranks[rank_index], self.steps) for rank_index in self.rank_indexes], axis=1
        )
        # Operations before the first collective are those of a part of a step.
        additional, usual = self._longer(self.mask(rank_indexes), operations, max(first, int(len(self.steps) > 1)))
        return additional, max(usual, 1.0)

    def may_be_more_work(self, rank_indexes: Sequence[int], first: int) -> bool:
        """Return whether slow ranks compute longer for their additional operations. They may, where none are counted.

        One more operation that takes very long, such as one that sleeps, is no more work. Many more may take long.
        """
        more_ns, usual_ns = self._longer(self.mask(rank_indexes), self.compute_ns, first)
        additional, usual = self._additional_operations(rank_indexes, first)
        explains = additional / usual >= _EXPLAINED * more_ns / max(usual_ns, 1.0)
        return usual <= 1 or additional >= _MANY_OPERATIONS or explains

    def _longer(self, slow: Bool, values: Int64, first: int) -> tuple[float, float]:
        """Return by how much larger values, int64 [s, k], of slow ranks are than those of their peers, and these."""
        beyond = self.beyond_peers(values, slow)[first:][:, slow]
        usual = values[first:][:, slow] - beyond
        return float(np.median(beyond, axis=0).mean()), float(np.median(usual, axis=0).mean())

    @cached_property
    def compute_ns(self) -> Int64:
        """Return how long the ranks compute, int64 [s, k]."""
        return self._per_step(lambda part: part.compute_ns)

    def rank_indexes_like(self, rank_indexes: Sequence[int]) -> list[int]:
        """Return the indexes of all ranks that run the program of one of these."""
        programs = np.unique(self.program[self.mask(rank_indexes)])
        return [index for index, own in zip(self.rank_indexes, self.program, strict=True) if own in programs]

    def in_steps(self, chosen: Bool) -> WorkTimes:
        """Return those of some of the steps, bool [s]."""
        steps = [step for step, here in zip(self.steps, chosen.tolist(), strict=True) if here]
        return replace(self, steps=steps, own_ns=self.own_ns[chosen])

    def _per_step(self, value: Callable[[StepParts], int]) -> Int64:
        return _per_step(
            [{part.step: part for part in self.run.ranks[p].steps} for p in self.rank_indexes], self.steps, value
        )

    def _is_minority(self, slow: Bool) -> bool:
        """Return whether at most half of the ranks of each program are slow."""
        count = np.bincount(self.program)
        return bool((np.bincount(self.program, weights=slow) <= count / 2).all())

    def _rank_indexes_of(self, mask: Bool) -> tuple[int, ...]:
        return tuple(sorted(rank_index for rank_index, here in zip(self.rank_indexes, mask, strict=True) if here))

    @cached_property
    def named_sets(self) -> list[tuple[int, ...]]:
        """Return the ranks of each machine and of each process group, two or more and not all."""
        machines = grouped((self.run.ranks[rank_index].machine, rank_index) for rank_index in self.rank_indexes)
        machines.pop(None, None)
        index_of = {self.run.ranks[rank_index].rank: rank_index for rank_index in self.rank_indexes}
        groups = [[index_of[rank] for rank in group.ranks if rank in index_of] for group in self.run.groups]
        sets = dict.fromkeys(tuple(sorted(members)) for members in (*machines.values(), *groups))
        return [members for members in sets if 2 <= len(members) < len(self.rank_indexes)]


def work_times(run: Run, steps: Sequence[int]) -> WorkTimes | None:
    """Return how long ranks work that have peers; None if there are none."""
    programs = _same_program(run, steps)
    rank_indexes = tuple(rank_index for peers in programs for rank_index in peers)
    if not rank_indexes:
        return None
    parts = [{part.step: part for part in run.ranks[rank_index].steps} for rank_index in rank_indexes]
    return WorkTimes(
        run=run,
        steps=steps,
        rank_indexes=rank_indexes,
        program=np.repeat(np.arange(len(programs)), [len(peers) for peers in programs]),
        own_ns=_per_step(parts, steps, lambda part: part.step_ns - part.exposed_comm_ns),
    )


def _medians_of_others(values: Int64, usual: Bool) -> Int64:
    """Return for each rank the median of the usual ones without itself, int64 [s, k]."""
    return leave_one_out_medians(values, np.ascontiguousarray(usual))


def _per_step(parts: Sequence[dict[int, StepParts]], steps: Sequence[int], value: Callable[[StepParts], int]) -> Int64:
    """Return a value of s steps on k ranks, int64 [s, k]."""
    return np.array([[value(of_rank[step]) for of_rank in parts] for step in steps], dtype=np.int64)


def _operations(summary: RankSummary, steps: Sequence[int]) -> Int64:
    """Return how many operations a rank began from the last collective of one step to that of the next, int64 [s]."""
    collectives = summary.collectives
    last = [int(rows[-1]) if len(rows := np.flatnonzero(collectives.step == step)) else -1 for step in steps]
    totals = np.array([collectives.operations[row] if row >= 0 else 0 for row in last], dtype=np.int64)
    return np.diff(totals, prepend=0)


def _same_program(run: Run, steps: Sequence[int]) -> list[list[int]]:
    """Return sets of indexes of ranks that run the same program, two or more each."""
    wanted = np.array(sorted(steps), dtype=np.int64)
    signature = [_signature(summary, wanted) for summary in run.ranks]
    pairs: list[tuple[int, int]] = []
    for matched in run.collectives:
        members = [run.index_of_rank[rank] for rank in matched.ranks.tolist()]
        if len({signature[member] for member in members}) == 1:
            pairs += pairwise(members)
    sets = ([m for m in peers if run.ranks[m].is_measured] for peers in connected_components(pairs))
    return [peers for peers in sets if len(peers) >= 2]


def _signature(summary: RankSummary, steps: Int64) -> tuple[bytes, ...]:
    """Return what tells ranks apart that run different programs: what they communicate in these steps, in order."""
    collectives, messages = summary.collectives, summary.messages
    rows, of_messages = np.isin(collectives.step, steps), np.isin(messages.step, steps)
    return (
        collectives.kind[rows].tobytes(),
        messages.is_send[of_messages].tobytes(),
        messages.size_bytes[of_messages].tobytes(),
    )
