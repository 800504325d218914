"""How a job without labels is parallel, from what its ranks communicate. Times are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import summary_of

MIB = 1 << 18  # elements of float32
COUNTS, THERE, BACK, EMBEDDINGS = (4, 4, "Long"), (900, 1100, "Float"), (1100, 900, "Float"), (700, 500, "Float")
INDICES = (5000, 6000, "Long")


def a_rank(
    forward: Sequence[tuple[int, int, str]], *, reduced: int = 0, node: str | None = None, group: str = "default_pg"
) -> TraceBuilder:
    """Two steps with all-to-alls (elements out, elements in, type) in forward, and an all-reduce in backward."""
    trace = TraceBuilder()
    for step in range(2):
        at = 1000 * step
        trace.step(step, at, 1000).kernel("gemm", at + 20, 900, launched_at=at + 2)
        for index, (sent, received, dtype) in enumerate(forward):
            begin = at + 50 * index + 50
            sizes = {"In msg nelems": sent, "Out msg nelems": received, "dtype": dtype}
            trace.nccl("all_to_all", begin, 10, launched_at=begin - 5, **sizes)
        trace.backward("MmBackward0", at + 500, 100)
        if node is not None:
            trace.backward(node, at + 610, 100, thread=trace.main)
        if reduced:
            trace.nccl("all_reduce", at + 700, 50, launched_at=at + 650, elements=reduced, description=group)
    return trace


@pytest.mark.parametrize(
    ("forward", "strategies"),
    [
        ((COUNTS, THERE, BACK), ("ep",)),
        ((INDICES, EMBEDDINGS), ()),  # embedding tables: nothing comes back in forward
        ((THERE, BACK), ()),  # no counts: sequences may be exchanged so
        ((), ()),
    ],
)
def test_experts_exchange_counts_then_tokens_there_and_back(
    tmp_path: Path, forward: Sequence[tuple[int, int, str]], strategies: tuple[str, ...]
) -> None:
    assert summary_of(a_rank(forward), tmp_path).strategies == strategies


@pytest.mark.parametrize(
    ("elements", "node", "strategies"),
    [
        (MIB, None, ("manual_dp",)),
        (MIB, "torch::autograd::AccumulateGrad", ("manual_dp",)),
        (MIB, "AllReduceBackward", ()),  # what a node of the graph communicates is no gradient of a parameter
        (12, None, ()),  # metrics
        (MIB, "of tp", ()),  # of parameters that all ranks of tensor parallelism have
    ],
)
def test_gradients_are_all_reduced_outside_of_the_graph(
    tmp_path: Path, elements: int, node: str | None, strategies: tuple[str, ...]
) -> None:
    group, node = ("mesh_tp", None) if node == "of tp" else ("default_pg", node)
    assert summary_of(a_rank((), reduced=elements, node=node, group=group), tmp_path).strategies == strategies


# When something is communicated: in the forward pass, by a node of the backward pass, after it, after the update.
FORWARD, NODE, BACKWARD, UPDATED = 100, 520, 650, 850


@pytest.mark.parametrize(
    ("communicated", "strategies"),
    [
        ([("all_reduce", FORWARD), ("all_reduce", NODE)], ("tp",)),
        ([("all_gather", FORWARD), ("reduce_scatter", FORWARD)], ()),
        (
            [(kind, at) for at in (FORWARD, NODE) for kind in ("all_gather", "reduce_scatter")]
            + [("all_reduce", BACKWARD)],
            ("sp", "tp"),  # the gradients of norms are fewer
        ),
        ([("all_gather", FORWARD), ("reduce_scatter", NODE)], ()),  # keys of a sequence, or parameters
        ([("all_gather", FORWARD), ("reduce_scatter", BACKWARD)], ("manual_fsdp",)),
        ([("reduce", BACKWARD), ("broadcast", UPDATED)], ("zero1",)),
        ([("reduce_scatter", BACKWARD), ("all_gather", UPDATED)], ("zero1",)),
        ([("all_reduce", BACKWARD), ("all_gather", UPDATED)], ("zero1",)),  # DeepSpeed on Gloo
        ([("reduce", BACKWARD), ("broadcast", BACKWARD)], ()),  # of gradients, by way of one rank
        ([("all_reduce", UPDATED)], ("local_sgd",)),
        ([("all_reduce", BACKWARD), ("all_reduce", UPDATED)], ("manual_dp",)),
    ],
)
def test_what_is_communicated_when_shows_how_layers_and_parameters_are_shared(
    tmp_path: Path, communicated: list[tuple[str, int]], strategies: tuple[str, ...]
) -> None:
    trace = a_rank(())
    for at in (0, 1000):
        trace.backward("ReduceFromGroupBackward", at + 500, 80, thread=trace.main)
        trace.backward("MmBackward0", at + 590, 10, thread=trace.main)
        trace.label("Optimizer.step#SGD.step", at + 800, 20)
        for index, (kind, when) in enumerate(communicated):
            launched = at + when + 5 * index
            trace.nccl(kind, launched + 3, 2, launched_at=launched, elements=MIB)
    assert summary_of(trace, tmp_path).strategies == strategies


def test_a_gradient_that_is_accumulated_next_is_that_of_a_gathered_parameter(tmp_path: Path) -> None:
    trace = a_rank(())
    for at in (0, 1000):
        trace.nccl("all_gather", at + 60, 20, launched_at=at + 50, elements=MIB)
        trace.backward("GatherBackward", at + 500, 80, thread=trace.main)
        trace.nccl("reduce_scatter", at + 530, 20, launched_at=at + 520, elements=MIB)
        trace.backward("torch::autograd::AccumulateGrad", at + 585, 5, thread=trace.main)
    assert summary_of(trace, tmp_path).strategies == ("manual_fsdp",)


BMM, SOFTMAX, MM, ADDMM = "aten::bmm", "aten::_softmax", "aten::mm", "aten::addmm"


@pytest.mark.parametrize(
    ("exchange", "then", "strategies"),
    [
        ("all_gather", (BMM, SOFTMAX, BMM, MM), ("cp",)),  # keys of a sequence
        ("all_to_all", (BMM, SOFTMAX, BMM, MM), ("cp",)),
        ("all_gather", (ADDMM, BMM, SOFTMAX, BMM), ()),  # parameters, or a sequence before a layer
        ("all_to_all", (BMM, BMM, MM, SOFTMAX), ()),  # tokens of experts whose weights are one batch
    ],
)
def test_what_attention_multiplies_next_is_of_a_sequence(
    tmp_path: Path, exchange: str, then: tuple[str, ...], strategies: tuple[str, ...]
) -> None:
    trace = a_rank(())
    for at in (0, 1000):
        trace.nccl(exchange, at + 60, 20, launched_at=at + 50, elements=MIB)
        for index, name in enumerate(then):
            trace.op(name, at + 100 + 20 * index, 15)
    assert summary_of(trace, tmp_path).strategies == strategies


@pytest.mark.parametrize(("kernels", "strategies"), [(("dispatch", "combine"), ("ep",)), (("dispatch",), ())])
def test_kernels_that_dispatch_and_combine_are_of_experts(
    tmp_path: Path, kernels: tuple[str, ...], strategies: tuple[str, ...]
) -> None:
    trace = a_rank(())
    for step in range(2):
        for index, name in enumerate(kernels):
            at = 1000 * step + 100 + 50 * index
            trace.kernel(f"void deep_ep::internode::{name}<true, 4>(int4*)", at, 20, launched_at=at - 5, stream=20)
    assert summary_of(trace, tmp_path).strategies == strategies


@pytest.mark.parametrize(("columns", "strategies"), [(512, ("tp",)), (1024, ()), (500, ())])
def test_a_gather_of_the_columns_of_a_square_weight_is_tensor_parallel(
    tmp_path: Path, columns: int, strategies: tuple[str, ...]
) -> None:
    trace = TraceBuilder()
    for step in range(2):
        at = 1000 * step
        trace.step(step, at, 900)
        trace.op("aten::mm", at + 10, 50, **{"Input Dims": [[8, 1024], [1024, columns]], "Input type": ["float"] * 2})
        trace.gloo("all_gather", at + 110, 50, issued_at=at + 100, elements=8 * columns)
    assert summary_of(trace, tmp_path).strategies == strategies
