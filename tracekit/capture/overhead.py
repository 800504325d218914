"""Measures, in the recorded process, what recording adds to the steps.

torch has one profiler in a process, and starting it again for a measurement would disturb the job. So the cost of an
event is measured as the first recording of a process ends, between two steps. A few passes through tiny layers run
before the profiler stops, under `tracekit.calibration` in the trace, and again after it. The difference in CPU time of
this thread, divided by the number of events, is the cost of an event.

If the job has made a backward pass, a pass is a small training step: forward, back, and what an optimizer does. Nodes
of the autograd graph cost twice as much as operators in place. No random number is drawn, and nothing is left behind.

The profiler's overhead is this cost times the events of the steps, counted in the export; the observers' spans are
added. If the measurement is not possible, the cost stays unknown.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tracekit.capture.hooks.patching import Patch, wrap_call
from tracekit.capture.hooks.span import span
from tracekit.capture.job.rpc_worker import rpc_ready
from tracekit.capture.output.packing import EventCounts
from tracekit.model.spans import CALIBRATION_SPAN

_PASSES = 16  # other programs and cold caches disturb most of them
_MIN_PASSES = 3
_MAX_NS = 15_000_000  # for each half: in a debugger a pass may take milliseconds
_CALLS = 50  # of an empty function


@dataclass(frozen=True, kw_only=True)
class _Cost:
    """What one event adds to a step.

    Attributes:
        operation_ns: of an operator or annotation in the trace.
        python_call_ns: of a Python call.
        span_ns: of a span of the observers.
    """

    operation_ns: float
    python_call_ns: float
    span_ns: float


@dataclass(frozen=True, kw_only=True)
class _Timing:
    """CPU times of one half of the measurement.

    Attributes:
        pass_ns: of a pass through the tiny layers.
        passes: how many there were.
        call_ns: of a call of an empty function.
    """

    pass_ns: int
    passes: int
    call_ns: float


_costs: dict[frozenset[str], _Cost] = {}  # by the profiler's options: measured once a process


class OverheadMeter:
    """Measures the overhead of one recording.

    The order of calls is `begin`, `while_recording` before the profiler stops, `after_recording`, and `count` with what
    the export holds. If one of them is missing or fails, there is no measurement.
    """

    def __init__(self, options: dict[str, bool]) -> None:
        self._options = frozenset(name for name, on in options.items() if on)
        self._backward: Patch | None = None
        self._trained = False
        self._recorded_timing: _Timing | None = None
        self._plain_timing: _Timing | None = None
        self._span_ns = 0.0
        self._counts: EventCounts | None = None

    @property
    def operation_ns(self) -> int | None:
        """The cost of an operator in the trace, or None if it was not measured."""
        cost = _costs.get(self._options)
        return None if cost is None else round(cost.operation_ns)

    def recording_ns(self) -> int | None:
        """Return what recording added to all steps together, without bookkeeping; None if it was not measured."""
        cost, counts = _costs.get(self._options), self._counts
        if cost is None or counts is None:
            return None
        events_ns = counts.operations * cost.operation_ns + counts.python_calls * cost.python_call_ns
        return round(events_ns + counts.spans * cost.span_ns)

    def begin(self) -> None:
        autograd = getattr(sys.modules.get("torch"), "autograd", None)
        if self._options not in _costs and autograd is not None:
            self._backward = Patch(autograd, "backward", self._note_backward)
            self._backward.apply()

    def while_recording(self) -> None:
        """Run the passes; the last call before the profiler stops, outside of any step."""
        if self._backward is not None:
            self._backward.remove()
            with span(CALIBRATION_SPAN):
                self._recorded_timing = _timing(self._trained)

    def after_recording(self) -> None:
        """Run the passes again; the first call after the profiler has stopped."""
        if self._recorded_timing is not None:
            self._plain_timing = _timing(self._trained)
            self._span_ns = _per_call_ns(wrap_call(_empty, _in_span)) - self._plain_timing.call_ns

    def detach(self) -> None:
        """Remove the patch of `begin`."""
        if self._backward is not None:
            self._backward.remove()

    def count(self, counts: EventCounts) -> None:
        """Compute the costs from what the export holds."""
        self._counts = counts
        on, off, self._recorded_timing, self._plain_timing = self._recorded_timing, self._plain_timing, None, None
        if on is None or off is None or not counts.calibration_operations:
            return
        operation_ns = (on.pass_ns - off.pass_ns) * on.passes / counts.calibration_operations
        if operation_ns > 0:
            _costs[self._options] = _Cost(
                operation_ns=operation_ns,
                python_call_ns=max(on.call_ns - off.call_ns, 0) if "with_stack" in self._options else 0,
                span_ns=max(self._span_ns, 0),
            )

    def _note_backward(self, backward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._trained = True
        return backward(*args, **kwargs)


def _timing(trained: bool) -> _Timing:
    torch = sys.modules["torch"]
    with contextlib.ExitStack() as stack:
        # Contexts that the program has entered must not see this. Raises if the program offloads saved tensors.
        stack.enter_context(torch._C.DisableTorchFunction())
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.set_grad_enabled(trained))
        stack.enter_context(torch.autograd.graph.disable_saved_tensors_hooks("the probe measures its cost"))
        stack.enter_context(torch.autocast("cpu", enabled=False))
        if torch._C._len_torch_dispatch_stack():
            raise RuntimeError("a dispatch mode is active")
        if getattr(sys.modules.get("torch._dynamo.compiled_autograd"), "compiled_autograd_enabled", False):
            raise RuntimeError("a backward pass would be compiled")
        if rpc_ready():
            raise RuntimeError("operators that other workers ask for would count")
        layers = _layers(trained)
        durations_ns: list[int] = []
        deadline_ns = time.thread_time_ns() + _MAX_NS
        while len(durations_ns) <= _PASSES and time.thread_time_ns() < deadline_ns:
            begin_ns = time.thread_time_ns()
            layers()
            durations_ns.append(time.thread_time_ns() - begin_ns)
    if len(durations_ns) < _MIN_PASSES:
        raise RuntimeError("a pass takes too long")
    # Disturbances only add time, and more than an event costs: a quartile of few passes gave twice the cost.
    return _Timing(pass_ns=min(durations_ns), passes=len(durations_ns), call_ns=_per_call_ns(_empty))


def _layers(trained: bool) -> Callable[[], None]:
    torch = sys.modules["torch"]
    functional = torch.nn.functional
    make = functools.partial(torch.zeros, dtype=torch.float32, device="cpu", requires_grad=trained)
    x, weight = make((4, 8)), make((8, 8))
    means, squares = ([torch.zeros_like(tensor) for tensor in (x, weight)] for _ in range(2))

    def layers() -> None:  # of builtin functions: torch.compile must find nothing to compile
        y = functional.gelu(functional.linear(x, weight)) + x
        y = torch.layer_norm(y, (8,)).view(2, 2, 8).transpose(1, 2)
        total = torch.softmax(y, -1).sum()
        if trained:
            gradients = torch.autograd.grad(total, (x, weight))
            with torch.no_grad():
                for value, mean, square, gradient in zip((x, weight), means, squares, gradients, strict=True):
                    mean.lerp_(gradient, 0.1)
                    square.mul_(0.9).addcmul_(gradient, gradient, value=0.1)
                    value.mul_(1).addcdiv_(mean, square.sqrt().add_(1), value=0)

    return layers


def _per_call_ns(function: Callable[[], None]) -> float:
    begin_ns = time.thread_time_ns()
    for _ in itertools.repeat(None, _CALLS):
        function()
    return (time.thread_time_ns() - begin_ns) / _CALLS


def _empty() -> None:
    pass


def _in_span(function: Callable[[], None]) -> None:
    with span(CALIBRATION_SPAN):
        function()
