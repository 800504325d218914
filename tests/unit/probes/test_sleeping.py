"""How long a planted delay takes: cycles of a GPU's clock, whose rate is measured once, or a sleep of the host."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.components import require_module
from tests.places import PROBES

torch = require_module("torch")

LOADING_MS = 3.0


class Gpu:
    """A device whose clock makes `rate` cycles a millisecond; its first kernel has to be loaded."""

    def __init__(self, rates: list[float]) -> None:
        self.rates = rates
        self.launched: list[int] = []
        self.now_ms = 0.0

    def sleep(self, cycles: int) -> None:
        rate = self.rates[min(len(self.launched), len(self.rates) - 1)]
        self.now_ms += cycles / rate + (0.0 if self.launched else LOADING_MS)
        self.launched.append(cycles)

    def event(self, *, enable_timing: bool) -> Event:
        return Event(self, enable_timing)


class Event:
    def __init__(self, gpu: Gpu, timed: bool) -> None:
        self.gpu, self.timed, self.at_ms, self.waited = gpu, timed, -1.0, False

    def record(self) -> None:
        self.at_ms = self.gpu.now_ms

    def synchronize(self) -> None:
        self.waited = True

    def elapsed_time(self, end: Event) -> float:
        assert self.timed
        assert end.timed
        assert end.waited, "the time of an event that has not happened"
        return end.at_ms - self.at_ms


@pytest.fixture
def sleeping(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(PROBES))
    module = importlib.import_module("sleeping")
    module.cycles_per_ms.cache_clear()
    yield module
    module.cycles_per_ms.cache_clear()


@pytest.fixture
def host_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The sleeps of the host, which do not really happen."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


def use(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_sleep", gpu.sleep)
    monkeypatch.setattr(torch.cuda, "Event", gpu.event)


def test_the_rate_is_measured_once_and_without_the_first_kernel(
    sleeping: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a clock that is slow at first and once in between THEN neither counts."""
    gpu = Gpu([500_000.0, 2e6, 2e6, 1.2e6, 2e6])
    use(gpu, monkeypatch)

    rates = [sleeping.cycles_per_ms() for _ in range(3)]

    assert rates == pytest.approx([2e6] * 3)
    assert len(gpu.launched) == 6


def test_compute_on_a_gpu_is_as_many_cycles_as_it_takes(
    sleeping: ModuleType, host_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu([1.5e6])
    use(gpu, monkeypatch)
    sleeping.cycles_per_ms()
    gpu.launched.clear()

    sleeping.take_time(0.02, on_gpu=True)
    sleeping.take_time(0.0, on_gpu=True)

    assert gpu.launched == [30_000_000]
    assert host_s == []


def test_compute_on_a_cpu_and_lateness_are_sleeps_of_the_host(
    sleeping: ModuleType, host_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu([1.5e6])
    use(gpu, monkeypatch)

    sleeping.take_time(0.02, on_gpu=False)
    sleeping.sleep_on_host(0.03)
    sleeping.sleep_on_host(0.0)
    samples = sleeping.SleepySamples(3, 4, 0.04)
    assert len(samples[1]) == 4
    (batch,) = torch.utils.data.DataLoader(samples, batch_size=3)
    assert batch.tolist() == samples.rows.tolist()

    assert host_s == pytest.approx([0.02, 0.03, 0.04, 0.12])
    assert gpu.launched == []


def test_layers_take_their_time_forward_and_backward(sleeping: ModuleType, host_s: list[float]) -> None:
    x = torch.ones(2, 4, requires_grad=True)

    sleeping.sleep(sleeping.SleepyLinear(4, 0.005)(x), forward_s=0.001, backward_s=0.002).sum().backward()

    assert host_s == [0.005, 0.001, 0.002, 0.01]
