"""What is noted of a served call: how long it ran, and the call that completed its future."""

from __future__ import annotations

import pytest

from tracekit.capture.job.rpc_worker import Worker
from tracekit.capture.rpc import services
from tracekit.capture.rpc.services import begin_service, running_service, take_services, use_of
from tracekit.model.metadata import RpcCallId


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_services", [])


def test_a_service_has_its_time_on_a_cpu() -> None:
    pull = begin_service(1, 0, "pull")
    pull.leave()
    pull.end()

    record = pull.record()
    assert record.released_by is None
    assert record.cpu_ns is not None
    assert 0 <= record.cpu_ns <= record.end_ns - record.start_ns + 10_000_000
    use = use_of(Worker(name="ps", number=0, world_size=2, threads=16), take_services())
    assert (use.services, use.threads) == ([record], 16)


def test_a_future_that_another_call_completes_is_released_by_it() -> None:
    waiting = begin_service(1, 4, "exchange")
    waiting.leave()
    last = begin_service(2, 7, "exchange")
    waiting.end()
    last.leave()
    last.end()

    assert waiting.record().released_by == RpcCallId(caller=2, number=7)
    assert last.record().released_by is None


def test_a_service_within_another_returns_the_thread_to_it() -> None:
    outer = begin_service(1, 0, "outer")
    inner = begin_service(1, 1, "inner")
    assert running_service() is inner
    inner.leave()
    assert running_service() is outer
    outer.leave()
    assert running_service() is None
