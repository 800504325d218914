"""What one rank gives and gets in each all-to-all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.model_parallel.test_expert_load import WIDTH, on_gloo, on_nccl
from tests.unit.explain.whatif.recorded import summary
from tracekit.explain.whatif.tables import EXCHANGES

FLOAT_BYTES = 4


@pytest.mark.parametrize("exchange", [on_gloo, on_nccl])
def test_the_bytes_of_each_all_to_all_in_order_of_launch(tmp_path: Path, exchange: object) -> None:
    trace = TraceBuilder().step(0, 0, 1000)
    trace.kernel("gemm", 20, 30, launched_at=15) if exchange is on_nccl else trace.op("aten::mm", 20, 30)
    exchange(trace, 300, 10, 180, 360)  # type: ignore[operator]  # the later one first
    exchange(trace, 100, 10, 360, 180)  # type: ignore[operator]

    found = summary(trace, tmp_path)[EXCHANGES]

    assert found.received_bytes.tolist() == [360 * WIDTH * FLOAT_BYTES, 180 * WIDTH * FLOAT_BYTES]
    assert found.sent_bytes.tolist() == [180 * WIDTH * FLOAT_BYTES, 360 * WIDTH * FLOAT_BYTES]
    assert found.launch_ns.tolist() == [trace.wall_ns(100), trace.wall_ns(300)]


def test_all_to_alls_of_embeddings_do_not_bring_tokens_to_experts(tmp_path: Path) -> None:
    """GIVEN all-to-alls of uneven sizes that come back in the backward pass only, as gradients."""
    trace = TraceBuilder().step(0, 0, 1000).kernel("gemm", 20, 30, launched_at=15)
    on_nccl(trace, 100, 10, 360, 180)
    trace.backward("AllToAllBackward", 490, 40)
    trace.nccl(
        "all_to_all",
        501,
        10,
        launched_at=500,
        **{"In msg nelems": 360 * WIDTH, "Out msg nelems": 180 * WIDTH},  # type: ignore[arg-type]
    )

    assert len(summary(trace, tmp_path)[EXCHANGES]) == 0
