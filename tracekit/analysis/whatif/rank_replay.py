"""What one rank does itself in a stretch of steps, as operations to replay.

Comes in: a rank's summary and its communication. Goes out: operations in their order, cut where the rank issues
communication, where it waits for some, and where an action of a pipeline begins or ends.

Pieces of work: an action (over all its parts), or what lies between two collectives or messages of a step. Actions of
one kind are alike; the others are if they are at the same place of steps with the same communication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tracekit.analysis.pipeline.parts import ACTIONS
from tracekit.analysis.timeline.parts import WAITS
from tracekit.analysis.whatif.run_communication import Communication
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.run import ClockModel
from tracekit.model.spans import ACTION_KINDS
from tracekit.model.summary import RankSummary

_ACTION_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_OWN_WORK = "own work"  # between collectives, where it is not known to be an action of a pipeline
# What happens on a lane, in the order that it has at one time.
_ACTION_END, _ARRIVAL, _WAIT, _ACTION_BEGIN, _STEP_END = range(5)

__all__ = ["Names", "Operations", "RankLane"]


@dataclass(kw_only=True)
class _Numbers:
    """Names to numbers, in order of first use."""

    of: dict[object, int] = field(default_factory=dict)

    def __getitem__(self, name: object) -> int:
        return self.of.setdefault(name, len(self.of))


@dataclass(kw_only=True)
class Operations:
    """Operations of all ranks in a stretch of steps, as they are found; columns as in `Workload`."""

    begin_ns: int
    duration_ns: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    type: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    stage: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    pieces: _Numbers = field(default_factory=_Numbers)
    kind: list[int] = field(default_factory=list)
    peers: list[int] = field(default_factory=list)

    def add(self, piece: _Piece, rank: int, duration_ns: int, waits_for: Sequence[int], *, group: int = -1) -> int:
        """A new operation; returns its place."""
        place, work = len(self.duration_ns), self.pieces[piece.name]
        if work == len(self.kind):
            self.kind.append(piece.kind)
            self.peers.append(piece.peers)
        self.duration_ns.append(duration_ns)
        self.work.append(work)
        self.type.append(piece.type)
        self.rank.append(rank)
        self.stage.append(piece.stage)
        self.group.append(group)
        self.before += waits_for
        self.after += [place] * len(waits_for)
        return place


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """What an operation is a part of: `name` tells pieces apart, the rest is as in `Workload`."""

    name: object
    kind: int
    peers: int
    type: int
    stage: int


@dataclass(frozen=True, kw_only=True)
class Names:
    """Numbers of kinds and types, the same in all stretches."""

    kinds: _Numbers = field(default_factory=_Numbers)
    peers: _Numbers = field(default_factory=_Numbers)
    types: _Numbers = field(default_factory=_Numbers)


class RankLane:
    """What one rank does itself, walked in order of time; times are on the run's clock."""

    def __init__(
        self,
        summary: RankSummary,
        clock: ClockModel,
        bounds: Int64,
        communication: Communication,
        operations: Operations,
        names: Names,
        replicas: int,
    ) -> None:
        self.summary, self.operations, self.names, self.bounds = summary, operations, names, bounds
        self.communication, self.several = communication, replicas > 1
        actions = summary[ACTIONS]
        own = np.flatnonzero((clock.to_run(actions.start_ns) >= bounds[0]) & (actions.stage >= 0))
        own = own[clock.to_run(actions.end_ns[own]) <= bounds[-1]]
        self.actions = actions.rows(own)
        self.waits_ns = np.stack([clock.to_run(t) for t in (summary[WAITS].since_ns, summary[WAITS].until_ns)])
        self.arrivals = np.flatnonzero((communication.ready_ns >= bounds[0]) & (communication.ready_ns < bounds[-1]))
        self.cuts = self._cuts(clock)
        self.position = int(bounds[0])
        layout = None if summary.pipeline is None else summary.pipeline.layout
        self.stage = layout.stage_ids[0] if layout is not None and len(layout.stage_ids) == 1 else -1
        self.signatures = self._signatures()
        self.step, self.slot, self.action, self.last = 0, 0, -1, -1
        self.place: dict[int, int] = {}  # of each row of the communication the place among the operations
        self.pending: dict[int, int] = {}  # of those issued and not waited for: when they end
        self.joined: list[int] = []  # operations that the next one waits for

    def _cuts(self, clock: ClockModel) -> list[tuple[int, int, int]]:
        """Time, what happens and to which: waits where they begin. What falls into a wait moves to its nearer side."""
        first, last = int(self.bounds[0]), int(self.bounds[-1])
        since_ns, until_ns = self.waits_ns
        kept = np.flatnonzero((until_ns > first) & (since_ns < last))
        since_ns, until_ns = since_ns[kept], until_ns[kept]
        self.waits_ns = np.stack((np.maximum(since_ns, first), until_ns))
        happenings = (
            (_ARRIVAL, self.communication.ready_ns[self.arrivals], False),
            (_ACTION_BEGIN, clock.to_run(self.actions.start_ns), True),
            (_ACTION_END, clock.to_run(self.actions.end_ns), True),
            (_STEP_END, self.bounds[1:], True),
        )
        cuts = [(int(t), _WAIT, i) for i, t in enumerate(self.waits_ns[0].tolist())]
        for what, time_ns, to_the_end in happenings:
            inside = np.searchsorted(since_ns, time_ns, side="left") - 1
            waiting = (inside >= 0) & (time_ns < until_ns[np.maximum(inside, 0)]) if len(kept) else inside >= 0
            edge_ns = (until_ns if to_the_end else since_ns)[np.maximum(inside, 0)] if len(kept) else time_ns
            moved_ns = np.where(waiting, edge_ns, time_ns)
            cuts += [(int(t), what, i) for i, t in enumerate(moved_ns.tolist())]
        return sorted(cuts)

    def _signatures(self) -> list[int]:
        """Of each step what the rank communicates in it, numbered."""
        own = self.communication
        ready_ns = own.ready_ns[self.arrivals]
        result = []
        for first, stop in zip(self.bounds[:-1].tolist(), self.bounds[1:].tolist(), strict=True):
            rows = self.arrivals[(ready_ns >= first) & (ready_ns < stop)]
            result.append(self.names.peers["signature", own.kind[rows].tobytes(), own.size_bytes[rows].tobytes()])
        return result

    def walk(self) -> list[int]:
        """Add this rank's operations; returns the places of those that end its steps."""
        begin = _Piece(
            name=("begin", self.summary.rank),
            kind=self.names.kinds["begin", self.summary.rank],  # stays as it was: alone of its kind
            peers=self.names.peers["begin", self.summary.rank],
            type=self.names.types[_OWN_WORK],
            stage=self.stage,
        )
        delay_ns = self.position - self.operations.begin_ns
        self.last = self.operations.add(begin, self.summary.rank, delay_ns, [])
        ends: list[int] = []
        for cut_ns, what, which in self.cuts:
            time_ns = min(cut_ns, int(self.bounds[-1]))
            self._advance(time_ns)
            if what == _ACTION_BEGIN:
                self.action = which
            elif what == _ACTION_END:
                self.action = -1
            elif what == _ARRIVAL:
                self._issue(int(self.arrivals[which]))
            elif what == _WAIT:
                over = self._over(int(self.waits_ns[1, which]))
                self.position = max([self.position, *(self.pending[row] for row in over)])
                self._join(over)
            else:
                self._join(self._over(time_ns))
                self._advance(time_ns)
                ends.append(self.last)
                self.step, self.slot = self.step + 1, 0
        return ends

    def _advance(self, time_ns: int) -> None:
        """The rank works until then; if it had waited, after what it waited for."""
        if time_ns > self.position or self.joined:
            duration_ns = max(time_ns - self.position, 0)
            waits_for = [self.last, *self.joined]
            self.last = self.operations.add(self._piece(), self.summary.rank, duration_ns, waits_for)
            self.joined = []
            self.position = max(time_ns, self.position)

    def _issue(self, row: int) -> None:
        group = int(self.communication.group[row])
        self.place[row] = self.operations.add(self._transfer(row), self.summary.rank, 0, [self.last], group=group)
        self.pending[row] = int(self.communication.end_ns[row])
        self.slot += 1

    def _over(self, time_ns: int) -> list[int]:
        """Communication that was issued, not waited for yet, and over by then."""
        return [row for row, end_ns in self.pending.items() if end_ns <= time_ns]

    def _join(self, rows: list[int]) -> None:
        self.joined += [self.place[row] for row in rows]
        for row in rows:
            del self.pending[row]

    def _piece(self) -> _Piece:
        """What the rank is doing."""
        names, rank = self.names, self.summary.rank
        if self.action >= 0:
            letter = ACTION_KINDS[int(self.actions.kind[self.action])]
            stage = int(self.actions.stage[self.action])
            return _Piece(
                name=("action", rank, self.action),
                kind=names.kinds["action", letter],
                peers=names.peers["action", letter, stage if self.several else None],
                type=names.types[_ACTION_NAMES[letter]],
                stage=stage,
            )
        step = min(self.step, len(self.signatures) - 1)
        place = ("between", self.signatures[step], self.slot)
        return _Piece(
            name=("between", rank, self.step, self.slot),
            kind=names.kinds[place],
            peers=names.peers[place],
            type=names.types[_OWN_WORK],
            stage=self.stage,
        )

    def _transfer(self, row: int) -> _Piece:
        own = self.communication
        kind = KINDS[int(own.kind[row])]
        label = ("transfer", kind, int(own.size_bytes[row]), int(own.members[row]))
        return _Piece(
            name=("transfer", self.summary.rank, row),
            kind=self.names.kinds[label],
            peers=self.names.peers[label],
            type=self.names.types[kind],
            stage=self.stage,
        )
