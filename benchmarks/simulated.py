"""Simulated runs with a known truth, as summaries and matches without traces. Times are nanoseconds.

Ranks work, meet in collectives and send each other messages.

    cluster = Cluster(4)
    for _ in cluster.steps(5):
        cluster.work(2, compute=150)
        for rank in (0, 1, 3):
            cluster.work(rank, compute=100)
        cluster.collective((0, 1, 2, 3), transfer=10)
    run = cluster.run()
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.exchanges import rank as summary_of
from benchmarks.exchanges import run_of
from tracekit.explain.step_time.timelines import INTERVALS, STEP_TIMELINES, StepTimelines
from tracekit.model.communication import KINDS, Collectives, GroupKey, MatchedGroup, MatchedMessages, Messages
from tracekit.model.run import ClockModel, Run
from tracekit.model.summary import StepParts

_EMPTY = {"compute": 0, "data": 0}
START_NS = 10**12  # no clock that is behind by less shows a negative time, as no recorded one does


@dataclass
class _Rank:
    now: int = START_NS
    since: int = START_NS
    done: dict[str, int] = field(default_factory=lambda: dict(_EMPTY))
    begun: dict[str, int] = field(default_factory=lambda: {"operations": 0, "work_ns": 0, "work": 0})
    rows: list[dict[str, int]] = field(default_factory=list)
    messages: list[dict[str, int]] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)  # number, start, end, compute, waiting, data


class Cluster:
    """A simulated run. `offsets` say how far each rank's clock is ahead, and `error` is the error that the run
    knows.
    """

    def __init__(self, ranks: int, *, offsets: Sequence[int] = (), error: int = 0) -> None:
        self.ranks = [_Rank() for _ in range(ranks)]
        self.offsets = [*offsets, *[0] * (ranks - len(offsets))]
        self.error = error
        self.groups: dict[tuple[int, ...], list[dict[int, int]]] = defaultdict(list)
        self.meta: dict[tuple[int, ...], list[tuple[int, int, int]]] = defaultdict(list)
        self.pairs: list[tuple[int, int, int, int, int]] = []
        self.number = 0

    def steps(self, count: int) -> Iterator[int]:
        for self.number in range(count):
            for rank in self.ranks:
                rank.steps.append([self.number, rank.now, rank.now, 0, 0, 0])
            yield self.number
            for rank in self.ranks:
                rank.steps[-1][2] = rank.now

    def work(self, rank: int, *, compute: int = 0, data: int = 0, host: int = 0, operations: int = 10) -> None:
        """Let a rank work; if it computes, that is `operations` operations of equal work."""
        state = self.ranks[rank]
        state.now += compute + data + host
        state.done["compute"] += compute
        state.done["data"] += data
        state.begun["operations"] += operations * (compute > 0)
        state.begun["work_ns"] += compute
        state.begun["work"] += 7 * operations * (compute > 0)
        state.steps[-1][3] += compute
        state.steps[-1][5] += data

    def larger(self, rank: int) -> None:
        """Let the rank's next compute have other shapes."""
        self.ranks[rank].begun["work"] += 1

    def collective(
        self,
        members: Sequence[int],
        *,
        transfer: int = 10,
        kind: str = "all_reduce",
        size_bytes: int = 64,
        root: int | None = None,
    ) -> None:
        """Let `members` meet in a collective. A `root` waits for all others, which leave when they have sent."""
        members = tuple(members)
        arrival = max(self.ranks[member].now for member in members)
        self.meta[members].append((KINDS.index(kind), self.number, size_bytes))
        instance = {}
        for member in members:
            state = self.ranks[member]
            end = (arrival if root in (None, member) else state.now) + transfer
            instance[member] = len(state.rows)
            state.rows.append(
                {"group": members, "kind": KINDS.index(kind), "size_bytes": size_bytes, "step": self.number}  # type: ignore[arg-type]
                | {"released_ns": state.since, "start_ns": state.now, "end_ns": end, **state.done, **state.begun}
            )
            state.steps[-1][4] += end - state.now
            self._release(state, end)
        self.groups[members].append(instance)

    def message(
        self, source: int, destination: int, *, transfer: int = 10, size_bytes: int = 64, posted_before: int = 0
    ) -> None:
        """Send a message. The sender does not wait for it. The receiver does, and posted it `posted_before` earlier."""
        sender, receiver = self.ranks[source], self.ranks[destination]
        posted = receiver.now - posted_before
        end = max(max(sender.now, posted) + transfer, receiver.now)
        self.pairs.append((source, len(sender.messages), destination, len(receiver.messages), self.number))
        times = ((sender, destination, 1, sender.now, -1), (receiver, source, 0, posted, receiver.now))
        for state, peer, sends, at, awaited in times:
            state.messages.append(
                {"peer": peer, "is_send": sends, "at": at, "awaited": awaited, "end": end}
                | {"step": self.number, "size": size_bytes}
            )
        receiver.steps[-1][4] += end - receiver.now
        self._release(receiver, end)

    def _release(self, state: _Rank, at: int) -> None:
        state.now = state.since = at
        state.done = dict(_EMPTY)

    def run(self, **others: Any) -> Run:
        groups = tuple(sorted(GroupKey(description="", ranks=members) for members in self.groups))
        place = {group.ranks: i for i, group in enumerate(groups)}
        summaries = [
            summary_of(
                i,
                groups=groups,
                world_size=len(self.ranks),
                steps=[step[0] for step in state.steps],
                collectives=self._collectives(state, place, self.offsets[i]),
            )
            for i, state in enumerate(self.ranks)
        ]
        summaries = [
            replace(
                summary.with_part(STEP_TIMELINES, _timelines(state.steps, offset)),
                messages=_messages(state, offset),
                steps=tuple(_parts(step, offset) for step in state.steps),
            )
            for summary, state, offset in zip(summaries, self.ranks, self.offsets, strict=True)
        ]
        matched_groups = tuple(
            MatchedGroup(
                group=place[members],
                matched_by="seq",
                ranks=np.array(members, dtype=np.int32),
                row=np.array([[instance[m] for instance in instances] for m in members], dtype=np.int64),
                kind=np.array([kind for kind, _, _ in self.meta[members]], dtype=np.int32),
                step=np.array([step for _, step, _ in self.meta[members]], dtype=np.int64),
                size_bytes=np.array([size for _, _, size in self.meta[members]], dtype=np.int64),
            )
            for members, instances in sorted(self.groups.items())
        )
        columns = np.array(self.pairs, dtype=np.int64).reshape(-1, 5).T
        messages = MatchedMessages(
            source=columns[0].astype(np.int32),
            send=columns[1],
            destination=columns[2].astype(np.int32),
            recv=columns[3],
            step=columns[4],
        )
        clocks = tuple(
            ClockModel(rank=i, method="probe", offset_ns=offset, error_ns=self.error)
            for i, offset in enumerate(self.offsets)
        )
        fields = {"groups": groups, "collectives": matched_groups, "messages": messages, "clocks": clocks}
        return run_of(summaries, **fields | others)

    @staticmethod
    def _collectives(state: _Rank, place: dict[tuple[int, ...], int], offset: int) -> Collectives:
        if not state.rows:
            return Collectives.empty()

        def column(name: str, shift: int = 0) -> np.ndarray:
            return np.array([row[name] + shift for row in state.rows], dtype=np.int64)

        return Collectives(
            group=np.array([place[row["group"]] for row in state.rows], dtype=np.int32),  # type: ignore[index]
            kind=column("kind").astype(np.int32),
            sequence=np.arange(len(state.rows), dtype=np.int64),
            step=column("step"),
            size_bytes=column("size_bytes"),
            dtype=np.full(len(state.rows), -1, dtype=np.int32),
            launch_ns=column("start_ns", offset),
            ready_ns=column("start_ns", offset),
            start_ns=column("start_ns", offset),
            end_ns=column("end_ns", offset),
            waited_ns=column("end_ns") - column("start_ns"),
            released_ns=column("released_ns", offset),
            queued_ns=np.full(len(state.rows), -1),
            compute_ns=column("compute"),
            data_ns=column("data"),
            operations=column("operations"),
            work_ns=column("work_ns"),
            work=column("work"),
        )


def _messages(state: _Rank, offset: int) -> Messages:
    if not state.messages:
        return Messages.empty()
    rows = state.messages

    def column(name: str, shift: int = 0) -> np.ndarray:
        return np.array([row[name] + shift for row in rows], dtype=np.int64)

    unknown = np.full(len(rows), -1, dtype=np.int32)
    return Messages(
        step=column("step"),
        group=unknown,
        peer=column("peer").astype(np.int32),
        tag=column("step") * 0,
        is_send=column("is_send") > 0,
        issue_ns=column("at", offset),
        ready_ns=column("at", offset),
        start_ns=column("at", offset),
        end_ns=column("end", offset),
        awaited_ns=np.where(column("awaited") < 0, -1, column("awaited", offset)),
        size_bytes=column("size"),
        after=unknown,
        before=unknown,
    )


def _timelines(steps: Sequence[Sequence[int]], offset: int) -> StepTimelines:
    """Return the steps as if each rank first idled, then computed, then communicated."""
    number, start, end, compute, waiting, _ = np.array(steps, dtype=np.int64).reshape(-1, 6).T
    moment = (np.arange(INTERVALS) + 0.5) / INTERVALS * (end - start)[:, None]
    letters = np.where(moment >= (end - start - waiting)[:, None], "t", "c")
    letters = np.where(moment < (end - start - compute - waiting)[:, None], ".", letters)
    texts = np.array(["".join(row) for row in letters.tolist()], dtype=object)
    return StepTimelines(step=number, start_ns=start + offset, end_ns=end + offset, letters=texts)


def _parts(step: Sequence[int], offset: int) -> StepParts:
    number, start, end, compute, waiting, data = step
    return StepParts(
        step=number,
        start_ns=start + offset,
        complete=True,
        data_ns=data,
        step_ns=end - start,
        compute_ns=compute,
        comm_ns=waiting,
        overlapped_comm_ns=0,
        exposed_comm_ns=waiting,
        exposed_copy_ns=0,
        idle_ns=end - start - compute - waiting,
    )
