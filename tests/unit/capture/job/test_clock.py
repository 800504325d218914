"""Clock offsets measured through a store: each host is a thread with a skewed clock."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.job import clock
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.process import Identity
from tracekit.capture.job.store import BoundedStore
from tracekit.model.metadata import ClockMeasurement

torch_distributed = require_module("torch.distributed")


def identity(rank: int, world_size: int, host: str) -> Identity:
    return Identity(rank=rank, local_rank=0, world_size=world_size, host=host, host_id=host, attempt=0)


@pytest.fixture(autouse=True)
def long_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long limits, so that a busy machine passes: the arithmetic is tested."""
    monkeypatch.setattr(clock, "SESSION_S", 30.0)
    monkeypatch.setattr(clock, "BUDGET_S", 60.0)


def measure(hosts: list[str], skew_ns: dict[str, int], registered: int | None = None) -> list[ClockMeasurement]:
    """Return one measurement by `len(hosts)` ranks. The last ranks register first, `registered` of them."""
    store = torch_distributed.HashStore()
    clocks = [
        HostClock(
            BoundedStore(store),
            identity(rank, len(hosts), host),
            now_ns=lambda skew=skew_ns[host]: time.time_ns() + skew,  # type: ignore[misc]
        )
        for rank, host in enumerate(hosts)
    ]
    for host_clock in clocks[::-1][:registered]:
        host_clock.register()
    with ThreadPoolExecutor(len(clocks)) as pool:
        list(pool.map(HostClock.measure, clocks))
        return list(pool.map(HostClock.result, clocks))


def test_ranks_of_one_host_share_its_clock_exactly() -> None:
    for result in measure(["a", "a", "a"], {"a": 0}):
        assert result.method == "store"
        assert result.reference_rank == 0
        assert [(sample.offset_ns, sample.error_ns) for sample in result.samples] == [(0, 0)]


def test_every_rank_of_a_host_gets_the_offset_that_one_of_them_measured() -> None:
    skew_ns = {"a": 3_000_000, "b": -250_000_000_000, "c": 15_300_000}
    hosts = ["a", "b", "c", "b"]

    for host, result in zip(hosts, measure(hosts, skew_ns), strict=True):
        (sample,) = result.samples
        assert abs(sample.offset_ns - (skew_ns[host] - skew_ns["a"])) <= sample.error_ns
        assert sample.error_ns <= sample.rtt_ns


def test_offsets_add_up_along_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "FAN_OUT", 1)  # a chain: the parent of each host is the one before it
    monkeypatch.setattr(clock, "ROUNDS", 5)
    skew_ns = {"a": 0, "b": 10**9, "c": -(10**9), "d": 5 * 10**9}

    results = measure(list("abcd"), skew_ns)

    for host, result in zip("abcd", results, strict=True):
        (sample,) = result.samples
        assert abs(sample.offset_ns - skew_ns[host]) <= sample.error_ns


def test_a_rank_without_a_probe_leaves_the_offset_unknown() -> None:
    for result in measure(["a", "b"], {"a": 0, "b": 5}, registered=1):
        assert result == ClockMeasurement(reference_rank=None, method="none", samples=[])


def test_waiting_for_a_peer_that_never_answers_stays_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "SESSION_S", 0.05)
    monkeypatch.setattr(clock, "BUDGET_S", 0.1)
    store = torch_distributed.HashStore()
    here, gone = (HostClock(BoundedStore(store), identity(rank, 2, host)) for rank, host in enumerate("ab"))
    gone.register()
    here.register()

    for _ in range(20):
        here.measure()

    assert here.result().method == "store"  # the reference itself knows its offset
    assert here._sessions <= 3


def test_a_store_that_fails_is_not_asked_again() -> None:
    class Broken:
        calls = 0

        def __getattr__(self, _name: str) -> Any:
            Broken.calls += 1
            raise RuntimeError("connection reset by peer")

    host_clock = HostClock(BoundedStore(Broken()), identity(0, 1, "a"))
    host_clock.register()
    host_clock.measure()

    assert host_clock.result().method == "none"
    assert Broken.calls == 1
