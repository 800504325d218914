"""How busy a server is, for whom, and where a call waits on its way."""

from __future__ import annotations

import pytest

from benchmarks.exchanges import clocks, rank, run_of
from tests.unit.rpc.simulated import Exchange
from tests.unit.rpc.test_trainers import MS, trainer
from tracekit.model.run import Run
from tracekit.rpc.remote_calls import server_loads, server_rows, service_rows


def run_with(**others: object) -> Run:
    """Two trainers, whose steps are 100 ms and 50 ms long; 300 ms in all, and 150."""
    trainers = [trainer(1, [100] * 3), trainer(2, [50] * 3)]
    return run_of([rank(0, steps=(), serves_only=True), *trainers], **others)  # type: ignore[arg-type]


def exchange() -> Exchange:
    """Each step of trainer 1 is served 30 ms, of trainer 2 20 ms; a tenth of that on a CPU."""
    result = Exchange(2)
    for step in range(3):
        result.call(1, "pull", 200 * MS * step, step=step, lasts_ns=30 * MS + 2, cpu_ns=3 * MS)
        result.call(2, "pull", 200 * MS * step + 100 * MS, step=step, lasts_ns=20 * MS + 2, cpu_ns=2 * MS)
    return result


def test_the_load_is_the_share_of_each_callers_steps_whenever_they_record() -> None:
    """Trainer 1: 90 of 300 ms. Trainer 2: 60 of 150 ms."""
    joined = exchange().joined()
    loads = server_loads(run_with(), joined)

    (server,) = server_rows(joined, loads)

    assert server["load"] == pytest.approx(0.3 + 0.4)
    assert server["cpu_load"] == pytest.approx(0.07)
    assert (server["rank"], server["worker"], server["callers"], server["threads"]) == (0, "ps", 2, 16)
    assert server["calls_per_s"] == pytest.approx(10 + 20)
    assert server["main_caller"] == 2
    assert server["main_caller_share"] == pytest.approx(4 / 7)


def test_a_row_is_a_function_of_one_caller_with_the_parts_of_its_round_trip() -> None:
    joined = exchange().joined()

    first, second = service_rows(server_loads(run_with(), joined))

    assert (first["rank"], second["rank"]) == (2, 1)  # the larger part first
    assert second["share"] == pytest.approx(3 / 7)
    assert (second["service_ns"], second["cpu_ns"]) == (30 * MS, 3 * MS)
    assert (second["request_ns"], second["reply_ns"], second["held_ns"]) == (1, 1, 0)


def test_the_way_to_the_server_and_back_is_on_the_clock_of_the_run() -> None:
    """GIVEN a server whose clock is 5 ns ahead."""
    run = run_with(clocks=tuple(clocks(3, offsets_ns=(5, 0, 0))))

    first, _ = service_rows(server_loads(run, exchange().joined()))

    assert (first["request_ns"], first["reply_ns"]) == (-4, 6)


def test_where_clocks_cannot_be_compared_the_way_is_unknown() -> None:
    trainers = [trainer(1, [100] * 3, host="node1"), trainer(2, [50] * 3, host="node2")]
    run = run_of([rank(0, steps=(), serves_only=True), *trainers], clocks=tuple(clocks(3, method="none")))

    rows = service_rows(server_loads(run, exchange().joined()))

    assert [(row["request_ns"], row["reply_ns"]) for row in rows] == [(None, None)] * 2


def test_an_asynchronous_function_is_served_until_it_returns_and_held_until_its_future_ends() -> None:
    result = Exchange(1)
    result.call(1, "exchange", 0, lasts_ns=50 * MS + 2, returned_ns=10 * MS + 1)

    (row,) = service_rows(server_loads(run_with(), result.joined()))

    assert (row["service_ns"], row["held_ns"]) == (10 * MS, 40 * MS)
    assert row["cpu_ns"] is None  # not recorded, and not zero
