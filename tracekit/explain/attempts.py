"""How each attempt of a restarted job went, by the progress files of its ranks, and what each restart cost."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tracekit.explain.section import Section
from tracekit.findings.finding import Finding
from tracekit.findings.steps import restarts as finding_of_restarts
from tracekit.findings.thresholds import RESTARTS_SHARE
from tracekit.model.metadata import Progress
from tracekit.model.run import Run
from tracekit.model.table import Column, Display, Frame, Rows, Table
from tracekit.stats.grouped import grouped

PARTS: tuple[tuple[str, str], ...] = (
    ("detection_ns", "detection"),
    ("rendezvous_ns", "rendezvous"),
    ("startup_ns", "start-up"),
    ("reload_ns", "reload"),
    ("repeated_ns", "repeated steps"),
)
"""The columns of the lost time, with their names."""

# Columns that are properties of `AttemptTimes`.
_OF_TIMES = (
    *("world_size", "start_ns", "joined_ns", "first_call_ns", "last_sign_ns"),
    *("first_step", "last_step", "step_ns"),
)
_FIRST_CALLS = 3  # slower than others
_FROM_PEERS = frozenset({"RuntimeError", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError"})
"""Types of errors by which collectives say that a peer is gone, among others."""


def _lost_column(name: str, meaning: str) -> Column:
    """Return a column of lost time, which is long: people read it in seconds."""
    return Column(name, "int?", "ns", meaning, form="s")


ATTEMPTS = Table(
    "attempts",
    (
        Column("attempt", "int", "", "Number of the attempt, as `--attempt` takes it."),
        Column("world_size", "int?", "", "Ranks of the job in this attempt."),
        Column("recorded", "bool", "", "Whether it has a recorded window, which can be analysed."),
        Column("start_ns", "int?", "ns", "Wall clock: when the last of its processes started."),
        Column("joined_ns", "int?", "ns", "Wall clock: when its process group was complete."),
        Column("first_call_ns", "int?", "ns", "Wall clock: when the last rank began its first step."),
        Column("last_sign_ns", "int?", "ns", "Wall clock: the last sign of life of any of its ranks."),
        Column("first_step", "int?", "", "The job's number of its first step; null: nothing tells where it resumed."),
        Column("last_step", "int?", "", "The job's number of the last step that it is known to have begun."),
        Column("step_ns", "int?", "ns", "Median step, by the beginnings of its last steps."),
        Column("ending", "str?", "", "finished, killed, error or membership (other ranks joined); null: not known."),
        Column("ended_ranks", "list[int]", "", "The ranks that were killed or raised."),
        Column("error", "str?", "", "Type of the error that ended it."),
        _lost_column("lost_ns", "Time lost at the restart before this attempt: the sum of what follows."),
        _lost_column("detection_ns", "From the failed rank's last sign of life to the end of the others."),
        _lost_column("rendezvous_ns", "From there until all processes had started; with null before it, both."),
        _lost_column("startup_ns", "From there until the process group was complete; null: in the next."),
        _lost_column("reload_ns", "From there to the first step: model, checkpoint, data."),
        Column("repeated_steps", "int?", "", "Steps that the attempt before had made as well; null: not known."),
        _lost_column("repeated_ns", "Their time in this attempt, by the median step."),
    ),
    Display(
        "Time lost at restarts (s)",
        "before attempt=attempt | lost_ns | detection_ns | rendezvous_ns | start-up=startup_ns | reload_ns "
        "| repeated steps=repeated_ns | number=repeated_steps",
        bars="detection_ns | rendezvous_ns | startup_ns | reload_ns | repeated_ns",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempts of a job that was restarted.

    Attributes:
        attempts: rows of ATTEMPTS, in order of time; none if the job was not restarted.
    """

    attempts: Frame = Frame(ATTEMPTS)
    findings: tuple[Finding, ...] = ()


def attempts(run: Run) -> Attempts:
    """Return the attempts of the run; none if there is one alone."""
    by_rank = sorted(run.progress, key=lambda progress: progress.header.rank)
    by_attempt = grouped((progress.header.attempt, progress) for progress in by_rank)
    times = [AttemptTimes(ranks=tuple(by_attempt[number])) for number in sorted(by_attempt)]
    recorded = {run.attempt} | {other.attempt for other in run.other_runs if other.run_id == run.run_id}
    if len(recorded | by_attempt.keys()) < 2:
        return Attempts(attempts=[])
    rows = [_row(each, recorded) for each in times]
    for row, each, following in itertools.zip_longest(rows, times, times[1:]):
        ending = each.ending(following)
        row |= {"ending": ending.kind, "ended_ranks": list(ending.ranks), "error": ending.error}
    for row, before, after in zip(rows[1:], times, times[1:], strict=False):
        row |= _lost(before, after)
    unknown = [_unknown(number, run) for number in recorded - by_attempt.keys()]
    rows = sorted([*rows, *unknown], key=lambda row: str(row["attempt"]).zfill(9))
    return Attempts(attempts=rows, findings=tuple(_findings(rows, times)))


def lost_parts_ns(rows: Rows) -> dict[str, int]:
    """Return the time lost at all restarts, by part. What is known only together has both names."""
    together = any(row["lost_ns"] is not None and row["detection_ns"] is None for row in rows)
    lost_ns: dict[str, int] = {}
    for column, name in PARTS:
        if together and name in {"detection", "rendezvous"}:
            name = "detection and rendezvous"
        known = [value for row in rows if isinstance(value := row[column], int)]
        if known:
            lost_ns[name] = lost_ns.get(name, 0) + sum(known)
    return lost_ns


def repeated_steps(rows: Rows) -> int | None:
    """Return how many steps were repeated after all restarts; None if that of any is not known."""
    counts = [row["repeated_steps"] for row in rows if row["lost_ns"] is not None]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if len(known) == len(counts) else None


def _row(times: AttemptTimes, recorded: set[int]) -> dict[str, object]:
    known = {name: getattr(times, name) for name in _OF_TIMES}
    return _empty(times.attempt, times.attempt in recorded) | known


def _unknown(number: int, run: Run) -> dict[str, object]:
    """Return the row of an attempt that left a recording and nothing else."""
    row = _empty(number, is_recorded=True)
    if number == run.attempt:
        row["world_size"] = run.world_size
    return row


def _empty(number: int, is_recorded: bool) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(column.name for column in ATTEMPTS.columns)
    return row | {"attempt": number, "recorded": is_recorded, "ended_ranks": []}


def _lost(before: AttemptTimes, after: AttemptTimes) -> dict[str, object]:
    """Return what the restart between two attempts cost, by part, in ns."""
    ending = before.ending(after)
    failed_ns, end_ns = before.failed_ns(ending), before.others_end_ns(ending)
    first_call_ns = after.first_call_ns
    start_ns = after.start_ns
    joined_ns = after.joined_ns
    if end_ns is not None and not failed_ns <= end_ns <= (start_ns or first_call_ns):
        end_ns = None
    started_ns = first_call_ns if start_ns is None else min(max(start_ns, failed_ns), first_call_ns)
    if joined_ns is not None:
        joined_ns = min(max(joined_ns, started_ns), first_call_ns)
    repeated = _repeated_steps(before, after)
    step_ns = after.step_ns or before.step_ns
    parts: dict[str, int | None] = {
        "detection_ns": None if end_ns is None else end_ns - failed_ns,
        "rendezvous_ns": started_ns - (failed_ns if end_ns is None else end_ns),
        "startup_ns": None if joined_ns is None else joined_ns - started_ns,
        "reload_ns": first_call_ns - (started_ns if joined_ns is None else joined_ns),
        "repeated_ns": None if step_ns is None or repeated is None else repeated * step_ns,
    }
    lost_ns = sum(part for part in parts.values() if part is not None)
    return {**parts, "repeated_steps": repeated, "lost_ns": lost_ns}


def _repeated_steps(before: AttemptTimes, after: AttemptTimes) -> int | None:
    """Return how many steps both attempts made; None if the step with which either began is not known."""
    if before.first_step is None or after.first_step is None:
        return None
    return max(before.first_step + before.made_steps - after.first_step, 0)


def _findings(rows: Rows, times: Sequence[AttemptTimes]) -> list[Finding]:
    """Return a finding if restarts took much of the time of the job so far."""
    parts_ns = lost_parts_ns(rows)
    lost_ns = sum(parts_ns.values())
    begins_ns = [each.start_ns or each.first_call_ns for each in times]
    if not begins_ns or not lost_ns:
        return []
    job_ns = max(each.last_sign_ns for each in times) - min(begins_ns)
    largest = max(parts_ns, key=lambda name: parts_ns[name])
    return [
        finding_of_restarts(
            evidence={
                "lost_ns": lost_ns,
                "job_ns": job_ns,
                "restarts": sum(row["lost_ns"] is not None for row in rows),
                "part": largest,
                "part_ns": parts_ns[largest],
                "repeated_steps": repeated_steps(rows),
            },
            conditions=[RESTARTS_SHARE.reached_by(lost_ns / max(job_ns, 1))],
        )
    ]


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
    def first_step(self) -> int | None:
        """Return the number of the first step; None if it may have resumed, and only its own calls are counted."""
        if self.attempt and all(rank.header.first_step_source == "calls" for rank in self.ranks):
            return None
        return max(rank.header.first_step for rank in self.ranks)

    @property
    def last_step(self) -> int | None:
        """Return the last step that any rank has begun; None if the first is not known."""
        return None if self.first_step is None else self.first_step + max(_last_call(rank) for rank in self.ranks)

    @property
    def made_steps(self) -> int:
        """Return how many steps were made: those that any rank has ended, or has begun the next of."""
        return max(_last_call(rank) + _ended_between_steps(rank) for rank in self.ranks)

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
    return _raised_in_last_call(rank) or rank.header.ending == "error"


def _raised_in_last_call(rank: Progress) -> bool:
    raised_ns = rank.header.raised_ns
    return raised_ns is not None and all(time_ns <= raised_ns for _, time_ns in rank.calls)


def _ended_between_steps(rank: Progress) -> bool:
    """Return whether the rank ended its last step, and then itself; one that was killed may not have."""
    return rank.header.ending in {"exit", "error"} and not _raised_in_last_call(rank)


def _was_killed(rank: Progress) -> bool:
    """Return whether a signal ended the rank, or nothing is known of its end."""
    return rank.header.ended_ns is None or rank.header.ending == "sigterm"


def _last_call(rank: Progress) -> int:
    return max((call for call, _ in rank.calls), default=0)


def _latest(times_ns: Iterable[int | None]) -> int | None:
    return max((time_ns for time_ns in times_ns if time_ns is not None), default=None)


ATTEMPTS_SECTION: Section[Attempts] = Section(
    name="attempts", analyze=lambda given: attempts(given.run), tables=(ATTEMPTS,)
)
