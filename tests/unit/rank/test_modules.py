"""A loss that is computed outside of all modules is a module of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.builders import TraceBuilder
from tracekit.model.spans import module_span
from tracekit.rank.modules import modules_of_launches
from tracekit.read.decode.portable import decode


def modules_at(folder: Path, trace: TraceBuilder, *at_us: int) -> list[str | None]:
    """Return the modules of launches on the step's thread."""
    events = decode(trace.write(folder / "rank0.json")).events
    step = int(np.flatnonzero(events.named(lambda name: name.startswith("ProfilerStep")))[0])
    times_ns = np.array([trace.wall_ns(at) for at in at_us])
    return modules_of_launches(events, np.full(len(at_us), events.track[step], dtype=np.int64), times_ns)


def test_a_launch_within_the_loss_is_of_the_loss(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).label(module_span("head"), 10, 30)
    trace.op("aten::cross_entropy_loss", 50, 40).op("aten::log_softmax", 55, 20)
    assert modules_at(tmp_path, trace, 20, 60, 80, 120) == ["head", "cross_entropy_loss", "cross_entropy_loss", None]


def test_without_a_capture_the_loss_is_named_as_well(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).op("aten::cross_entropy_loss", 50, 40)
    assert modules_at(tmp_path, trace, 20, 60) == [None, "cross_entropy_loss"]


def test_a_loss_inside_a_module_is_of_that_module(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 200).label(module_span("criterion"), 40, 60)
    trace.op("aten::cross_entropy_loss", 50, 40)
    assert modules_at(tmp_path, trace, 60) == ["criterion"]
