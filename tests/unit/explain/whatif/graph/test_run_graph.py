"""Recorded runs as graphs: replays without a planted delay save what it costs, which is known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.exchanges import clocks, rank, recv, run_of, send
from tests.builders import TraceBuilder
from tests.unit.explain.whatif.graph.device_job import graph_of_job
from tracekit.errors import InputError
from tracekit.explain.whatif.graph import run_graph
from tracekit.explain.whatif.graph.run_graph import build_run_graph
from tracekit.explain.whatif.whatif import WhatIf, what_if
from tracekit.job.messages import match_messages
from tracekit.loading.load import load
from tracekit.model.run import Run
from tracekit.model.summary import StepParts
from tracekit.rank.recorded_steps import WAITS, Waits

STEPS = 3


def synchronous(
    folder: Path,
    work_us: dict[int, int],
    *,
    transfer_us: int = 20,
    clock_us: dict[int, int] | None = None,
    steps: int = STEPS,
) -> Run:
    """Write and load a run. Each step has an operator, an all-reduce that is waited for, and an optimizer of 30 us.

    work_us: how long the operator of each rank takes. clock_us: how far each rank's clock is ahead.
    """
    longest = max(work_us.values())
    step_us = longest + transfer_us + 30
    for number, rank_us in work_us.items():
        ahead = (clock_us or {}).get(number, 0)
        trace = TraceBuilder(rank=number, world_size=len(work_us))
        for k in range(steps):
            at = ahead + k * step_us
            trace.step(k, at, step_us)
            trace.op("aten::mm", at, rank_us)
            trace.gloo(
                "all_reduce", at + rank_us, longest - rank_us + transfer_us, issued_at=at + rank_us, issued_for=1
            )
            trace.wait(at + rank_us + 1, longest - rank_us + transfer_us - 1)
            trace.op("aten::add_", at + longest + transfer_us, 30)
        trace.capture(clock=[(ahead, ahead * 1000, 100)])
        trace.write_capture(folder)
    return load(folder)


def result_of(run: Run) -> WhatIf:
    return what_if(build_run_graph(run))


def savings_us(result: WhatIf) -> dict[str, float]:
    return {change.what: change.saves_ns_per_step / 1000 for change in result.changes}


def test_the_slow_rank_of_a_synchronous_run(tmp_path: Path) -> None:
    """GIVEN rank 1 with 140 us of work, the others with 100 THEN a step takes 190 us, and 150 us without the delay."""
    result = result_of(synchronous(tmp_path, {0: 100, 1: 140, 2: 100}))
    assert result.measured_ns == 190_000
    assert result.replay_error == pytest.approx(0, abs=0.001)
    assert savings_us(result) == pytest.approx(
        {"rank 1 at its peers' median": 40, "upper bound, if communication were free": 20}, abs=1
    )
    assert result.by_rank[1] > 1.1 > max(result.by_rank[0], result.by_rank[2])
    assert list(result.by_type) == ["own work", "all_reduce"]


def overlapped(folder: Path, last_us: int) -> Run:
    """Write and load a run in which two buckets are reduced while the backward pass computes until 250.

    The first is reduced from 100 to 200. The second is issued at 200 and takes `last_us`; the rank waits for it from
    250 on.
    """
    ends = max(200 + last_us, 250)
    for number in range(2):
        trace = TraceBuilder(rank=number)
        for k in range(STEPS):
            at = k * (ends + 50)
            trace.step(k, at, ends + 50)
            trace.op("aten::mm", at, 100)
            trace.gloo("all_reduce", at + 100, 100, issued_at=at + 100)
            trace.op("aten::mm", at + 102, 97)
            trace.gloo("all_reduce", at + 200, last_us, issued_at=at + 200)
            trace.op("aten::mm", at + 202, 48)
            if ends > 250:
                trace.wait(at + 250, ends - 250)
            trace.op("aten::add_", at + ends, 50)
        trace.capture(clock=[(0, 0, 100)])
        trace.write_capture(folder)
    return load(folder)


def test_hidden_communication_saves_nothing(tmp_path: Path) -> None:
    """GIVEN a second bucket that ends at 280 THEN only the 30 exposed us can be saved, not all 180 us of transfer."""
    result = result_of(overlapped(tmp_path, 80))
    assert result.measured_ns == 330_000
    assert result.replay_error == pytest.approx(0, abs=0.001)
    assert savings_us(result) == pytest.approx({"upper bound, if communication were free": 30}, abs=1)


def test_devices_whose_hosts_run_ahead(tmp_path: Path) -> None:
    """GIVEN devices that compute for 100 or 140 us, reduce, and compute for 30 us, all issued early by their hosts."""
    for number, rank_us in enumerate((100, 140)):
        trace = TraceBuilder(rank=number)
        for k in range(STEPS):
            at, host = 5 + k * 190, k * 20
            trace.step(k, host, 20)
            trace.kernel("gemm", at, rank_us, launched_at=host + 1)
            trace.nccl("all_reduce", at + rank_us, 160 - rank_us, launched_at=host + 3)
            trace.kernel("adam", at + 160, 30, launched_at=host + 5)
        trace.write(tmp_path / f"rank{number}.json.gz")
    result = result_of(load(tmp_path))
    assert result.measured_ns == pytest.approx((195_000 + 190_000 + 190_000) / 3, abs=1)
    assert abs(result.replay_error) < 0.01
    assert savings_us(result) == pytest.approx(
        {"rank 1 at its peers' median": 40, "upper bound, if communication were free": 20}, abs=1
    )


def reductions_in_turn(folder: Path, swapped: set[int]) -> Run:
    """Two ranks that reduce twice a step; rank 1 has the `swapped` steps' reductions in the opposite order."""
    for number in range(2):
        trace = TraceBuilder(rank=number)
        for k in range(STEPS):
            at = 200 * k
            trace.step(k, at, 200)
            for place in range(2):
                at_us = at + 10 + 80 * place
                trace.kernel("gemm", at_us, 40, launched_at=at + 1 + 4 * place)
                number_of = 1 - place if number == 1 and k in swapped else place
                trace.nccl("all_reduce", at_us + 40, 30, launched_at=at + 3 + 4 * place, Seq=2 * k + number_of)
        trace.write(folder / f"rank{number}.json.gz")
    return load(folder)


def test_only_the_step_in_which_operations_wait_for_each_other_is_left_out(tmp_path: Path) -> None:
    graph = build_run_graph(reductions_in_turn(tmp_path, {1}))
    assert [group.steps.tolist() for group in graph.step_groups] == [[0], [2]]
    assert graph.notes == ("step 1 left out: its operations wait for each other",)


def test_of_the_last_step_range_the_other_steps_are_replayed_too(tmp_path: Path) -> None:
    graph = build_run_graph(reductions_in_turn(tmp_path, {2}))
    assert [group.steps.tolist() for group in graph.step_groups] == [[0], [1]]


@pytest.mark.parametrize("swapped", [{0, 2}, {0, 1, 2}])
def test_clocks_that_are_wrong_in_most_steps_are_not_relied_on(tmp_path: Path, swapped: set[int]) -> None:
    with pytest.raises(InputError, match=r"steps 0-2 left out: \d+ operations wait for each other"):
        build_run_graph(reductions_in_turn(tmp_path, swapped))


def exchange(work_us: int, *, sent_at_us: int, received_at_us: int, awaited: bool) -> Run:
    """Return a run in which rank 0 computes for `work_us`, sends to rank 1, and computes until 400.

    Rank 1 posts a receive at 10. If `awaited`, it waits for the message, otherwise it computes until 200. Then it
    computes until 400. sent_at_us, received_at_us: when the spans of the message end.
    """

    def us(*times: int) -> np.ndarray:
        return 1000 * np.array(times, dtype=np.int64)

    step = StepParts(
        step=5, start_ns=0, complete=True, data_ns=None, step_ns=400_000, compute_ns=0, comm_ns=0,
        overlapped_comm_ns=0, exposed_comm_ns=0, exposed_copy_ns=0, idle_ns=400_000,
    )  # fmt: skip
    sender = rank(0, [send(1, 1000 * work_us, took_ns=1000 * (sent_at_us - work_us))])
    since_us = 20 if awaited else 200
    receiver = rank(1, [recv(0, 10_000, took_ns=1000 * (received_at_us - 10), awaited_ns=1000 * since_us)])
    waited = Waits(since_ns=us(since_us), until_ns=us(received_at_us))
    ranks = [replace(sender, steps=(step,)), replace(receiver, steps=(step,)).with_part(WAITS, waited)]
    messages, notes = match_messages(ranks, clocks(2))
    assert notes == []
    return run_of(ranks, messages=messages)


def replayed_us(run: Run, *, shorter_us: int) -> float:
    """Return when rank 1 ends the step if rank 0's work before it sends is shorter."""
    (graph_steps,) = build_run_graph(run).step_groups
    duration_ns = graph_steps.duration_ns.copy()
    first = np.flatnonzero((graph_steps.rank == 0) & (graph_steps.duration_ns[:, 0] > 0))[0]
    duration_ns[first] -= 1000 * shorter_us
    ends_us = graph_steps.graph.replay(duration_ns).end[graph_steps.step_ends[0], 0] / 1000  # type: ignore[index]
    return float(ends_us[1])  # rank 1's


def test_a_rank_that_waits_for_a_message_goes_on_earlier_if_it_is_sent_earlier() -> None:
    """GIVEN a message sent at 100 and received at 120 THEN the transfer takes 20; rank 1 then computes for 280."""
    run = exchange(100, sent_at_us=120, received_at_us=120, awaited=True)
    assert replayed_us(run, shorter_us=0) == 400
    assert replayed_us(run, shorter_us=30) == 370
    assert replayed_us(run, shorter_us=95) == 310  # not before the receive is posted: 10 + 20 + 280


def test_a_message_that_was_not_waited_for_delays_its_receiver_only_if_it_comes_after_it_is_needed() -> None:
    """GIVEN a message that arrives long before rank 1 looks for it at 200, when its span ends."""
    run = exchange(100, sent_at_us=120, received_at_us=201, awaited=False)
    assert replayed_us(run, shorter_us=0) == pytest.approx(400, abs=1)
    assert replayed_us(run, shorter_us=50) == pytest.approx(400, abs=1)
    assert replayed_us(run, shorter_us=-60) == pytest.approx(400, abs=1)  # it arrives at 180
    assert replayed_us(run, shorter_us=-130) == pytest.approx(449, abs=1)  # at 250: 49 too late


def test_the_limit_counts_all_operations_not_communication_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN GPU ranks that launch and synchronise more than they communicate, and one step of which is too much."""
    (steps,) = graph_of_job(tmp_path, [100, 140]).step_groups
    of_step = len(steps.duration_ns) / len(steps.steps)

    monkeypatch.setattr(run_graph, "_MOST_OPERATIONS", of_step + 2)
    build_run_graph(load(tmp_path))

    monkeypatch.setattr(run_graph, "_MOST_OPERATIONS", of_step - 4)
    with pytest.raises(InputError, match="more operations than can be replayed") as error:
        build_run_graph(load(tmp_path))
    assert error.value.hint == "choose fewer ranks"


@pytest.mark.parametrize(
    ("enough", "steps", "sample"),
    [
        (1.5, [[2]], "step 2"),  # the one in the middle
        (2.5, [[1], [3]], "steps 1,3"),
        (4.5, [[0, 1], [3, 4]], "steps 0-1,3-4"),
        (0, [[2]], "step 2"),
    ],
)
def test_of_many_operations_a_sample_of_steps_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: float, steps: list[list[int]], sample: str
) -> None:
    """GIVEN five steps WHEN this many are enough THEN they are spread evenly, and a note says which they are."""
    run = synchronous(tmp_path, {0: 100, 1: 140}, steps=5)
    of_step = 2 * 4  # on each rank an all-reduce, and work before it, until the wait and after it
    monkeypatch.setattr(run_graph, "_ENOUGH_OPERATIONS", enough * of_step)
    graph = build_run_graph(run)

    assert [group.steps.tolist() for group in graph.step_groups] == steps
    assert graph.notes[0].startswith(f"a sample is replayed, {sample} of 0-4: each has 8 operations")
    assert savings_us(what_if(graph))["rank 1 at its peers' median"] == pytest.approx(40, abs=1)
