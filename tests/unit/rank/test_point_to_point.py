"""Messages of plain NCCL traces: who, what, when. Times are microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.nccl_messages import add_batch, add_message
from tests.summarized_trace import summarize_trace
from tracekit.loading.load import load
from tracekit.loading.options import SummaryOptions
from tracekit.model.communication import FIRST_PLACE
from tracekit.model.events import ABSENT
from tracekit.model.metadata import PointToPointRecord
from tracekit.model.summary import RankSummary
from tracekit.read.decode.decoder import decode

PAIR = {"group": (4, 5), "description": "pipe"}


def summary_of(folder: Path, trace: TraceBuilder) -> RankSummary:
    return summarize_trace(decode(trace.write(folder / "rank0.json")), trace.rank, SummaryOptions())


def after(trace: TraceBuilder, *times_ns: int) -> list[int]:
    """Return times in microseconds after the beginning of the trace."""
    return [(time_ns - trace.wall_ns(0)) // 1000 for time_ns in times_ns]


def test_a_message_names_group_peer_and_size(tmp_path: Path) -> None:
    trace = add_message(TraceBuilder(5, 8).step(3, 0, 100), "send", 4, launched_at=20, at_us=30, for_us=10, **PAIR)

    summary = summary_of(tmp_path, trace)

    messages = summary.messages
    assert (messages.peer.tolist(), messages.is_send.tolist(), messages.size_bytes.tolist()) == ([4], [True], [4000])
    assert (messages.step.tolist(), messages.tag.tolist()) == ([3], [-1])
    assert summary.groups[messages.group[0]].ranks == (4, 5)
    assert after(trace, messages.start_ns[0], messages.end_ns[0]) == [30, 40]
    assert len(summary.collectives) == 0


def test_a_rank_is_ready_for_a_message_when_its_kernel_could_run(tmp_path: Path) -> None:
    """GIVEN compute until 50, and a message launched at 30 that is queued behind another one until 70 THEN ready at
    50. The other one did not queue, and its start shows when it was ready.
    """
    trace = TraceBuilder(0, 2).step(0, 0, 200).kernel("gemm", 10, 40, launched_at=5)
    add_message(trace, "recv", 1, launched_at=20, at_us=51, for_us=19)
    add_message(trace, "send", 1, launched_at=30, at_us=70, for_us=10)

    messages = summary_of(tmp_path, trace).messages

    assert after(trace, *messages.ready_ns) == [51, 50]
    assert after(trace, *messages.start_ns) == [51, 70]


def test_messages_alone_leave_clocks_of_different_hosts_unknown(tmp_path: Path) -> None:
    sender, receiver = (TraceBuilder(rank, 2, host=host).step(0, 0, 99) for rank, host in enumerate("ab"))
    add_batch(sender, [("send", 1)], launched_at=20, at_us=30, for_us=9)
    add_batch(receiver, [("recv", 0)], launched_at=20, at_us=30, for_us=9)
    run = load(write_run(tmp_path, [sender, receiver]))
    assert [clock.method for clock in run.clocks] == ["none", "none"]


def test_a_receive_on_a_cpu_is_awaited_from_when_the_call_that_waited_for_it_began(tmp_path: Path) -> None:
    """GIVEN receives posted at 10 and 12, of which the calls wait from 50 to 81 and from 82 to 90, and an isend.

    The last receive ends without any call that waits for it.
    """
    trace = TraceBuilder(0, 2).step(3, 0, 200)
    trace.gloo("recv", 10, 70).gloo("recv", 12, 77).gloo("send", 100, 20).gloo("recv", 130, 20)
    trace.wait(50, 31).wait(82, 8).wait(118, 4)
    trace.capture(
        p2p=[
            PointToPointRecord(
                group=0, peer=1, tag=0, direction=direction, index=index, created_ns=trace.wall_ns(at_us), size_bytes=4
            )
            for direction, index, at_us in (("recv", 0, 10), ("recv", 1, 12), ("send", 0, 100), ("recv", 2, 130))
        ]
    )

    messages = summary_of(tmp_path, trace).messages

    assert after(trace, *messages.end_ns) == [80, 89, 120, 150]
    assert after(trace, *messages.awaited_ns[:3]) == [50, 82, 118]
    assert messages.awaited_ns[3] == -1
    assert after(trace, *messages.arrival_ns) == [50, 82, 100, 130]


@pytest.mark.parametrize(("groups", "peer", "group"), [(1, 3, 0), (2, FIRST_PLACE - 1, ABSENT)])
def test_a_message_of_gloo_has_its_peer_if_there_is_one_group(
    tmp_path: Path, groups: int, peer: int, group: int
) -> None:
    """Its inputs have the peer's place in a group, and the tag."""
    trace = TraceBuilder(2, 4).step(3, 0, 100).gloo("send", 10, 20).gloo("recv", 50, 9).op("aten::mm", 60, 30)
    config = [{"pg_name": str(i), "pg_desc": "", "pg_size": 2, "ranks": [2, 3]} for i in range(2)]
    config[1]["ranks"] = [1, 2]
    trace.header["distributedInfo"]["pg_config"] = config[:groups]
    for event in trace.events:
        if event["name"].startswith("c10d::"):
            event["args"] |= {"Concrete Inputs": ["", "", "1", "7"], "Input type": ["TensorList", "", "Scalar"]}

    messages = summary_of(tmp_path, trace).messages

    assert (messages.peer.tolist(), messages.group.tolist(), messages.tag.tolist()) == ([peer] * 2, [group] * 2, [7, 7])
    assert (messages.is_send.tolist(), after(trace, *messages.awaited_ns)) == ([True, False], [10, 50])
