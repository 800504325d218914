"""Which module a collective within a layer belongs to; truths by hand, in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.summarize import SummaryOptions, summarize_trace
from tracekit.analysis.tensor import merge_tensor_sums
from tracekit.model.metadata import Group
from tracekit.model.summary import TensorSum
from tracekit.read.portable import decode

FORWARD_THREAD = 1  # as a backward operator numbers it; the operators of a forward have 0


def tensor_rows(trace: TraceBuilder, tmp_path: Path, parallelism: str | None = "tp") -> list[TensorSum]:
    group = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism=parallelism, ranks="world")
    trace.capture(groups=[group])
    path = trace.write(tmp_path / f"rank{trace.rank}.json")
    return list(summarize_trace(decode(path), trace.rank, SummaryOptions()).tensor)


def named(rows: list[TensorSum]) -> list[tuple[str | None, str | None, str, int]]:
    return [(row.module, row.phase, row.kind, row.count) for row in rows]


def forward_operator(trace: TraceBuilder, name: str, at_us: int, for_us: int, number: int) -> None:
    trace.op(name, at_us, for_us, **{"Sequence number": number, "Fwd thread id": 0})


def backward_operator(
    trace: TraceBuilder, name: str, at_us: int, for_us: int, number: int, thread: int | None = None
) -> None:
    thread = trace.autograd if thread is None else thread
    args = {"Sequence number": number, "Fwd thread id": FORWARD_THREAD}
    trace.op(f"autograd::engine::evaluate_function: {name}", at_us, for_us, thread=thread, **args)


def test_a_collective_in_a_forward_belongs_to_the_innermost_module(tmp_path: Path) -> None:
    """
    <root>      5-90
      up          10-30     all_gather  12-22
      down            40-60   all_reduce  45-55
                              all_reduce      70-75    of the root itself
                                                     all_reduce 95-99, of no module
    """
    trace = TraceBuilder().step(0, 0, 100)
    trace.label("tracekit.module:<root>", 5, 85)
    trace.label("tracekit.module:up", 10, 20).gloo("all_gather", 12, 10)
    trace.label("tracekit.module:down", 40, 20).gloo("all_reduce", 45, 10)
    trace.gloo("all_reduce", 70, 5).gloo("all_reduce", 95, 4)
    assert named(tensor_rows(trace, tmp_path)) == [
        ("up", "forward", "all_gather", 1),
        ("down", "forward", "all_reduce", 1),
        ("", "forward", "all_reduce", 1),
        (None, "forward", "all_reduce", 1),
    ]


@pytest.mark.parametrize("on_autograd_thread", [True, False])
def test_a_collective_in_a_backward_belongs_to_the_module_that_made_the_node(
    tmp_path: Path, on_autograd_thread: bool
) -> None:
    """Operators that end before a node is made have its number, too: the last to begin has made it."""
    trace = TraceBuilder().step(0, 0, 100)
    thread = trace.autograd if on_autograd_thread else trace.main
    trace.label("tracekit.module:up", 10, 10)
    forward_operator(trace, "Redistribute", 12, 2, number=7)
    forward_operator(trace, "aten::view", 16, 2, number=8)  # without a gradient
    trace.label("tracekit.module:down", 30, 10)
    forward_operator(trace, "Redistribute", 32, 2, number=8)
    backward_operator(trace, "RedistributeBackward", 50, 10, 8, thread)
    trace.gloo("all_gather", 52, 6, thread=thread)
    backward_operator(trace, "RedistributeBackward", 70, 10, 7, thread)
    trace.gloo("all_reduce", 72, 6, thread=thread)
    backward_operator(trace, "MulBackward0", 85, 10, 99, thread)  # its forward is not in the trace
    trace.gloo("all_reduce", 87, 6, thread=thread)
    assert named(tensor_rows(trace, tmp_path)) == [
        ("down", "backward", "all_gather", 1),
        ("up", "backward", "all_reduce", 1),
        (None, "backward", "all_reduce", 1),
    ]


def test_a_forward_run_again_in_the_backward_belongs_to_its_own_module(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    trace.label("tracekit.module:block", 10, 10)
    forward_operator(trace, "CheckpointFunction", 12, 2, number=7)
    backward_operator(trace, "CheckpointFunctionBackward", 50, 40, 7)
    trace.label("tracekit.module:block.down", 60, 20, thread=trace.autograd)
    trace.gloo("all_reduce", 65, 10, thread=trace.autograd)
    assert named(tensor_rows(trace, tmp_path)) == [("block.down", "backward", "all_reduce", 1)]


def test_only_the_part_that_compute_does_not_cover_is_exposed(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100).gloo("all_reduce", 10, 20).op("aten::mm", 20, 30)
    (row,) = tensor_rows(trace, tmp_path)
    assert (row.exposed_ns, row.size_bytes) == (10_000, 4000)


@pytest.mark.parametrize(("parallelism", "rows"), [("ep", 1), ("cp", 1), ("dp", 0), ("pp", 0), (None, 0)])
def test_only_groups_within_layers_count(tmp_path: Path, parallelism: str | None, rows: int) -> None:
    trace = TraceBuilder().step(0, 0, 100).gloo("all_reduce", 10, 20)
    found = tensor_rows(trace, tmp_path, parallelism)
    assert [row.parallelism for row in found] == [parallelism] * rows


def test_windows_of_a_rank_add_up() -> None:
    row = TensorSum(
        module="up", parallelism="tp", phase="forward", kind="all_reduce", count=2, size_bytes=10, exposed_ns=7
    )
    other = TensorSum(
        module=None, parallelism="tp", phase="forward", kind="all_reduce", count=1, size_bytes=None, exposed_ns=1
    )
    first, second = merge_tensor_sums([row, other, row])
    assert (first.module, first.count, first.size_bytes, first.exposed_ns) == ("up", 4, 20, 14)
    assert second == other
