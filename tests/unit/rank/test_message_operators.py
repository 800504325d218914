"""Which kernels do the work of which sends and receives. Times are microseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.builders import TraceBuilder
from tests.nccl_messages import add_batch, add_message
from tracekit.rank.groups import GroupResolver
from tracekit.rank.message_operators import join_launches, message_operators
from tracekit.read.decode.decoder import decode

Joined = Callable[[TraceBuilder], list[list[tuple[bool, int]]]]


@pytest.fixture
def joined(tmp_path: Path) -> Joined:
    """Return a function: for each launch of a SendRecv kernel, in order of time, the messages that it is for."""

    def of(trace: TraceBuilder) -> list[list[tuple[bool, int]]]:
        decoded = decode(trace.write(tmp_path / "rank0.json"))
        events, messages = decoded.events, message_operators(decoded.events, GroupResolver(decoded.header))
        kernels = np.flatnonzero(events.named(lambda name: "SendRecv" in name))
        by_correlation = {
            int(c): row
            for row, c in enumerate(events.correlation)
            if events.strings[events.name[row]].startswith("cuda")
        }
        launches = np.array([by_correlation[int(events.correlation[row])] for row in kernels], dtype=np.int64)
        of_message, of_launch = join_launches(
            events, messages.row, events.start_ns[launches], events.track[launches].astype(np.int32)
        )
        return [
            [
                (bool(messages.is_send[i]), int(messages.peer[i]))
                for i in np.flatnonzero((of_message == number) & (number >= 0))
            ]
            for number in of_launch[np.argsort(events.start_ns[launches])]
        ]

    return of


def a_rank() -> TraceBuilder:
    return TraceBuilder(1, 4).step(0, 0, 1000)


def test_a_kernel_that_is_launched_inside_an_operator_is_of_that_one(joined: Joined) -> None:
    trace = add_message(a_rank(), "send", 2, launched_at=10, at_us=20, for_us=5)
    add_message(trace, "recv", 0, launched_at=30, at_us=40, for_us=5)

    assert joined(trace) == [[(True, 2)], [(False, 0)]]


def test_a_kernel_that_is_launched_behind_operators_is_of_all_of_them(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("send", 2), ("recv", 2), ("recv", 0)], launched_at=20, at_us=30, for_us=5)
    add_batch(trace, [("send", 0)], launched_at=60, at_us=70, for_us=5)

    assert joined(trace) == [[(True, 2), (False, 2), (False, 0)], [(True, 0)]]


def test_two_kernels_of_a_batch_are_of_the_same_messages(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("send", 2), ("recv", 0)], launched_at=20, at_us=30, for_us=5, kernels=2)

    assert joined(trace) == [[(True, 2), (False, 0)]] * 2


@pytest.mark.parametrize("annotated", [True, False])
def test_messages_alone_are_in_no_batch(joined: Joined, annotated: bool) -> None:
    trace = add_message(a_rank(), "send", 2, launched_at=10, at_us=20, for_us=5)
    add_batch(trace, [("send", 2), ("recv", 2)], launched_at=40, at_us=50, for_us=5, annotated=annotated)

    assert joined(trace) == [[(True, 2)], [(True, 2), (False, 2)]]


def test_a_batch_whose_kernel_was_lost_does_not_join_the_next_one(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("recv", 0)], launched_at=20, at_us=30, for_us=5)
    trace.events = [event for event in trace.events if event["cat"] not in {"kernel", "cuda_runtime"}]
    add_batch(trace, [("send", 2)], launched_at=60, at_us=70, for_us=5)

    assert joined(trace) == [[(True, 2)]]


def test_a_kernel_that_other_code_launches_is_of_no_message(joined: Joined) -> None:
    """GIVEN a batch, then an operator of aten, and a kernel that no c10d operator is behind THEN that one has none."""
    trace = add_batch(a_rank(), [("recv", 0)], launched_at=20, at_us=30, for_us=5).op("aten::mm", 40, 5)
    trace.kernel("ncclDevKernel_SendRecv()", 60, 5, launched_at=50)

    assert joined(trace) == [[(False, 0)], []]


def test_a_coalesced_collective_behind_a_batch_is_of_no_message(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("recv", 0)], launched_at=20, at_us=30, for_us=5)
    trace.op("c10d::alltoall_", 40, 5).kernel("ncclDevKernel_SendRecv()", 60, 5, launched_at=50)

    assert joined(trace) == [[(False, 0)], []]


def test_a_recorded_batch_has_its_kernels_whatever_else_is_launched_in_it(joined: Joined) -> None:
    """An operator between the messages and their kernel would end a batch that is only guessed."""
    trace = add_batch(a_rank(), [("send", 2), ("recv", 0)], launched_at=20, at_us=30, for_us=5, recorded=True)
    trace.op("aten::empty", 17, 0.5)

    assert joined(trace) == [[(True, 2), (False, 0)]]


def test_a_recorded_batch_whose_kernel_was_lost_does_not_join_the_next_one(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("recv", 0)], launched_at=20, at_us=30, for_us=5, recorded=True, annotated=False)
    trace.events = [event for event in trace.events if event["cat"] not in {"kernel", "cuda_runtime"}]
    trace.kernel("ncclDevKernel_SendRecv()", 70, 5, launched_at=60)

    assert joined(trace) == [[]]


def test_a_batch_outside_of_the_recorded_ones_is_found_as_ever(joined: Joined) -> None:
    trace = add_batch(a_rank(), [("send", 2)], launched_at=20, at_us=30, for_us=5, recorded=True)
    add_batch(trace, [("recv", 2), ("recv", 0)], launched_at=80, at_us=90, for_us=5)

    assert joined(trace) == [[(True, 2)], [(False, 2), (False, 0)]]
