"""Checks of collectives, messages and clocks: wrong instances, pairs, times and offsets are seen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.studies.gpu_jobs.checks import clocks as clock_checks
from benchmarks.studies.gpu_jobs.checks import collectives, messages
from tests.gpu_jobs import Clocks, JobSpec
from tests.unit.benchmarks.studies.gpu_jobs.hand_made import (
    MS,
    SHOWN_NS,
    clocks,
    ddp,
    evidence,
    matched,
    message,
    operation,
    times,
)


def run_of(*groups, ends_ns):
    """Return a run: of each rank the ends of its collectives."""
    ranks = [
        SimpleNamespace(rank=rank, collectives=SimpleNamespace(end_ns=SHOWN_NS + np.array(of_rank)))
        for rank, of_rank in enumerate(ends_ns)
    ]
    group = SimpleNamespace(ranks=tuple(range(len(ranks))))
    return SimpleNamespace(ranks=ranks, collectives=groups, groups=(group,), clocks=clocks(*[0] * len(ranks)))


ENDS_NS = [[2 * MS, 5 * MS], [2 * MS, 5 * MS]]
TRUE = {"operations": (operation(0, 1 * MS), operation(3 * MS, 4 * MS, sequence=1))}


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        (matched([0, 1], [[0, 1], [0, 1]]), "right"),
        (matched([0, 1], [[0, 1], [1, 0]]), "wrong"),  # two instances mixed up
        (matched([0, 1], [[0], [0]]), "wrong"),  # one is missing
        (matched([0, 1], [[0, 1], [0, 1]], kind="all_gather"), "wrong"),
    ],
)
def test_instances_must_have_the_right_members_and_kind(group, verdict):
    outcome = collectives.collectives_are_matched(
        evidence(ddp(), truth=TRUE, report={"run": run_of(group, ends_ns=ENDS_NS)})
    )

    assert outcome.verdict == verdict


RIGHT_TIMES = {"wait_ns": [[MS, MS], [0, 0]], "transfer_ns": [MS, MS]}


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (collectives.waits_for_the_last_rank, {"wait_ns": [[MS, MS // 2], [0, 0]]}),
        (collectives.last_arriver, {"wait_ns": [[0, 0], [MS, MS]]}),
        (collectives.transfer_times, {"transfer_ns": [MS, 3 * MS]}),
    ],
)
def test_times_of_instances_that_are_wrong_are_seen(check, wrong, monkeypatch):
    run = run_of(matched([0, 1], [[0, 1], [0, 1]]), ends_ns=ENDS_NS)

    def verdict(**changes):
        monkeypatch.setattr(collectives, "group_times", lambda *_: times(**(RIGHT_TIMES | changes)))
        return check(evidence(ddp(), truth=TRUE, report={"run": run})).verdict

    assert verdict() == "right"
    assert verdict(**wrong) == "wrong"


def test_times_may_be_off_by_the_error_that_is_claimed_of_clocks(monkeypatch):
    run = run_of(matched([0, 1], [[0, 1], [0, 1]]), ends_ns=ENDS_NS)
    off = {"wait_ns": [[MS + 50_000] * 2, [0, 0]], "transfer_ns": [MS, MS]}

    def verdict(error_ns):
        monkeypatch.setattr(collectives, "group_times", lambda *_: times(**off, error_ns=error_ns))
        return collectives.waits_for_the_last_rank(evidence(ddp(), truth=TRUE, report={"run": run})).verdict

    assert (verdict(60_000), verdict(20_000)) == ("right", "wrong")


def test_collectives_that_are_not_in_the_report_are_seen(monkeypatch):
    monkeypatch.setattr(collectives, "group_times", lambda *_: times(wait_ns=[[MS], [0]], transfer_ns=[MS]))
    run = run_of(matched([0, 1], [[0], [0]]), ends_ns=ENDS_NS)

    outcome = collectives.transfer_times(evidence(ddp(), truth=TRUE, report={"run": run}))

    assert (outcome.verdict, outcome.seen) == ("wrong", "1 of 2 collectives")


def table_of_collectives(**changes):
    row = {"group": 0, "kind": "all_reduce", "size_bytes": 4096, "count": 2, "transfer_p50_ns": MS, "queued_p50_ns": 0}
    return SimpleNamespace(table=SimpleNamespace(rows=[row | changes]))


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (collectives.typical_transfers, {"transfer_p50_ns": 2 * MS}),
        (collectives.queued_times, {"queued_p50_ns": MS}),
        (collectives.typical_transfers, {"size_bytes": 99}),
    ],
)
def test_a_table_of_collectives_that_is_wrong_is_seen(check, changes):
    run = run_of(ends_ns=ENDS_NS)

    def verdict(**of_row):
        report = {"run": run, "collectives": table_of_collectives(**of_row)}
        return check(evidence(ddp(), truth=TRUE, report=report)).verdict

    assert verdict() == "right"
    assert verdict(**changes) == "wrong"


def pipeline_of_two(**changes):
    return JobSpec(family="pipeline", pp=2, layers=2, microbatches=2, **changes)


MESSAGES = (message(0, 1, 2 * MS), message(0, 1, 4 * MS))


def run_of_messages(*, recv=(0, 1), size_bytes=(4096, 4096), step=(3, 3)):
    of_rank = SimpleNamespace(end_ns=SHOWN_NS + np.array([2 * MS, 4 * MS]), size_bytes=np.array(size_bytes))
    columns = {"source": [0, 0], "destination": [1, 1], "send": [0, 1], "recv": recv, "step": step}
    joined = SimpleNamespace(**{name: np.array(values) for name, values in columns.items()})
    return SimpleNamespace(ranks=[SimpleNamespace(rank=rank, messages=of_rank) for rank in (0, 1)], messages=joined)


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (messages.messages_are_counted, {"step": (3, 4)}),
        (messages.messages_are_matched, {"recv": (1, 0)}),
        (messages.sizes_of_messages, {"size_bytes": (4096, 8192)}),
    ],
)
def test_messages_that_are_wrong_are_seen(check, wrong):
    def verdict(run):
        return check(evidence(pipeline_of_two(), truth={"messages": MESSAGES}, report={"run": run})).verdict

    assert verdict(run_of_messages()) == "right"
    assert verdict(run_of_messages(**wrong)) == "wrong"


@pytest.mark.parametrize(
    ("offset_ns", "error_ns", "verdict"),
    [(700_000, 0, "right"), (710_000, 20_000, "right"), (710_000, 2_000, "wrong"), (0, 20_000, "wrong")],
)
def test_clocks_must_agree_within_their_claimed_error(offset_ns, error_ns, verdict):
    spec = ddp(2, ranks_per_host=1, clocks=Clocks(offset_us=(0.0, 700.0)))
    run = SimpleNamespace(clocks=clocks(0, offset_ns, error_ns=error_ns))

    assert clock_checks.clocks_within_their_error(evidence(spec, report={"run": run})).verdict == verdict


def test_a_drift_that_is_not_known_is_seen_at_the_ends_of_a_job():
    spec = ddp(2, ranks_per_host=1, clocks=Clocks(drift_ppm=(0.0, 1000.0)))
    run = SimpleNamespace(clocks=clocks(0, 5_000, error_ns=1_000))  # right in the middle of 10 ms

    assert clock_checks.clocks_within_their_error(evidence(spec, report={"run": run})).verdict == "wrong"


def test_a_large_claimed_error_is_of_no_use():
    def verdict(error_ns):
        run = SimpleNamespace(clocks=clocks(0, 0, error_ns=error_ns))
        return clock_checks.claimed_errors_are_useful(evidence(ddp(), report={"run": run})).verdict

    assert (verdict(40_000), verdict(2 * MS)) == ("right", "wrong")
