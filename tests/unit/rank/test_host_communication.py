"""Kind, group, size and count of Gloo's spans, from the operators and flight-recorder entries behind them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.summarized import Summarize
from tracekit.explain.communication.tables import COMMUNICATION_SUMS, CommunicationSum
from tracekit.model.metadata import CollectiveRecord, Group
from tracekit.model.summary import RankSummary
from tracekit.rank import host_communication

WORLD = Group(id=0, name="0", desc="default_pg", backend="gloo", parallelism="dp", ranks="world")
TENSOR = Group(id=1, name="1", desc="mesh_tp", backend="gloo", parallelism="tp", ranks=[0, 1])


def operator(trace: TraceBuilder, name: str, at_us: float, dims: list[Any], types: list[str] | None = None) -> None:
    """Add a `c10d::` operator of 5 us."""
    arguments: dict[str, Any] = {"Input Dims": dims, "Input type": types or ["TensorList"] * len(dims)}
    trace.op(f"c10d::{name}", at_us, 5, **arguments)


def span(trace: TraceBuilder, kind: str, at_us: float, for_us: float, dims: list[Any], runloop: int = 0) -> None:
    arguments = {"Input Dims": dims, "Input type": ["float"] * len(dims)} if dims else {}
    trace.event(f"gloo:{kind}", "user_annotation", at_us, for_us, thread=trace.gloo_threads[runloop], args=arguments)


def entry(
    trace: TraceBuilder, kind: str, at_us: float, inputs: list[list[int]], outputs: list[list[int]], group: int = 0
) -> CollectiveRecord:
    record = trace.record(kind, int(at_us), created_at=at_us, group=group)
    return replace(record, in_shapes=inputs, out_shapes=outputs, dtypes=["Float"] if inputs else [])


def the_row(summary: RankSummary) -> CommunicationSum:
    (row,) = summary[COMMUNICATION_SUMS]
    return row


@pytest.mark.parametrize("recorded", [True, False])
def test_a_reduce_scatter_of_a_list_is_one_collective(summarize: Summarize, recorded: bool) -> None:
    """GIVEN an all-reduce for each of two chunks of 500 THEN one reduce-scatter of 4000 bytes, in 12-30 and 40-45."""
    trace = TraceBuilder().step(0, 0, 100)
    operator(trace, "reduce_scatter_", 10, [[[500]], [], []])
    span(trace, "all_reduce", 12, 15, [[500]])
    span(trace, "all_reduce", 20, 10, [[500]], runloop=1)
    operator(trace, "reduce_scatter_", 32, [[[500]], [], []])
    span(trace, "all_reduce", 40, 5, [[500]])
    span(trace, "all_reduce", 50, 5, [[500]])
    operator(trace, "allreduce_", 70, [[[500]], [], []])
    span(trace, "all_reduce", 75, 5, [[500]])
    created = (11, 13, 33, 34, 71)
    entries = [entry(trace, "all_reduce", at, [[500]], [[500]]) for at in created] if recorded else []
    rows = {row.kind: row for row in summarize(trace.capture(collectives=entries))[COMMUNICATION_SUMS]}
    assert {kind: (row.count, row.size_bytes, row.total_ns) for kind, row in rows.items()} == {
        "reduce_scatter": (2, 8000, 28_000),
        "all_reduce": (1, 2000, 5_000),
    }
    assert all(row.group is not None for row in rows.values())


@pytest.mark.parametrize(
    ("name", "dims", "kind", "span_dims", "entry_inputs", "outputs", "size_bytes"),
    [
        # the entry of a functional all-gather lacks the dimension of the ranks; the operator has the full shape
        ("allgather_into_tensor_coalesced_", [[[2000]], [[1000]]], "all_gather", [[1000]], [[1000]], [[1, 1000]], 8000),
        ("_allgather_base_", [[2000], [1000]], "all_gather", [[1000]], None, None, 8000),
        ("allgather_", [[], [[1000]]], "all_gather", [[1000]], [[1000]], [[2, 1000]], 8000),
        ("allgather_", [[], [[1000]]], "all_gather", [[1000]], None, None, 8000),  # two ranks
        ("alltoall_", [[[500], [500]], [[500], [500]]], "all_to_all", [[500], [500]], None, None, 4000),
        ("allreduce_coalesced_", [[[10], [20]]], "all_reduce", [[10], [20]], None, None, 120),
        ("broadcast_", [[[1000]]], "broadcast", [[1000]], None, None, 4000),
        ("reduce_", [[[1000]]], "reduce", [[1000]], None, None, 4000),
        ("gather_", [[], [[1000]]], "gather", [[1000]], [[1000]], [[2, 1000]], 8000),  # at the root
        ("gather_", [[], [[1000]]], "gather", [[1000]], [[1000]], [], 8000),
        ("scatter_", [[[500]], []], "scatter", [[500], [500]], [[2, 500]], [[500]], 4000),  # at the root
        ("scatter_", [[[500]], []], "scatter", [[500], [500]], None, None, 4000),
        ("scatter_", [[[500]], []], "scatter", [], [], [[500]], None),  # on other ranks no data type is known
        ("barrier", [[1]], "barrier", [], [], [], None),
    ],
)
def test_sizes_are_of_the_full_array(
    summarize: Summarize,
    name: str,
    dims: list[Any],
    kind: str,
    span_dims: list[Any],
    entry_inputs: list[list[int]] | None,
    outputs: list[list[int]] | None,
    size_bytes: int | None,
) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    operator(trace, name, 10, dims)
    span(trace, kind, 14, 20, span_dims)
    entries = [] if entry_inputs is None or outputs is None else [entry(trace, kind, 12, entry_inputs, outputs)]
    row = the_row(summarize(trace.capture(collectives=entries)))
    assert (row.kind, row.count, row.size_bytes, row.total_ns) == (kind, 1, size_bytes, 20_000)
    assert row.group is not None


def test_a_shard_of_an_unknown_group_gives_no_size(summarize: Summarize) -> None:
    trace = TraceBuilder().step(0, 0, 100)
    operator(trace, "allgather_", 10, [[], [[1000]]])
    span(trace, "all_gather", 14, 20, [[1000]])
    row = the_row(summarize(trace.capture(groups=[WORLD, TENSOR])))
    assert (row.count, row.group, row.size_bytes) == (1, None, None)


def send(trace: TraceBuilder, peer: int) -> None:
    trace.gloo("send", 10, 20)
    trace.events[-2]["args"]["Concrete Inputs"] = ["", "", str(peer), "0"]


def test_send_and_receive_belong_to_the_only_group_that_has_the_peer(summarize: Summarize) -> None:
    """The operator records only the peer's place in the group."""
    pairs = [
        Group(id=1, name="1", desc="mesh_pp", backend="gloo", parallelism="pp", ranks=[0, 2]),
        Group(id=2, name="2", desc="alone", backend="gloo", parallelism=None, ranks=[0]),
    ]
    trace = TraceBuilder(0, 4).step(0, 0, 100)
    send(trace, 1)
    row = the_row(summarize(trace.capture(groups=pairs)))
    assert row.group is not None
    assert (row.kind, row.group.description, row.size_bytes) == ("send", "mesh_pp", 4000)
    ambiguous = TraceBuilder(0, 4).step(0, 0, 100)
    send(ambiguous, 1)
    assert the_row(summarize(ambiguous.capture(groups=[WORLD, *pairs]))).group is None
    beyond = TraceBuilder(0, 4).step(0, 0, 100)
    send(beyond, 3)
    row = the_row(summarize(beyond.capture(groups=[WORLD, *pairs])))
    assert row.group is not None
    assert row.group.description == "default_pg"


@pytest.mark.parametrize("elements", [9, 0])
def test_matching_is_linear_even_if_no_span_fits(
    summarize: Summarize, monkeypatch: pytest.MonkeyPatch, elements: int
) -> None:
    """GIVEN n operators and n spans of one kind whose shapes never fit or are unknown THEN the work grows with n."""
    looked_at = 0

    class Queue(host_communication.Queue):
        def first(self, taken: Any) -> int | None:
            nonlocal looked_at
            before = len(self)
            found = super().first(taken)
            looked_at += 1 + before - len(self)
            return found

    monkeypatch.setattr(host_communication, "Queue", Queue)
    n = 3000
    trace = TraceBuilder().step(0, 0, 100 * n)
    for i in range(n):
        operator(trace, "alltoall_", 100 * i, [[[7]], [[7]]])
        span(trace, "all_to_all", 100 * i + 20, 30, [[elements]] if elements else [])
    row = the_row(summarize(trace))
    assert row.count == n
    assert 0 < looked_at < 12 * n
