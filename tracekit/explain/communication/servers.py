"""How busy ranks are that serve others by messages, who waits for them, and which of those that train are slow.

Such a rank is a parameter server (`job/servers.py`). It works on what it received until it waits for the next message.
It may record at another time than those that it serves. So how busy it is follows from its work on a message, and from
how many each of them sends in a second. That others wait while it waits for one of them is seen where times overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

import numpy as np

from tracekit.explain.section import table_section
from tracekit.explain.step_time.step_rates import (
    NO_REPLAY,
    HeldTime,
    clearly_longer,
    find_slow_rates,
    slow_rate_finding,
    waited_for_at_servers,
)
from tracekit.findings.communication import BY_ITS_WORK, waiting_for_server
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import FOR_THE_SERVER, WAITING_FOR_SERVER
from tracekit.model.communication import Messages
from tracekit.model.events import ABSENT
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run, clocks_are_comparable
from tracekit.model.summary import RankSummary, StepParts
from tracekit.model.table import RANK, Column, Display, Rows, Table

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


def servers(run: Run) -> tuple[Rows, list[Finding]]:
    """Return rows of `SERVERS`, the one that is waited for most first, and findings."""
    complete = {summary.rank: [step for step in summary.steps if step.complete] for summary in run.ranks}
    ranks = [summary for summary in run.ranks if complete[summary.rank]]
    working_ns = {s.rank: [step.step_ns - step.exposed_comm_ns for step in complete[s.rank]] for s in ranks}
    # Where ranks that train also communicate with each other, the section on stragglers says who waits for whom.
    slow = (clearly_longer(working_ns) if run.ranks_are_independent else None) or frozenset()
    served = [_served(run, run.ranks[run.index_of_rank[rank]], complete) for rank in run.message_servers]
    rows = sorted((row for row, _ in served), key=lambda row: -row["wait_ns"])
    for_slow = [time for _, held in served for time in held if time.by in slow]
    findings = [*waited_for_at_servers(ranks, for_slow, "servers", {}), *_waiting(run, rows, for_slow)]
    if rows and run.ranks_are_independent:
        waits_ns = {s.rank: sum(step.exposed_comm_ns for step in complete[s.rank]) for s in ranks}
        compute_ns = {s.rank: [step.compute_ns for step in complete[s.rank]] for s in ranks}
        rates = find_slow_rates(ranks, waits_ns, (working_ns, compute_ns), waits="servers")
        findings += [] if rates is None else [slow_rate_finding(rates, names={})]
    return rows, findings


def _served(
    run: Run, server: RankSummary, complete: Mapping[int, Sequence[StepParts]]
) -> tuple[dict[str, float], list[HeldTime]]:
    """Return the row of a server, and how long ranks waited there for each other. complete: the steps of each rank."""
    messages = {s.rank: s.messages.rows(s.messages.peer == server.rank) for s in run.ranks if complete[s.rank]}
    times = {rank: _time_of(complete[rank]) for rank, of_rank in messages.items() if len(of_rank)}
    waits = {rank: _waits(messages[rank]) & time for rank, time in times.items()}
    sends = {rank: messages[rank].issue_ns[messages[rank].is_send] for rank in times}
    rate = sum(time.covers(sends[rank]).sum() / time.len_ns for rank, time in times.items())
    held, work_ns = list(_held(run, server, waits)), _work_ns(server.messages)
    steps = max(sum(len(complete[rank]) for rank in waits), 1)
    row = {"rank": server.rank, "workers": len(waits), "work_ns": work_ns, "messages_per_s": 1e9 * rate}
    row |= {"load": rate * work_ns, "wait_ns": sum(wait.len_ns for wait in waits.values()) // steps}
    return row | {"held_ns": sum(time.total_ns for time in held) // steps}, held


def _time_of(steps: Sequence[StepParts]) -> Intervals:
    start_ns, length_ns = np.array([(step.start_ns, step.step_ns) for step in steps], dtype=np.int64).T
    return Intervals.union_of(start_ns, start_ns + length_ns)


def _waits(messages: Messages) -> Intervals:
    """Return when a rank waits for messages, or until its own are taken, as far as it is known that they ended."""
    since_ns = np.where(messages.awaited_ns == ABSENT, messages.start_ns, messages.awaited_ns)
    known = (since_ns != ABSENT) & (messages.end_ns != ABSENT)
    return Intervals.union_of(since_ns[known], messages.end_ns[known])


def _work_ns(messages: Messages) -> float:
    """Return the mean time for which a server works on a message that it received; 0 where nothing shows it.

    Nothing is known of the time between steps that do not follow each other.
    """
    total_ns = received = 0
    for rows in np.split(np.arange(len(messages)), np.flatnonzero(np.diff(messages.step) > 1) + 1):
        receives, sends = (messages.rows(rows[messages.is_send[rows] == side]) for side in (False, True))
        if len(receives) and len(sends):
            begin_ns, end_ns = int(receives.end_ns.min()), int(sends.end_ns.max())
            total_ns += _waits(receives).gaps(begin_ns, end_ns).len_ns
            received += int((receives.end_ns < end_ns).sum())
    return total_ns / max(received, 1)


def _held(run: Run, server: RankSummary, waits: Mapping[int, Intervals]) -> Iterator[HeldTime]:
    """Yield how long each rank waits while the server waits for a message of another. waits: by rank, on its clock."""
    if not clocks_are_comparable(run.ranks, run.clocks):
        return

    def on_run_clock(rank: int, time: Intervals) -> Intervals:
        return Intervals(*run.clocks[run.index_of_rank[rank]].intervals_to_run(time.start_ns, time.end_ns))

    messages = server.messages
    for by, rank in permutations(waits, 2):
        waited = on_run_clock(server.rank, _waits(messages.rows(~messages.is_send & (messages.peer == by))))
        held_ns = (waited & on_run_clock(rank, waits[rank])).len_ns
        yield HeldTime(rank=rank, by=by, server=f"rank {server.rank}", total_ns=held_ns)


def _waiting(run: Run, rows: Sequence[Mapping[str, float]], for_slow: Sequence[HeldTime]) -> Iterator[Finding]:
    """Yield the finding that those that train wait for the first of the servers, and not for a slow one of them."""
    steps_ns = [step.step_ns for summary in run.ranks for step in summary.steps if step.complete]
    for row in rows[:1] if steps_ns else ():
        for_slow_ns = sum(t.total_ns for t in for_slow if t.server == f"rank {row['rank']}") / len(steps_ns)
        wait_ns = row["wait_ns"] - for_slow_ns
        share = wait_ns * len(steps_ns) / sum(steps_ns)
        evidence = {"wait_share": share, "work_ns": round(row["work_ns"]), "load": row["load"], "no_replay": NO_REPLAY}
        evidence |= {"server": row["rank"], "held_share": (row["held_ns"] - for_slow_ns) / max(wait_ns, 1)}
        yield waiting_for_server(
            rank=int(row["rank"]) if row["load"] >= BY_ITS_WORK * share else None,
            cause="servers",
            time_ns=round(wait_ns),
            evidence=evidence,
            conditions=[
                WAITING_FOR_SERVER.reached_by(share),
                FOR_THE_SERVER.reached_by(wait_ns / max(row["wait_ns"], 1)),
            ],
        )


SERVERS_SECTION = table_section(SERVERS, servers)
