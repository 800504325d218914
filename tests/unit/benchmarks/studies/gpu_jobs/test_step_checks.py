"""Checks of steps and communication: a window, a part or a kernel that is counted wrongly is seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.studies.gpu_jobs.checks import communication, step_times
from tests.gpu_jobs import Clocks
from tests.unit.benchmarks.studies.gpu_jobs.hand_made import ddp, evidence, rank_step, seen_step


def report_of_steps(**changes):
    """Return a report on two ranks, of the second of which something is wrong."""
    ranks = [
        SimpleNamespace(rank=0, steps=(seen_step(rank_step(0)),)),
        SimpleNamespace(rank=1, steps=(seen_step(rank_step(1), **changes),)),
    ]
    return {"run": SimpleNamespace(ranks=ranks)}


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        (step_times.steps_are_complete, {"complete": False}),
        (step_times.steps_begin_when_they_do, {"start_ns": 5}),
        (step_times.steps_last_as_long, {"step_ns": 10_010_000}),
        (step_times.parts_of_steps, {"compute_ns": 6_100_000}),
        (step_times.parts_of_steps, {"idle_ns": 1_900_000}),
        (step_times.communication_of_steps, {"overlapped_comm_ns": 0}),
        (communication.communication_is_communication, {"comm_ns": 0}),
    ],
)
def test_a_step_that_is_wrong_is_seen(check, changes):
    assert check(evidence(ddp(), report=report_of_steps())).verdict == "right"
    assert check(evidence(ddp(), report=report_of_steps(**changes))).verdict == "wrong"


def test_windows_are_compared_on_the_clock_that_the_trace_shows():
    spec = ddp(2, ranks_per_host=1, clocks=Clocks(offset_us=(0.0, 700.0)))
    shown = report_of_steps(start_ns=seen_step(rank_step(1)).start_ns + 700_000)

    assert step_times.steps_begin_when_they_do(evidence(spec, report=shown)).verdict == "right"
    assert step_times.steps_begin_when_they_do(evidence(spec, report=report_of_steps())).verdict == "wrong"


def kernel(activity, start_ns, end_ns, kind="all_reduce"):
    return SimpleNamespace(
        rank=0, activity=activity, start_ns=start_ns, end_ns=end_ns, transfers=(SimpleNamespace(kind=kind),)
    )


def report_of_rows(*rows):
    summary = SimpleNamespace(rank=0, steps=(seen_step(rank_step(0)),))
    summary = type("Summary", (SimpleNamespace,), {"__getitem__": lambda self, part: rows})(**vars(summary))
    return {"run": SimpleNamespace(ranks=[summary])}


def row(kind, exposed_ns, count=1):
    return SimpleNamespace(kind=kind, exposed_ns=exposed_ns, count=count)


@pytest.mark.parametrize(("exposed_ns", "verdict"), [(1_000_000, "right"), (1_200_000, "wrong"), (800_000, "wrong")])
def test_exposed_time_of_a_kind_is_what_no_compute_covers(exposed_ns, verdict):
    kernels = [kernel("compute", 0, 2_000_000), kernel("comm", 1_000_000, 3_000_000)]

    outcome = communication.exposed_by_kind(
        evidence(ddp(1), kernels=kernels, report=report_of_rows(row("all_reduce", exposed_ns)))
    )

    assert outcome.verdict == verdict


@pytest.mark.parametrize(("exposed_ns", "verdict"), [(2_000_000, "right"), (3_000_000, "wrong"), (1_800_000, "wrong")])
def test_rows_that_overlap_add_up_to_the_time_that_they_cover(exposed_ns, verdict):
    kernels = [kernel("comm", 0, 2_000_000, "message"), kernel("comm", 1_000_000, 2_000_000, "message")]
    rows = report_of_rows(row("send", exposed_ns - 1_000_000), row("recv", 1_000_000))

    assert communication.exposed_by_kind(evidence(ddp(1), kernels=kernels, report=rows)).verdict == verdict


def test_a_kernel_of_another_kind_is_seen():
    kernels = [kernel("comm", 0, 1000), kernel("comm", 2000, 3000, "message")]

    right = report_of_rows(row("all_reduce", 1000), row("send_recv", 1000))
    wrong = report_of_rows(row("all_reduce", 1000, count=2))

    assert communication.kinds_are_known(evidence(ddp(1), kernels=kernels, report=right)).verdict == "right"
    assert communication.kinds_are_known(evidence(ddp(1), kernels=kernels, report=wrong)).verdict == "wrong"
