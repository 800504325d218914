"""Streams, events, collectives and messages by numbers that can be worked out by hand. Times are nanoseconds."""

from __future__ import annotations

from typing import Any

from tests.gpu_jobs.engine import Device, Kernel, Latencies, Stream, Transfer

LATENCIES = Latencies(launch_ns=4, event_ns=2, gap_ns=1)


def kernel(device: Device, stream: Stream, launch_ns: int, duration_ns: int = 0, **more: Any) -> Kernel:
    activity = "comm" if "transfers" in more else "compute"
    launched = Kernel(
        rank=more.pop("rank", 0),
        step=0,
        stream=stream,
        name="kernel",
        activity=activity,
        launch_ns=launch_ns,
        duration_ns=duration_ns,
        in_order=activity == "compute",
        facts={},
        **more,
    )
    device.launch(launched)
    return launched


def transfer(members: tuple[int, ...], transfer_ns: int) -> Transfer:
    return Transfer(
        group=None, kind="all_reduce", members=members, sequence=0, step=0, transfer_ns=transfer_ns, size_bytes=4
    )


def test_kernels_of_a_stream_run_one_after_the_other() -> None:
    device, stream = Device(LATENCIES), Stream(7)

    first = kernel(device, stream, 0, 100)
    second = kernel(device, stream, 10, 50)
    late = kernel(device, stream, 500, 5)
    device.run()

    assert (first.start_ns, first.end_ns) == (4, 104)
    assert (second.start_ns, second.end_ns) == (105, 155)
    assert (late.start_ns, late.end_ns) == (504, 509)


def test_a_collective_begins_when_launched_and_ends_after_the_last_rank_has_come() -> None:
    """Rank 1 computes until 304. Its collective starts at 306, and ends 40 later on both ranks."""
    device = Device(LATENCIES)
    reduction = transfer((0, 1), 40)
    works = []
    for rank, compute_ns in ((0, 100), (1, 300)):
        compute, comm = Stream(7), Stream(20)
        kernel(device, compute, 0, compute_ns, rank=rank)
        comm.wait(compute.event())
        works.append(kernel(device, comm, 10, transfers=[reduction], rank=rank, late_ns=rank))
    device.run()

    assert [work.arrival_ns for work in works] == [104, 304]
    assert [work.start_ns for work in works] == [106, 306]
    assert [work.end_ns for work in works] == [346, 347]


def test_a_collective_that_is_queued_has_arrived_when_it_was_launched() -> None:
    """Both ranks launch two collectives at once. Rank 1's other work delays the first one, the second one is queued."""
    device = Device(LATENCIES)
    first, second = transfer((0, 1), 40), transfer((0, 1), 10)
    works = []
    for rank, launch_ns in ((0, 0), (1, 100)):
        stream = Stream(20)
        kernel(device, stream, launch_ns, transfers=[first], rank=rank)
        works.append(kernel(device, stream, launch_ns + 5, transfers=[second], rank=rank))
    device.run()

    assert [work.arrival_ns for work in works] == [5, 105]
    assert [work.start_ns for work in works] == [145, 145]
    assert [work.end_ns for work in works] == [155, 155]


def test_a_collective_after_one_that_compute_waits_for_has_arrived_when_that_one_has_ended() -> None:
    """The compute stream waits for the first, and so does its event, which the second waits for."""
    device = Device(LATENCIES)
    first, second = transfer((0, 1), 40), transfer((0, 1), 10)
    works = []
    for rank, launch_ns in ((0, 0), (1, 100)):
        compute, comm = Stream(7), Stream(20)
        compute.wait([kernel(device, comm, launch_ns, transfers=[first], rank=rank)])
        comm.wait_event(compute.event())
        works.append(kernel(device, comm, launch_ns + 5, transfers=[second], rank=rank))
    device.run()

    assert [work.arrival_ns for work in works] == [144, 144]
    assert [work.start_ns for work in works] == [146, 146]


def test_a_batch_of_messages_ends_with_its_last_message() -> None:
    """Rank 1 sends to 2 and receives from 0 in one kernel; rank 2 is there at 54, rank 0 at 204."""
    device = Device(LATENCIES)
    to_two, from_zero = transfer((1, 2), 10), transfer((0, 1), 10)
    batch = kernel(device, Stream(20), 0, transfers=[to_two, from_zero], rank=1)
    receive = kernel(device, Stream(20), 50, transfers=[to_two], rank=2)
    send = kernel(device, Stream(20), 200, transfers=[from_zero], rank=0)
    device.run()

    assert (receive.start_ns, receive.end_ns) == (54, 64)
    assert (send.start_ns, send.end_ns) == (204, 214)
    assert (batch.start_ns, batch.end_ns) == (4, 214)
