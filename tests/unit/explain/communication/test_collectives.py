"""The table of collectives over ranks, with known times in microseconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.explain.communication.collectives import collective_times
from tracekit.loading.load import load
from tracekit.model.run import Run
from tracekit.model.table import records
from tracekit.render.terminal import terminal_text
from tracekit.report.report import analyze

ELEMENTS = 250_000  # of four bytes: 1 MB


def job(
    folder: Path,
    arrivals: list[list[int]],
    *,
    transfer: int = 100,
    kind: str = "all_reduce",
    hosts: list[str] | None = None,
    groups: list[list[int]] | None = None,
    transfers: list[int] | None = None,
) -> Run:
    """`arrivals`: of each rank, when it comes to each instance. An instance ends `transfer` after the last arrival, or
    in the n-th group `transfers[n]` after it. One clock for all, as measured."""
    world = len(arrivals)
    groups = groups or [list(range(world))]
    traces = []
    for rank, times in enumerate(arrivals):
        trace = TraceBuilder(rank, world, host=hosts[rank] if hosts else "node0").step(0, 0, 100_000)
        trace.kernel("gemm", 0, 5, launched_at=0)
        number, members = next((i, group) for i, group in enumerate(groups) if rank in group)
        took = transfers[number] if transfers else transfer
        for place, at in enumerate(times):
            end = max(arrivals[other][place] for other in members) + took
            arguments: dict[str, Any] = {"elements": ELEMENTS, "group": members, "description": "tp", "Seq": place}
            trace.nccl(kind, at, end - at, launched_at=at - 1, **arguments)
        trace.capture(clock=[(0, 0, 0)])
        assert trace.metadata is not None
        trace.metadata = replace(trace.metadata, host_id=trace.host)
        traces.append(trace)
    return load(write_run(folder, traces))


def table(run: Run) -> list[dict[str, Any]]:
    return records(collective_times(run).table)


def test_skew_wait_transfer_and_bandwidth(tmp_path: Path) -> None:
    (row,) = table(job(tmp_path, [[100, 500, 900], [130, 500, 1000], [110, 560, 920], [100, 510, 900]]))
    assert (row["count"], row["matched_by"], row["size_bytes"], row["ranks"]) == (3, "seq", 1_000_000, 4)
    assert (row["skew_p50_ns"], row["skew_max_ns"], row["error_ns"]) == (60_000, 100_000, 0)
    waits = [30, 0, 20, 30, 60, 60, 0, 50, 100, 0, 80, 100]
    assert row["wait_mean_ns"] == round(sum(waits) / len(waits) * 1000)
    assert row["transfer_p50_ns"] == 100_000
    assert row["algbw_bps"] == 1e6 / 100e-6
    assert row["busbw_bps"] == 1e6 / 100e-6 * 1.5
    assert (row["link"], row["significant"]) == ("host", True)


@pytest.mark.parametrize(("kind", "factor"), [("all_gather", 0.75), ("all_to_all", 0.75), ("broadcast", 1.0)])
def test_bus_bandwidth_by_kind(tmp_path: Path, kind: str, factor: float) -> None:
    (row,) = table(job(tmp_path, [[100], [120], [130], [100]], kind=kind))
    assert row["busbw_bps"] == row["algbw_bps"] * factor == 1e6 / 100e-6 * factor


def test_times_below_the_uncertainty_of_the_clocks_are_null(tmp_path: Path) -> None:
    run = job(tmp_path, [[100, 300], [104, 303]], hosts=["a", "b"])
    clocks = (run.clocks[0], replace(run.clocks[1], error_ns=5000))
    (row,) = table(replace(run, clocks=clocks))
    assert (row["skew_p50_ns"], row["skew_max_ns"], row["wait_mean_ns"], row["significant"]) == (
        None,
        None,
        None,
        False,
    )
    assert row["transfer_p50_ns"] == 100_000  # whichever came last, the shorter of both is the transfer
    assert "n.s." in terminal_text(analyze(replace(run, clocks=clocks)))


def test_transfers_are_known_with_clocks_that_cannot_be_compared(tmp_path: Path) -> None:
    run = job(tmp_path, [[100], [180]], hosts=["a", "b"])
    (row,) = table(replace(run, clocks=tuple(replace(c, method="none", error_ns=None) for c in run.clocks)))
    assert (row["skew_max_ns"], row["error_ns"], row["link"]) == (None, None, "network")
    assert row["transfer_p50_ns"] == 100_000


def test_instances_without_one_of_the_ranks_do_not_count(tmp_path: Path) -> None:
    run = job(tmp_path, [[100, 400], [100, 450]])
    group = run.collectives[0]
    row = group.row.copy()
    row[1, 0] = -1
    (remaining,) = table(replace(run, collectives=(replace(group, row=row),)))
    assert (remaining["count"], remaining["skew_max_ns"]) == (1, 50_000)


def test_a_rank_without_collectives_does_not_remove_the_row(tmp_path: Path) -> None:
    run = job(tmp_path, [[10, 500], [40, 530], [20, 520]])
    silent = run.collectives[0].row.copy()
    silent[2] = -1
    (row,) = table(replace(run, collectives=(replace(run.collectives[0], row=silent),)))
    assert (row["count"], row["ranks"], row["skew_max_ns"]) == (2, 2, 30_000)


def test_a_group_of_one_present_rank_has_no_row(tmp_path: Path) -> None:
    assert table(job(tmp_path, [[100], [100]], groups=[[0], [1]])) == []


def test_a_slow_host_is_named(tmp_path: Path) -> None:
    hosts = [f"node{rank // 2}" for rank in range(8)]
    groups = [[0, 1], [2, 3], [4, 5], [6, 7]]
    run = job(tmp_path, [[100, 2000]] * 8, hosts=hosts, groups=groups, transfers=[100, 110, 300, 90])
    (finding,) = collective_times(run).findings
    assert (finding.evidence["host"], finding.evidence["slowdown"]) == ("node2", pytest.approx(3.0, abs=0.05))
    assert finding.evidence["host"] == "node2"


def test_equal_hosts_are_not_named(tmp_path: Path) -> None:
    hosts = [f"node{rank // 2}" for rank in range(8)]
    groups = [[0, 1], [2, 3], [4, 5], [6, 7]]
    run = job(tmp_path, [[100]] * 8, hosts=hosts, groups=groups, transfers=[100, 110, 120, 90])
    assert collective_times(run).findings == ()
