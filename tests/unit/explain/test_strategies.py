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
