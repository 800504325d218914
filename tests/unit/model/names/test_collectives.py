"""Names of collectives."""

from __future__ import annotations

import pytest

from tracekit.model.names.collectives import kind_of_collective


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("c10d::allreduce_", "all_reduce"),
        ("_c10d_functional::all_reduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("c10d::allgather_into_tensor_coalesced_", "all_gather"),
        ("all_gather", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("c10d::reduce_scatter_tensor_coalesced_", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("AllToAllPivot", "all_to_all"),
        ("SendRecv", "send_recv"),
        ("c10d::send", "send"),
        ("c10d::recv_", "recv"),
        ("c10d::recv_any_source_", "recv"),
        ("c10d::reduce_", "reduce"),
        ("gather", "gather"),
        ("c10d::scatter_", "scatter"),
        ("c10d::broadcast_", "broadcast"),
        ("c10d::barrier", "barrier"),
        ("wait", "unknown"),
        ("", "unknown"),
    ],
)
def test_kind_of_collective(name: str, kind: str) -> None:
    assert kind_of_collective(name) == kind
