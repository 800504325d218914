"""Ranks with planted clocks, as summaries and matches without traces. Times are nanoseconds.

ranks = PlantedRanks([Clock(), Clock(offset_ns=500, drift_ppm=20)], begin_ns=BEGIN_NS, end_ns=BEGIN_NS + 10**9)
ranks.collectives((0, 1), end_ns=true_ends, late_ns=noise)
ranks.message(0, 1, sent_ns=..., received_ns=...)
models, notes = align(ranks.summaries(), ranks.matched_groups(), ranks.matched_messages())
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import numpy as np

from benchmarks.exchanges import rank as summary_of
from tracekit.model.columnar import Columnar
from tracekit.model.communication import KINDS, Collectives, GroupKey, MatchedGroup, MatchedMessages, Messages
from tracekit.model.events import Int64
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary

TableT = TypeVar("TableT", bound=Columnar)

BEGIN_NS = 1_790_857_026_000_000_000


@dataclass(frozen=True, kw_only=True)
class Clock:
    """A clock that is ahead, drifts from `BEGIN_NS` on, and jumps at true times."""

    offset_ns: int = 0
    drift_ppm: float = 0.0
    jumps: tuple[tuple[int, int], ...] = ()  # (when, by how much)

    def shows(self, true_ns: Int64) -> Int64:
        drifted_ns = np.rint((true_ns - BEGIN_NS) * self.drift_ppm * 1e-6).astype(np.int64)
        return true_ns + self.offset_ns + drifted_ns + sum((true_ns >= at_ns) * by_ns for at_ns, by_ns in self.jumps)


@dataclass(frozen=True, kw_only=True)
class _Round:
    """m collectives of one group; arrays are int64 [k, m]."""

    members: tuple[int, ...]
    kind: str
    start_ns: Int64
    end_ns: Int64
    size_bytes: Int64


@dataclass(frozen=True, kw_only=True)
class _Message:
    source: int
    destination: int
    sent_ns: int
    received_ns: int


@dataclass
class PlantedRanks:
    """Ranks that record from `begin_ns` to `end_ns`."""

    clocks: Sequence[Clock]
    begin_ns: int
    end_ns: int
    hosts: Sequence[str] = ()
    device: str = "cpu"
    _rounds: list[_Round] = field(default_factory=list)
    _messages: list[_Message] = field(default_factory=list)

    def collectives(
        self,
        members: Sequence[int],
        *,
        end_ns: Int64,
        late_ns: Int64,
        kind: str = "all_reduce",
        took_ns: int | Int64 = 50_000,
        size_bytes: int | Int64 = 64,
    ) -> None:
        """Let `members` (k ranks) leave collectives (int64 [m]) at true times, each `late_ns` (int64 [k, m]) later."""
        ends_ns = end_ns + late_ns
        start_ns = end_ns - np.broadcast_to(took_ns, ends_ns.shape)  # a late rank enters with the others
        sizes = np.broadcast_to(np.asarray(size_bytes, dtype=np.int64), ends_ns.shape)
        self._rounds.append(
            _Round(members=tuple(members), kind=kind, start_ns=start_ns, end_ns=ends_ns, size_bytes=sizes)
        )

    def message(self, source: int, destination: int, *, sent_ns: int, received_ns: int) -> None:
        """Let a send begin and its receive end at true times."""
        self._messages.append(
            _Message(source=source, destination=destination, sent_ns=sent_ns, received_ns=received_ns)
        )

    def summaries(self) -> list[RankSummary]:
        groups = tuple(GroupKey(description=str(i), ranks=round_.members) for i, round_ in enumerate(self._rounds))
        result = []
        for number, clock in enumerate(self.clocks):
            summary = summary_of(
                number,
                groups=groups,
                host=self.hosts[number] if self.hosts else f"node{number}",
                collectives=self._collectives(number),
                world_size=len(self.clocks),
                device=self.device,
            )
            begin_ns, end_ns = clock.shows(np.array([self.begin_ns, self.end_ns])).tolist()
            (step,) = summary.steps
            steps = (replace(step, start_ns=begin_ns, step_ns=end_ns - begin_ns),)
            result.append(replace(summary, steps=steps, messages=self._messages_of(number)))
        return result

    def matched_groups(self) -> list[MatchedGroup]:
        result, rows = [], [0] * len(self.clocks)
        for i, round_ in enumerate(self._rounds):
            count = round_.end_ns.shape[1]
            row = np.stack([rows[member] + np.arange(count) for member in round_.members])
            for member in round_.members:
                rows[member] += count
            result.append(
                MatchedGroup(
                    group=i,
                    matched_by="seq",
                    ranks=np.array(round_.members, dtype=np.int32),
                    row=row,
                    kind=np.full(count, KINDS.index(round_.kind), dtype=np.int32),
                    step=np.full(count, 5, dtype=np.int64),
                    size_bytes=round_.size_bytes.max(axis=0),
                )
            )
        return result

    def matched_messages(self) -> MatchedMessages:
        rows = [0] * len(self.clocks)
        columns: list[list[int]] = []
        for message in self._messages:
            columns.append([message.source, rows[message.source], message.destination, rows[message.destination]])
            rows[message.source] += 1
            rows[message.destination] += 1
        source, send, destination, recv = np.array(columns, dtype=np.int64).reshape(-1, 4).T
        return MatchedMessages(
            source=source.astype(np.int32),
            destination=destination.astype(np.int32),
            send=send,
            recv=recv,
            step=np.full(len(columns), 5, dtype=np.int64),
        )

    def off_ns(self, models: Sequence[ClockModel], rank: int, true_ns: Int64) -> Int64:
        """Return how far a model is off at true times, against the clock of rank 0."""
        return models[rank].to_run(self.clocks[rank].shows(true_ns)) - self.clocks[0].shows(true_ns)

    def _collectives(self, number: int) -> Collectives:
        parts = [
            (
                i,
                round_.kind,
                *(array[round_.members.index(number)] for array in (round_.start_ns, round_.end_ns)),
                round_,
            )
            for i, round_ in enumerate(self._rounds)
            if number in round_.members
        ]
        if not parts:
            return Collectives.empty()
        shows = self.clocks[number].shows
        count = [len(part[2]) for part in parts]
        start_ns = shows(np.concatenate([part[2] for part in parts]))
        sizes = [part[4].size_bytes[part[4].members.index(number)] for part in parts]
        return _table(
            Collectives,
            sum(count),
            group=np.repeat([part[0] for part in parts], count).astype(np.int32),
            kind=np.repeat([KINDS.index(part[1]) for part in parts], count).astype(np.int32),
            sequence=np.arange(sum(count), dtype=np.int64),
            step=np.full(sum(count), 5, dtype=np.int64),
            size_bytes=np.concatenate(sizes),
            launch_ns=start_ns,
            ready_ns=start_ns,
            start_ns=start_ns,
            end_ns=shows(np.concatenate([part[3] for part in parts])),
            released_ns=start_ns,
        )

    def _messages_of(self, number: int) -> Messages:
        mine = [message for message in self._messages if number in (message.source, message.destination)]
        if not mine:
            return Messages.empty()
        is_send = np.array([message.source == number for message in mine])
        times_ns = np.array([(message.sent_ns, message.received_ns) for message in mine], dtype=np.int64)
        start_ns = self.clocks[number].shows(times_ns[:, 0])
        return _table(
            Messages,
            len(mine),
            step=np.full(len(mine), 5, dtype=np.int64),
            peer=np.array([m.destination if m.source == number else m.source for m in mine], dtype=np.int32),
            is_send=is_send,
            issue_ns=start_ns,
            ready_ns=start_ns,
            start_ns=start_ns,
            end_ns=self.clocks[number].shows(times_ns[:, 1]),
        )


def _table(table: type[TableT], count: int, **columns: np.ndarray) -> TableT:
    """Return a table of `count` rows, which are 0 in all other columns."""
    empty = table.empty()
    zeros = {field.name: np.zeros(count, dtype=getattr(empty, field.name).dtype) for field in fields(empty)}  # type: ignore[arg-type]
    return table(**zeros | columns)
