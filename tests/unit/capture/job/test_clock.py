"""Clock offsets measured through a store: each host is a thread with a skewed clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.components import require_module
from tracekit.capture.job import clock_leader
from tracekit.capture.job.clock import HostClock
from tracekit.capture.job.process import Identity
from tracekit.capture.job.run_agreement import BoundedStore
from tracekit.capture.window_writer import CLOCK_LIMIT_S
from tracekit.model.metadata import ClockMeasurement

torch_distributed = require_module("torch.distributed")

PATIENT_S = 30.0  # a limit for a busy machine, where the arithmetic is tested


def identity(rank: int, world_size: int, host: str) -> Identity:
    return Identity(rank=rank, local_rank=0, world_size=world_size, host=host, host_id=host, attempt=0)


class SimulatedJob:
    """Ranks of one job, each a thread: rank i is on `hosts[i]`, whose clock is ahead by `skew_ns`."""

    def __init__(self, shared: Any, hosts: Sequence[str], skew_ns: dict[str, int]) -> None:
        self.callers: set[str] = set()  # names of the threads that called the store
        self.skew_ns = skew_ns
        self.hosts = hosts
        self._stores = [BoundedStore(_Watched(shared, self.callers)) for _ in hosts]
        self.clocks = [
            HostClock(
                store,
                identity(rank, len(hosts), host),
                now_ns=lambda skew=skew_ns[host]: time.time_ns() + skew,  # type: ignore[misc]
            )
            for rank, (host, store) in enumerate(zip(hosts, self._stores, strict=True))
        ]

    def run(self, training: Callable[[int, HostClock], ClockMeasurement]) -> list[ClockMeasurement]:
        """Return what `training(rank, clock)` returns on each rank."""
        with ThreadPoolExecutor(len(self.clocks), thread_name_prefix="training") as pool:
            return list(pool.map(training, range(len(self.clocks)), self.clocks))

    def error_of(self, rank: int, sample: Any) -> int:
        """How far the measured offset is from the planted one, in ns."""
        return abs(sample.offset_ns - (self.skew_ns[self.hosts[rank]] - self.skew_ns[self.hosts[0]]))

    def close(self) -> None:
        for host_clock in self.clocks:
            host_clock.close()
        for store in self._stores:
            store.close()


class _Watched:
    """A store that notes which threads call it."""

    def __init__(self, store: Any, callers: set[str]) -> None:
        self._store = store
        self._callers = callers

    def __getattr__(self, name: str) -> Any:
        self._callers.add(threading.current_thread().name)
        return getattr(self._store, name)


@pytest.fixture
def job() -> Iterator[Callable[..., SimulatedJob]]:
    """`job(hosts, skew_ns)`: ranks of one job that share a store."""
    with ExitStack() as stack:

        def make(hosts: Sequence[str], skew_ns: dict[str, int]) -> SimulatedJob:
            made = SimulatedJob(torch_distributed.HashStore(), hosts, skew_ns)
            stack.callback(made.close)
            return made

        yield make


def one_window(_: int, host_clock: HostClock) -> ClockMeasurement:
    host_clock.register()
    host_clock.measure()
    return host_clock.result(PATIENT_S)


def test_ranks_of_one_host_share_its_clock_exactly(job: Callable[..., SimulatedJob]) -> None:
    for result in job(["a", "a", "a"], {"a": 0}).run(one_window):
        assert result.method == "store"
        assert result.reference_rank == 0
        assert [(sample.offset_ns, sample.error_ns) for sample in result.samples] == [(0, 0)]


def test_every_rank_of_a_host_gets_the_offset_that_one_of_them_measured(job: Callable[..., SimulatedJob]) -> None:
    skew_ns = {"a": 3_000_000, "b": -250_000_000_000, "c": 15_300_000}
    made = job(["a", "b", "c", "b"], skew_ns)

    results = made.run(one_window)

    for rank, result in enumerate(results):
        (sample,) = result.samples
        assert made.error_of(rank, sample) <= sample.error_ns
        assert sample.error_ns <= sample.rtt_ns
    assert results[1].samples == results[3].samples


def test_offsets_add_up_along_the_tree(job: Callable[..., SimulatedJob], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_leader, "FAN_OUT", 1)  # a chain: the parent of each host is the one before it
    monkeypatch.setattr(clock_leader, "ROUNDS", 5)
    made = job("abcd", {"a": 0, "b": 10**9, "c": -(10**9), "d": 5 * 10**9})

    for rank, result in enumerate(made.run(one_window)):
        (sample,) = result.samples
        assert made.error_of(rank, sample) <= sample.error_ns


@pytest.mark.parametrize(("hosts", "apart_s"), [(2, 0.7), (8, 0.05), (24, 0.02)])
def test_hosts_that_come_one_after_the_other_all_know_their_offset_and_no_training_thread_asks_the_store(
    job: Callable[..., SimulatedJob], hosts: int, apart_s: float
) -> None:
    """With the limits of a real job. The last host comes first."""
    names = [f"host{number}" for number in range(hosts)]
    made = job(names, {f"host{number}": number * 7_000_000_001 for number in range(hosts)})
    step = threading.Barrier(len(names))

    def training(rank: int, host_clock: HostClock) -> ClockMeasurement:
        time.sleep(apart_s * (hosts - 1 - rank))
        host_clock.register()
        host_clock.measure()
        step.wait()  # as a collective of the first step
        host_clock.measure()
        return host_clock.result(CLOCK_LIMIT_S)

    results = made.run(training)

    for rank, result in enumerate(results):
        assert len(result.samples) == 2, rank
        for sample in result.samples:
            assert made.error_of(rank, sample) <= sample.error_ns
    assert not {name for name in made.callers if name.startswith("training")}
    assert {name for name in made.callers if name.startswith("tracekit-clock")}


def test_a_host_that_comes_when_the_others_have_finished_is_still_answered(job: Callable[..., SimulatedJob]) -> None:
    made = job("ab", {"a": 0, "b": 10**9})
    first, second = made.clocks

    results = [one_window(0, first)]
    first.linger()
    results.append(one_window(1, second))

    assert [len(result.samples) for result in results] == [1, 1]
    assert made.error_of(1, results[1].samples[0]) <= results[1].samples[0].error_ns


def test_without_the_host_of_rank_0_the_offset_is_unknown_and_costs_its_limit(job: Callable[..., SimulatedJob]) -> None:
    made = job("ab", {"a": 0, "b": 5})

    made.clocks[1].register()
    made.clocks[1].measure()

    assert made.clocks[1].result(0.1) == ClockMeasurement(reference_rank=None, method="none", samples=[])


def test_a_host_that_asks_and_goes_holds_up_no_other(
    job: Callable[..., SimulatedJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_leader, "REPLY_S", 0.05)
    made = job("abc", {"a": 0, "b": 10**9, "c": 2 * 10**9})
    for host_clock in made.clocks:
        host_clock.register()
    ask_parent = clock_leader.ClockLeader._ask_parent

    def ask_and_go(leader: Any, session: int, node: int) -> Any:
        if leader._host_id == "b":
            store = leader._store
            store.set(leader._keys.question(0, store.add(leader._keys.queued(0), 1)), "gone")
            raise ConnectionError
        return ask_parent(leader, session, node)

    monkeypatch.setattr(clock_leader.ClockLeader, "_ask_parent", ask_and_go)
    made.clocks[1].measure()
    made.clocks[0].measure()
    made.clocks[2].measure()

    assert len(made.clocks[2].result(PATIENT_S).samples) == 1


def test_a_store_that_fails_leaves_the_offset_unknown() -> None:
    class Broken:
        calls = 0

        def __getattr__(self, _name: str) -> Any:
            Broken.calls += 1
            raise RuntimeError("connection reset by peer")

    host_clock = HostClock(BoundedStore(Broken()), identity(0, 1, "a"))
    host_clock.register()
    host_clock.measure()

    assert host_clock.result(1.0).method == "none"
    assert Broken.calls == 2  # to register, and to read the sample
