"""Which module a collective within a layer belongs to, with known times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.exchanges import rank, run_of
from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of
from tracekit.explain.model_parallel.layers import tensor_parallel
from tracekit.explain.model_parallel.tables import LAYERS, TensorSum
from tracekit.model.metadata import Group
from tracekit.model.table import records

FORWARD_THREAD = 1  # as a backward operator numbers it; the operators of a forward have 0


def tensor_rows(trace: TraceBuilder, tmp_path: Path, parallelism: str | None = "tp") -> list[TensorSum]:
    group = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism=parallelism, ranks="world")
    trace.capture(groups=[group])
    return list(summary_of(trace, tmp_path)[LAYERS])


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
        (None, None, "all_reduce", 1),
    ]


@pytest.mark.parametrize("on_autograd_thread", [True, False])
def test_a_collective_in_a_backward_belongs_to_the_module_that_made_the_node(
    tmp_path: Path, on_autograd_thread: bool
) -> None:
    """Operators that end before a node is made have its number, too. The last of them to begin has made it."""
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


def test_only_the_part_that_compute_does_not_cover_is_exposed(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100).gloo("all_reduce", 10, 20).op("aten::mm", 20, 30)
    (row,) = tensor_rows(trace, tmp_path)
    assert (row.exposed_ns, row.size_bytes) == (10_000, 4000)


@pytest.mark.parametrize(("parallelism", "rows"), [("ep", 1), ("cp", 1), ("dp", 0), ("pp", 0), (None, 0)])
def test_only_groups_within_layers_count(tmp_path: Path, parallelism: str | None, rows: int) -> None:
    trace = TraceBuilder().step(0, 0, 100).gloo("all_reduce", 10, 20)
    result = tensor_rows(trace, tmp_path, parallelism)
    assert [row.parallelism for row in result] == [parallelism] * rows


def test_a_layer_s_time_is_that_of_its_forward_and_backward(tmp_path: Path) -> None:
    """
    up        10-50    all_reduce 20-30                 its node 60-80, all_reduce 65-70
      norm      12-14                     down's node 80-90, a gradient 90-95, norm's node 95-99
    down                       52-58  (none)
    """
    trace = TraceBuilder().step(0, 0, 100)
    trace.label("tracekit.module:up", 10, 40).label("tracekit.module:up.norm", 12, 2)
    forward_operator(trace, "aten::native_layer_norm", 12, 1, number=6)
    forward_operator(trace, "AllReduce", 16, 2, number=7)
    trace.gloo("all_reduce", 20, 10, issued_at=18)
    trace.label("tracekit.module:down", 52, 6)
    forward_operator(trace, "aten::mm", 53, 2, number=8)
    backward_operator(trace, "AllReduceBackward", 60, 20, 7)
    trace.gloo("all_reduce", 65, 5, thread=trace.autograd)
    backward_operator(trace, "MmBackward0", 80, 10, 8)
    trace.backward("torch::autograd::AccumulateGrad", 90, 5)
    backward_operator(trace, "NativeLayerNormBackward0", 95, 4, 6)
    rows = {row.phase: row for row in tensor_rows(trace, tmp_path)}
    assert (rows["forward"].exposed_ns, rows["forward"].layer_ns) == (10_000, 40_000)
    assert (rows["backward"].exposed_ns, rows["backward"].layer_ns) == (5_000, 20_000 + 4_000)  # its node waits


def test_on_a_gpu_a_layer_s_time_is_that_of_what_it_launched(tmp_path: Path) -> None:
    """GIVEN a module that launches at 10-20 what runs at 30-50 and communicates at 50-60."""
    trace = TraceBuilder().step(0, 0, 100).label("tracekit.module:up", 10, 10)
    trace.kernel("gemm", 30, 20, launched_at=12).nccl("all_reduce", 50, 10, launched_at=14)
    trace.kernel("gemm", 60, 20, launched_at=25)
    (row,) = tensor_rows(trace, tmp_path)
    assert (row.module, row.exposed_ns, row.layer_ns) == ("up", 10_000, 30_000)


def test_without_metadata_what_dtensor_redistributes_is_tensor_parallel_and_inferred(tmp_path: Path) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    forward_operator(trace, "Redistribute", 10, 20, number=3)
    trace.gloo("all_reduce", 12, 10).gloo("all_reduce", 40, 10)
    trace.op("Redistribute", 60, 20).gloo("all_reduce", 62, 10)  # out of the graph, as for a norm under FSDP2
    (row,) = summary_of(trace, tmp_path)[LAYERS]
    assert (row.parallelism, row.inferred, row.module, row.count) == ("tp", True, None, 1)


def layer(module: str | None, exposed_ns: int, layer_ns: int | None) -> TensorSum:
    return TensorSum(
        module=module,
        parallelism="tp",
        phase="forward",
        kind="all_reduce",
        count=2,
        size_bytes=1000,
        exposed_ns=exposed_ns,
        layer_ns=layer_ns,
    )


def test_equal_layers_are_one_row_that_names_the_worst() -> None:
    sums = [layer(f"blocks.{i}.down", 100 + i, 400) for i in range(32)]
    sums += [layer("head", 40, 100), layer("h1.head", 30, None), layer(None, 5, None)]
    rows = records(tensor_parallel(run_of([rank(0, layers=tuple(sums))])).by_layer)
    assert [(row["module"], row["modules"], row["exposed_ns"]) for row in rows] == [
        ("blocks.*.down", 32, sum(range(100, 132))),
        ("head", 1, 40),
        ("h1.head", 1, 30),
        (None, 1, 5),
    ]
    assert rows[0]["layer_share"] == pytest.approx(sum(range(100, 132)) / (32 * 400))
    assert (rows[0]["worst_module"], rows[0]["count"], rows[0]["size_bytes"]) == ("blocks.31.down", 64, 32_000)
    assert [row["layer_share"] for row in rows[1:]] == [0.4, None, None]
