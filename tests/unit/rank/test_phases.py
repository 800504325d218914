"""The phases of a step on a CPU rank, from what training loops and frameworks record. Times are microseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.step_time.tables import PHASE_SUMS
from tracekit.model.spans import BACKWARD_SPAN, DATA_SPAN, forward_span, optimizer_span
from tracekit.model.summary import RankSummary

STEP = "Optimizer.step#Adam.step"
ZERO_GRAD = "Optimizer.zero_grad#Adam.zero_grad"


class Training(TraceBuilder):
    """One step of 100 us on one thread, as on a CPU: nodes of backward run on the thread that called it."""

    def __init__(self) -> None:
        super().__init__(world_size=1)
        self.step(0, 0, 100)
        self._number = 10

    def forward(self, at_us: float, name: str = "aten::mm", for_us: float = 1) -> Self:
        """An operator that joins the graph."""
        self._number += 1
        return self.op(name, at_us, for_us, **{"Sequence number": self._number, "Fwd thread id": 0})

    def node(self, at_us: float, for_us: float, name: str = "MmBackward0", *, thread: int | None = None) -> Self:
        """A node of the backward pass, which ran the newest node of the graph."""
        thread = self.main if thread is None else thread
        linked = {"Sequence number": self._number, "Fwd thread id": 1}
        self.op(f"autograd::engine::evaluate_function: {name}", at_us, for_us, thread=thread, **linked)
        return self.op(name, at_us + 0.1, for_us - 0.2, thread=thread, **linked)

    def update(self, at_us: float) -> Self:
        """An operator of an update, which runs without a graph and writes in place."""
        return self.op("aten::add_", at_us, 1)

    def summary(self, folder: Path) -> RankSummary:
        return summary_of(self, folder)

    def phases(self, folder: Path) -> dict[str, float]:
        """Microseconds of each phase that there was."""
        return {part.phase: part.total_ns / 1000 for part in self.summary(folder)[PHASE_SUMS].parts if part.total_ns}


def lightning(*, capture: bool) -> Training:
    """Lightning calls the whole batch from within `Optimizer.step`:

    data 0-5, in the step 10-90: forward until 40 with zero_grad 36-38, backward 40-70, clipping 72-75, update 75-90
    """
    trace = Training().label("enumerate(DataLoader)#_Iterator.__next__", 0, 5).label(STEP, 10, 80)
    trace.op("aten::to", 12, 1).forward(25).forward(34).label(ZERO_GRAD, 36, 2)
    trace.node(40, 10).node(50, 18)
    if capture:
        trace.label(BACKWARD_SPAN, 40, 30).label(optimizer_span("clip"), 72, 3)
    return trace.op("aten::linalg_vector_norm", 72, 1).update(74).update(80).update(85)


@pytest.mark.parametrize("capture", [False, True])
def test_forward_and_backward_in_a_closure_are_not_the_optimizer_s(tmp_path: Path, capture: bool) -> None:
    """GIVEN forward and backward inside of `Optimizer.step` THEN only zeroing, clipping and the update are its own.

    Forward begins with the step of the optimizer, not with the first operator: a module may begin with plain Python.
    """
    trace = lightning(capture=capture)
    actual = (trace.capture() if capture else trace).phases(tmp_path)

    # Without the span of the capture, the last node ends the backward pass.
    backward_end_us = 70 if capture else 68
    assert actual == {
        "data": 5,
        "forward": (36 - 5) + (40 - 38),
        "backward": backward_end_us - 40,
        "optimizer": 2 + (90 - backward_end_us),
        "other": 10,
    }


def test_a_closure_that_is_called_several_times_alternates_with_updates(tmp_path: Path) -> None:
    """GIVEN an LBFGS step 5-95 that calls its closure three times, each time after an update of 1 us."""
    trace = Training().label(STEP, 5, 90)
    for begin in (5, 35, 65):
        trace.forward(begin + 8).node(begin + 10, 12).label(BACKWARD_SPAN, begin + 10, 13)
        trace.op("aten::dot", begin + 24, 1).update(begin + 27)
    actual = trace.capture().phases(tmp_path)

    backward = 3 * 13
    # A later forward begins where the update before it has ended; forward is also what precedes the optimizer's step.
    forward = 5 + 10 + 2 * (45 - 33)
    assert actual == {"forward": forward, "backward": backward, "optimizer": 90 - 10 - 24 - backward, "other": 5}


def test_backward_of_a_gpu_runs_on_another_thread_than_the_closure(tmp_path: Path) -> None:
    """GIVEN nodes on the thread of the autograd engine WHEN the thread of the step goes on THEN backward is over."""
    trace = Training().label(STEP, 10, 80).forward(25)
    trace.node(40, 10, thread=trace.autograd).node(50, 15, thread=trace.autograd)
    trace.op("aten::copy_", 66, 1, thread=trace.autograd).update(70)  # a reduced bucket is copied before the update
    actual = trace.phases(tmp_path)

    assert actual == {"forward": 40, "backward": 30, "optimizer": 20, "other": 10}


def test_an_update_that_joins_the_graph_is_no_forward(tmp_path: Path) -> None:
    """GIVEN a differentiable optimizer after a backward pass THEN nothing in it is forward: no backward follows."""
    trace = Training().forward(5).node(10, 20).label(STEP, 40, 30).forward(45).forward(50).update(55)
    actual = trace.phases(tmp_path)

    assert actual == {"forward": 10, "backward": 30, "optimizer": 30, "other": 30}


def test_an_optimizer_step_within_backward_is_the_optimizer_s(tmp_path: Path) -> None:
    """GIVEN an optimizer that steps in a hook of a gradient's accumulation THEN backward goes on behind it."""
    trace = Training().forward(5).node(10, 40, "torch::autograd::AccumulateGrad").label(STEP, 20, 10).update(22)
    actual = trace.node(50, 10).phases(tmp_path)

    assert actual == {"forward": 10, "backward": 80, "optimizer": 10}


def test_a_compiled_backward_pass_that_the_capture_saw_begins_with_its_call(tmp_path: Path) -> None:
    trace = Training().forward(10).label(BACKWARD_SPAN, 25, 30).op("aten::empty", 26, 1)
    trace.op("Torch-Compiled Region: !0/0/0", 30, 20).forward(33).label(STEP, 60, 20)
    actual = trace.capture().phases(tmp_path)

    assert actual == {"forward": 25, "backward": 35, "optimizer": 20, "other": 20}


@pytest.mark.parametrize("capture", [False, True])
def test_clipping_and_unscaling_between_backward_and_step_are_the_optimizer_s(tmp_path: Path, capture: bool) -> None:
    """GIVEN unscaling 50-55, clipping 57-63 and a scaler's step 65-80 after the backward pass."""
    trace = Training().forward(5).node(10, 30).op("aten::_amp_foreach_non_finite_check_and_unscale_", 50, 5)
    trace.op("aten::_foreach_norm", 57, 2).op("aten::_foreach_mul_", 60, 2).label(STEP, 68, 10).update(70)
    if capture:
        trace.label(BACKWARD_SPAN, 10, 30).label(optimizer_span("unscale"), 50, 5).label(optimizer_span("clip"), 57, 6)
        trace.label(optimizer_span("scaled_step"), 65, 15).capture()
    actual = trace.phases(tmp_path)

    # The spans of the capture show what lies between: neither the optimizer nor backward.
    optimizer, gaps = (5 + 6 + 15, 2 + 2) if capture else (78 - 50, 0)
    assert actual == {"forward": 10, "backward": 40, "optimizer": optimizer, "other": gaps + (20 if capture else 22)}


def test_modules_that_the_capture_saw_begin_a_forward(tmp_path: Path) -> None:
    """GIVEN a second forward, whose module begins 10 us before its first operator, after the optimizer's step."""
    trace = Training().forward(5).node(10, 10).label(STEP, 20, 20).label(DATA_SPAN, 45, 5)
    trace.label(forward_span(0), 55, 20).forward(65).node(75, 25)
    actual = trace.capture().phases(tmp_path)

    assert actual == {"data": 5, "forward": 10 + 20, "backward": 10 + 25, "optimizer": 20, "other": 5 + 5}


def test_steps_of_lightning_s_profiler_begin_inside_the_closure(tmp_path: Path) -> None:
    """GIVEN steps that change between the forward and the backward of a closure, as Lightning's own profiler does.

    The first closure began before the recording. The last one ends after it: no backward of it is recorded, and torch
    writes the spans that are open as if they ended with the recording.
    """
    training_step = "[pl][profile][Strategy]DDPStrategy.training_step"
    trace = Training().step(1, 100, 100).node(2, 30).update(35)
    trace.label(STEP, 60, 82).label(training_step, 62, 38).forward(90).node(102, 30).update(135)
    trace.label(STEP, 160, 42).label(training_step, 162, 38).forward(190)
    actual = trace.phases(tmp_path)

    assert actual == {
        "forward": 2 + (102 - 60) + (200 - 160),
        "backward": (60 - 2) + 30,
        "optimizer": 142 - 132,
        "other": 160 - 142,
    }


def test_without_any_backward_forward_is_what_shows_it(tmp_path: Path) -> None:
    """GIVEN a wrapper's forward, and launches behind it of which nothing tells what they are."""
    trace = Training().label("DistributedDataParallel.forward", 10, 30).op("aten::mm", 20, 5).op("aten::mm", 60, 5)
    actual = trace.label(STEP, 80, 15).phases(tmp_path)

    assert actual == {"forward": 30, "optimizer": 15, "other": 55}
