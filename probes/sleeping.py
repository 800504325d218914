"""Layers and data loading that take a given time: what the probes plant, and what `--sleep-compute` computes.

Compute is time of the device. On a GPU a kernel spins on it, and the host runs ahead as it does with any kernel. On a
CPU the thread sleeps inside an autograd function: it takes no core, so four ranks behave on two cores as on four
devices. What models a host that is late, such as a slow data loader, sleeps on the host in both cases.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

# About 25 ms on a GPU of 2 GHz, and more on one that was idle: long enough to reach the clock rate of work.
_WARM_UP_CYCLES = 50_000_000
# About 5 ms: long enough that a launch of some microseconds changes the result by 0.1 %.
_CALIBRATION_CYCLES = 10_000_000
_CALIBRATIONS = 5


@functools.cache
def cycles_per_ms() -> float:
    """Return the cycles of the current GPU's clock in a millisecond, as measured once by CUDA events.

    The first sleep is not measured: it loads the kernel and raises the clock rate. The kernel may count another clock
    than the one that the driver names, as on ROCm, so the rate cannot be asked for.
    """
    torch.cuda._sleep(_WARM_UP_CYCLES)
    rates: list[float] = []
    for _ in range(_CALIBRATIONS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(_CALIBRATION_CYCLES)
        end.record()
        end.synchronize()
        rates.append(_CALIBRATION_CYCLES / start.elapsed_time(end))
    return statistics.median(rates)


def take_time(seconds: float, *, on_gpu: bool) -> None:
    """Compute for `seconds`: on the current GPU's current stream, else on this thread."""
    if seconds <= 0:
        return
    if on_gpu:
        torch.cuda._sleep(round(1000 * seconds * cycles_per_ms()))
    else:
        time.sleep(seconds)


def sleep_on_host(seconds: float) -> None:
    """Keep the host from launching anything for `seconds`, whatever the device is."""
    if seconds > 0:
        time.sleep(seconds)


class _Sleep(torch.autograd.Function):
    """The identity; it takes time in the forward and in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward_s: float, backward_s: float) -> Tensor:
        ctx.on_gpu, ctx.backward_s = x.is_cuda, backward_s
        take_time(forward_s, on_gpu=ctx.on_gpu)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        take_time(ctx.backward_s, on_gpu=ctx.on_gpu)
        return gradient, None, None


class _SleepyLinear(torch.autograd.Function):
    """A linear layer of equal widths that takes time instead of multiplying; its gradients have the real shapes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, forward_s: float) -> Tensor:
        ctx.save_for_backward(weight, bias)
        ctx.on_gpu, ctx.forward_s = x.is_cuda, forward_s
        take_time(forward_s, on_gpu=ctx.on_gpu)
        return x + bias

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        weight, bias = ctx.saved_tensors
        take_time(2 * ctx.forward_s, on_gpu=ctx.on_gpu)
        return gradient, torch.full_like(weight, 1e-6), torch.full_like(bias, 1e-6), None


def sleep(x: Tensor, *, forward_s: float = 0.0, backward_s: float = 0.0) -> Tensor:
    """Return `x` after `forward_s` seconds of compute on its device; its gradient takes `backward_s` seconds."""
    slept: Tensor = _Sleep.apply(x, forward_s, backward_s)
    return slept


class SleepyLinear(nn.Module):
    """`nn.Linear(width, width)` that takes `forward_s` seconds forward and twice that backward, on any device."""

    def __init__(self, width: int, forward_s: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.forward_s = forward_s

    def forward(self, x: Tensor) -> Tensor:
        slept: Tensor = _SleepyLinear.apply(x, self.linear.weight, self.linear.bias, self.forward_s)
        return slept


class SleepySamples(Dataset[Tensor]):
    """Random rows of `width`, each of which takes the host `loading_s` to load.

    A loader gets those of a batch in one call, which sleeps once: many short sleeps would add up to more.
    """

    def __init__(self, count: int, width: int, loading_s: float) -> None:
        self.rows = torch.randn(count, width)
        self.loading_s = loading_s

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Tensor:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        sleep_on_host(len(indices) * self.loading_s)
        return [self.rows[index] for index in indices]
