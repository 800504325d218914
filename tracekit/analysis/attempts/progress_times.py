"""What the progress files of the ranks say of one attempt."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracekit.model.metadata import Progress

_FIRST_CALLS = 3  # slower than others
_FROM_PEERS = frozenset({"RuntimeError", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError"})
"""Types of errors by which collectives say that a peer is gone, among others."""

__all__ = ["AttemptTimes", "Ending"]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How an attempt ended.

    Attributes:
        kind: "finished", "killed", "error" or "membership"; None if it is not known.
        ranks: those that were killed or raised.
        error: the type of the error.
    """

    kind: str | None = None
    ranks: tuple[int, ...] = ()
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class AttemptTimes:
    """One attempt, by the progress files of its ranks, at least one. Times are ns of the wall clocks."""

    ranks: tuple[Progress, ...]

    @property
    def attempt(self) -> int:
        return self.ranks[0].header.attempt

    @property
    def world_size(self) -> int:
        return self.ranks[0].header.world_size

    @property
    def start_ns(self) -> int | None:
        """Return when the last process started."""
        return _latest(rank.header.process_start_ns for rank in self.ranks)

    @property
    def joined_ns(self) -> int | None:
        return _latest(rank.header.joined_ns for rank in self.ranks)

    @property
    def first_call_ns(self) -> int:
        return max(rank.header.first_call_ns for rank in self.ranks)

    @property
    def last_sign_ns(self) -> int:
        return max(rank.last_sign_ns for rank in self.ranks)

    @property
    def first_step(self) -> int:
        return max(rank.header.first_step for rank in self.ranks)

    @property
    def last_step(self) -> int:
        """Return the last step that any rank has begun."""
        return self.first_step + max(_last_call(rank) for rank in self.ranks)

    @property
    def step_ns(self) -> int | None:
        """Return the median step of the lowest rank; None if it made too few."""
        calls = self.ranks[0].calls
        pairs = [pair for pair in itertools.pairwise(calls) if pair[0][0] >= _FIRST_CALLS]
        steps_ns = [(end_ns - start_ns) / (last - first) for (first, start_ns), (last, end_ns) in pairs if last > first]
        return round(statistics.median(steps_ns)) if steps_ns else None

    def failed_before(self, following: AttemptTimes) -> bool:
        """Return whether the next attempt follows a failure: an agent that launched both has counted one."""
        restarts = {rank.header.agent: rank.header.restarts for rank in self.ranks}
        return any(rank.header.restarts > restarts.get(rank.header.agent, 1 << 30) for rank in following.ranks)

    def ending(self, following: AttemptTimes | None) -> Ending:
        """Return how the attempt ended, given the next one."""
        if following is not None and not self.failed_before(following):
            return Ending(kind="membership")
        raised = [rank for rank in self.ranks if _has_raised(rank)]
        silent = [rank for rank in self.ranks if _was_killed(rank) and rank not in raised]
        if following is None:
            if len(self.ranks) == self.world_size and all(rank.header.ending == "exit" for rank in self.ranks):
                return Ending(kind="finished")
            if not raised:
                return Ending()  # it was killed, or still runs
        causes = [rank for rank in raised if rank.header.error not in _FROM_PEERS]
        if causes or (raised and not silent):
            first = min(causes or raised, key=lambda rank: rank.header.raised_ns or rank.last_sign_ns)
            return Ending(kind="error", ranks=(first.header.rank,), error=first.header.error)
        return Ending(kind="killed", ranks=tuple(rank.header.rank for rank in _killed(silent, raised)))

    def failed_ns(self, ending: Ending) -> int:
        """Return the last sign of life of the ranks that failed; without any, of the last rank."""
        failed = [rank for rank in self.ranks if rank.header.rank in ending.ranks]
        if ending.kind == "error":
            return max(rank.header.raised_ns or rank.last_sign_ns for rank in failed)
        return max((rank.last_sign_ns for rank in failed), default=self.last_sign_ns)

    def others_end_ns(self, ending: Ending) -> int | None:
        """Return when the last of the other ranks ended; None if they did not say, as they were killed, too."""
        others = [rank.header for rank in self.ranks if rank.header.rank not in ending.ranks]
        ends = [header.ended_ns or header.raised_ns for header in others]
        return None if not ends or None in ends else _latest(ends)


def _killed(silent: Sequence[Progress], raised: Sequence[Progress]) -> Sequence[Progress]:
    """Return those of the silent ranks that were killed first, as far as that can be known.

    The launcher ends the others in the same way. Those that died first did not begin the last step.
    """
    last_calls = [_last_call(rank) for rank in [*silent, *raised]]
    every_call = all(_notes_every_call(rank) for rank in [*silent, *raised])
    behind = [rank for rank in silent if _last_call(rank) < max(last_calls)]
    if every_call and behind:
        return behind
    return silent if raised else ()


def _notes_every_call(rank: Progress) -> bool:
    (before, _), (last, _) = rank.calls[-2:] if len(rank.calls) > 1 else ((0, 0), (1, 0))
    return last - before == 1


def _has_raised(rank: Progress) -> bool:
    """Return whether the rank ended with an error; one after which it went on does not count."""
    raised_ns = rank.header.raised_ns
    ended_so = raised_ns is not None and all(time_ns <= raised_ns for _, time_ns in rank.calls)
    return ended_so or rank.header.ending == "error"


def _was_killed(rank: Progress) -> bool:
    """Return whether a signal ended the rank, or nothing is known of its end."""
    return rank.header.ended_ns is None or rank.header.ending == "sigterm"


def _last_call(rank: Progress) -> int:
    return max((call for call, _ in rank.calls), default=0)


def _latest(times_ns: Iterable[int | None]) -> int | None:
    return max((time_ns for time_ns in times_ns if time_ns is not None), default=None)
