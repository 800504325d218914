"""Operators between backward and optimizer that join no autograd graph belong to the backward phase."""

from __future__ import annotations

from pathlib import Path

from tests.builders import TraceBuilder
from tracekit.analysis.communication.parts import COMMUNICATION
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.read.decode.portable import decode


def test_operators_that_make_no_node_of_the_graph_do_not_begin_a_forward(tmp_path: Path) -> None:
    """GIVEN an all-reduce of gradients with the number of the next node. THEN it does not begin a forward.

    Every operator that could join the graph has that number.
    """
    trace = TraceBuilder().step(0, 0, 100).step(1, 100, 100)
    for start, number in ((0, 5), (100, 6)):
        forward = {"Sequence number": number, "Fwd thread id": 0}
        trace.op("aten::mm", start + 5, 10, **forward)
        trace.op(
            "autograd::engine::evaluate_function: MmBackward0",
            start + 20,
            20,
            **{"Sequence number": number, "Fwd thread id": 1},
        )
        after = {"Sequence number": number + 1, "Fwd thread id": 0}
        trace.op("aten::div_", start + 45, 2, **after)
        trace.gloo("all_reduce", start + 52, 10, issued_at=start + 50)
        trace.events[-2]["args"] |= after
        trace.op("aten::div_", start + 70, 2, **after)

    summary = summarize_trace(decode(trace.capture().write(tmp_path / "rank0.json", "compact")), 0, SummaryOptions())

    assert [(row.kind, row.phase, row.count) for row in summary[COMMUNICATION]] == [("all_reduce", "backward", 2)]
