"""How busy ranks are that serve others by messages, who waits for them, and which of those that train are slow.

Such a rank is a parameter server (`job/servers.py`). It works on what it received until it waits for the next message.
It may record at another time than those that it serves. So how busy it is follows from its work on a message, and from
how many each of them sends in a second. That others wait while it waits for one of them is seen where times overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tracekit.explain.section import table_section
from tracekit.explain.step_time.step_rates import (
    HeldTime,
    clearly_longer,
    find_slow_rates,
    slow_rate_finding,
    waited_for_at_servers,
)
from tracekit.findings.communication import waiting_for_server
from tracekit.findings.finding import Finding
from tracekit.findings.steps import waited_for_worker
from tracekit.findings.thresholds import FOR_THE_SERVER, WAITING_FOR_SERVER
from tracekit.model.communication import Messages
from tracekit.model.events import ABSENT, Bool
from tracekit.model.intervals import EMPTY, Intervals
from tracekit.model.run import ClockModel, Run, clocks_are_comparable
from tracekit.model.summary import RankSummary
from tracekit.model.table import RANK, Column, Display, Rows, Table

_Row = dict[str, float]
_NO_REPLAY = "what a server does is no part of the replay"

SERVERS = Table(
    "servers",
    (
        RANK,
        Column("workers", "int", "", "Ranks that train and exchange messages with it."),
        Column("work_ns", "float", "ns", "Mean time for which it works on a message that it received."),
        Column("messages_per_s", "float", "1/s", "Messages that these ranks send it, at each one's own rate."),
        Column("load", "float", "ratio", "Share of the time in which that many keep it busy."),
        Column("wait_ns", "int", "ns", "Mean time a step that they wait for it."),
        Column("held_ns", "int", "ns", "Part of that in which it waits for another of them."),
    ),
    Display(
        "Ranks that serve others (ms: the work a message, the waits a step; held: while it waits for another rank)",
        "rank | workers | messages /s=messages_per_s | work_ns | busy=load | waits=wait_ns | held_ns",
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Worker:
    """A rank that trains, at one server. Times are on its own clock.

    Attributes:
        waits: when it waits for messages of the server, or until the server takes its own, in its complete steps.
        sent: messages to the server in these steps.
    """

    summary: RankSummary
    waits: Intervals
    sent: int
    step_ns: int
    steps: int


def servers(run: Run) -> tuple[Rows, list[Finding]]:
    """Return rows of `SERVERS`, the one that is waited for most first, and findings."""
    ranks = [summary for summary in run.ranks if summary.is_measured and any(step.complete for step in summary.steps)]
    complete = {summary.rank: [step for step in summary.steps if step.complete] for summary in ranks}
    working_ns = {rank: [step.step_ns - step.exposed_comm_ns for step in steps] for rank, steps in complete.items()}
    # Where ranks that train also communicate with each other, the section on stragglers says who waits for whom.
    slow = (clearly_longer(working_ns) if run.ranks_are_independent else None) or frozenset()
    for_slow, rows = [], []
    for rank in run.message_servers:
        server = run.ranks[run.index_of_rank[rank]]
        workers = _workers(run, rank)
        if not workers:
            continue
        held = list(_held(run, server, workers))
        held_for_slow = [time for time in held if time.by in slow]
        for_slow += held_for_slow
        rate = sum(worker.sent / worker.step_ns for worker in workers)
        steps, work_ns = sum(worker.steps for worker in workers), _work_ns(server.messages)
        row: _Row = {"rank": rank, "workers": len(workers), "work_ns": work_ns}
        row |= {"messages_per_s": 1e9 * rate, "load": rate * work_ns}
        row |= {"wait_ns": sum(worker.waits.len_ns for worker in workers) // steps}
        row |= {"held_ns": _total_ns(held) // steps, "for_slow_ns": _total_ns(held_for_slow) // steps}
        rows.append(row)
    rows.sort(key=lambda row: -row["wait_ns"])
    findings = [*waited_for_at_servers(waited_for_worker, ranks, for_slow, _NO_REPLAY, {}), *_waiting(run, rows)]
    if run.ranks_are_independent and rows:
        waits_ns = {rank: sum(step.exposed_comm_ns for step in steps) for rank, steps in complete.items()}
        compute_ns = {rank: [step.compute_ns for step in steps] for rank, steps in complete.items()}
        rates = find_slow_rates(ranks, waits_ns, (working_ns, compute_ns), waits="servers")
        findings += [] if rates is None else [slow_rate_finding(rates, names={})]
    return rows, findings


def _total_ns(held: Sequence[HeldTime]) -> int:
    return sum(time.total_ns for time in held)


def _workers(run: Run, server: int) -> list[_Worker]:
    result = []
    for summary in run.ranks:
        steps = [step for step in summary.steps if step.complete]
        messages = summary.messages.rows(np.flatnonzero(summary.messages.peer == server))
        if steps and len(messages):
            start_ns, length_ns = np.array([(step.start_ns, step.step_ns) for step in steps], dtype=np.int64).T
            time = Intervals.union_of(start_ns, start_ns + length_ns)
            waits = _waits(messages, np.ones(len(messages), dtype=np.bool_)) & time
            sent = int((messages.is_send & time.covers(messages.issue_ns)).sum())
            worker = _Worker(summary=summary, waits=waits, sent=sent, step_ns=time.len_ns, steps=len(steps))
            result.append(worker)
    return result


def _waits(messages: Messages, which: Bool) -> Intervals:
    """Return when a rank waits for some of its messages, a mask [n], as far as it is known that they ended."""
    since_ns = np.where(messages.awaited_ns == ABSENT, messages.start_ns, messages.awaited_ns)
    which = which & (since_ns != ABSENT) & (messages.end_ns != ABSENT)
    return Intervals.union_of(since_ns[which], messages.end_ns[which])


def _work_ns(messages: Messages) -> float:
    """Return the mean time for which a server works on a message that it received; 0 where nothing shows it.

    Nothing is known of the time between steps that do not follow each other.
    """
    total_ns = received = 0
    for rows in np.split(np.arange(len(messages)), np.flatnonzero(np.diff(messages.step) > 1) + 1):
        recorded = messages.rows(rows)
        receives, sends = recorded.end_ns[~recorded.is_send], recorded.end_ns[recorded.is_send]
        if len(receives) and len(sends):
            begin_ns, end_ns = int(receives.min()), int(sends.max())
            total_ns += _waits(recorded, ~recorded.is_send).gaps(begin_ns, end_ns).len_ns
            received += int((receives < end_ns).sum())
    return total_ns / max(received, 1)


def _held(run: Run, server: RankSummary, workers: Sequence[_Worker]) -> Iterator[HeldTime]:
    """Yield how long each rank waits while the server waits for a message of another."""
    if not clocks_are_comparable(run.ranks, run.clocks):
        return

    def on_run_clock(rank: int, time: Intervals) -> Intervals:
        clock: ClockModel = run.clocks[run.index_of_rank[rank]]
        return Intervals(*clock.intervals_to_run(time.start_ns, time.end_ns)) if len(time) else EMPTY

    messages = server.messages
    for by in workers:
        from_it = ~messages.is_send & (messages.peer == by.summary.rank)
        waits = on_run_clock(server.rank, _waits(messages, from_it))
        for worker in workers:
            if worker is not by:
                held_ns = (on_run_clock(worker.summary.rank, worker.waits) & waits).len_ns
                name = f"rank {server.rank}"
                yield HeldTime(rank=worker.summary.rank, by=by.summary.rank, server=name, total_ns=held_ns)


def _waiting(run: Run, rows: Sequence[_Row]) -> Iterator[Finding]:
    """Yield the finding that those that train wait for the first of the servers, and not for a slow one of them."""
    steps_ns = [step.step_ns for summary in run.ranks for step in summary.steps if step.complete]
    for row in rows[:1]:
        wait_ns = row["wait_ns"] - row["for_slow_ns"]
        share = wait_ns * len(steps_ns) / max(sum(steps_ns), 1)
        yield waiting_for_server(
            rank=int(row["rank"]),
            cause="servers",
            time_ns=int(wait_ns),
            evidence={
                "wait_share": share,
                "work_ns": round(row["work_ns"]),
                "load": row["load"],
                "held_share": (row["held_ns"] - row["for_slow_ns"]) / max(wait_ns, 1),
                "servers": len(rows),
                "no_replay": _NO_REPLAY,
            },
            conditions=[
                WAITING_FOR_SERVER.reached_by(share),
                FOR_THE_SERVER.reached_by(wait_ns / max(row["wait_ns"], 1)),
            ],
        )


SERVERS_SECTION = table_section(SERVERS, servers)
