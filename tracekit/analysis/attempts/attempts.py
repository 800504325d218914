"""The attempts of a job side by side, and what each restart cost."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tracekit.analysis.attempts import columns
from tracekit.analysis.attempts.progress_times import AttemptTimes
from tracekit.analysis.finding import Finding
from tracekit.analysis.table import Frame, Rows
from tracekit.model.metadata import Progress
from tracekit.model.run import Run

_COSTLY = 0.1  # of the job's time so far

PARTS: tuple[tuple[str, str], ...] = (
    ("detection_ns", "detection"),
    ("rendezvous_ns", "rendezvous"),
    ("startup_ns", "start-up"),
    ("reload_ns", "reload"),
    ("repeated_ns", "repeated steps"),
)
"""The columns of the lost time, with their names."""

_ACTIONS = {
    "detection": "lower the time-out of the process group and --monitor-interval of torchrun",
    "rendezvous": "lower last_call_timeout and the keep-alive of --rdzv-conf",
    "start-up": "make the start of a process quicker: imports from a local disk, a process group that forms lazily",
    "reload": "see what each rank does between its process group and its first step: the checkpoint, the model, data",
    "repeated steps": "save checkpoints more often, asynchronously",
}

__all__ = ["PARTS", "Attempts", "attempts", "lost_parts_ns"]


@dataclass(frozen=True, kw_only=True)
class Attempts:
    """The attempts of a job that was restarted.

    Attributes:
        attempts: rows of columns.ATTEMPTS, in order of time; none if the job was not restarted.
    """

    attempts: Frame = Frame(columns.ATTEMPTS)
    findings: tuple[Finding, ...] = ()


def attempts(run: Run) -> Attempts:
    """Return the attempts of the run; none if there is one alone."""
    by_attempt: dict[int, list[Progress]] = defaultdict(list)
    for progress in sorted(run.progress, key=lambda progress: progress.header.rank):
        by_attempt[progress.header.attempt].append(progress)
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


def _row(times: AttemptTimes, recorded: set[int]) -> dict[str, object]:
    return _empty(times.attempt, times.attempt in recorded) | {
        "world_size": times.world_size,
        "start_ns": times.start_ns,
        "joined_ns": times.joined_ns,
        "first_call_ns": times.first_call_ns,
        "last_sign_ns": times.last_sign_ns,
        "first_step": times.first_step,
        "last_step": times.last_step,
        "step_ns": times.step_ns,
    }


def _unknown(number: int, run: Run) -> dict[str, object]:
    """Return the row of an attempt that left a recording and nothing else."""
    row = _empty(number, is_recorded=True)
    if number == run.attempt:
        row["world_size"] = run.world_size
    return row


def _empty(number: int, is_recorded: bool) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(column.name for column in columns.ATTEMPTS.columns)
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
    repeated = max(before.last_step - after.first_step, 0)
    step_ns = after.step_ns or before.step_ns
    parts: dict[str, int | None] = {
        "detection_ns": None if end_ns is None else end_ns - failed_ns,
        "rendezvous_ns": started_ns - (failed_ns if end_ns is None else end_ns),
        "startup_ns": None if joined_ns is None else joined_ns - started_ns,
        "reload_ns": first_call_ns - (started_ns if joined_ns is None else joined_ns),
        "repeated_ns": None if step_ns is None else repeated * step_ns,
    }
    lost_ns = sum(part for part in parts.values() if part is not None)
    return {**parts, "repeated_steps": repeated, "lost_ns": lost_ns}


def _findings(rows: Rows, times: Sequence[AttemptTimes]) -> list[Finding]:
    """Return a finding if restarts took much of the time of the job so far."""
    parts_ns = lost_parts_ns(rows)
    lost_ns = sum(parts_ns.values())
    begins_ns = [each.start_ns or each.first_call_ns for each in times]
    if not begins_ns or not lost_ns:
        return []
    job_ns = max(each.last_sign_ns for each in times) - min(begins_ns)
    if lost_ns < _COSTLY * job_ns:
        return []
    largest = max(parts_ns, key=lambda name: parts_ns[name])
    restarts = sum(row["lost_ns"] is not None for row in rows)
    text = (
        f"restarts took {lost_ns / 1e9:.1f} s, {lost_ns / job_ns:.0%} of the job's time so far; "
        f"{parts_ns[largest] / 1e9:.1f} s of it {largest}"
    )
    return [
        Finding(
            severity="warning",
            text=text,
            action=_ACTIONS[largest.removeprefix("detection and ")],
            evidence={"lost_ns": lost_ns, "job_ns": job_ns, "restarts": restarts},
        )
    ]
