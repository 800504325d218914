"""Links whose transfers take longer than those of other links, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.explain.whatif.hand_made import TRANSFER, TaskOf, graph_of
from tracekit.explain.whatif.peer_speed import find_slow_links, link_at_others_speed
from tracekit.replay.operation_graph import OperationGraph

PAIRS = [(0, 1), (2, 3), (4, 5), (6, 7)]


def transfers(
    *ns_of_link: list[float],
    kind: str = TRANSFER,
    machines: dict[int, str | None] | None = None,
    devices: dict[int, str | None] | None = None,
    size_bytes: int | None = None,
) -> OperationGraph:
    """Return a job with transfers over `PAIRS`. size_bytes: of messages; None if they are collectives."""
    tasks = [
        TaskOf(rank=rank, ns=times_ns, kind=kind, link=link)
        for link, times_ns in enumerate(ns_of_link)
        for rank in PAIRS[link]
    ]
    work = [TaskOf(rank=0, ns=[1000.0] * len(ns_of_link[0]))]
    sizes = {} if size_bytes is None else {kind: size_bytes}
    return graph_of([*tasks, *work], links=PAIRS, machines=machines, devices=devices, message_bytes=sizes)


def test_a_slow_link_takes_longer_by_the_sum_over_its_transfers() -> None:
    """GIVEN 30 on one link and 20 on two others THEN it loses 10 in each of two transfers, on each of two ranks."""
    (slow,) = find_slow_links(transfers([20, 20], [30, 30], [20, 20]))

    assert (slow.number, slow.excess_ns, list(slow.usual_ns.values())) == (1, 40, [20])


def test_at_the_speed_of_the_others_its_transfers_vary_as_before_and_nothing_else_changes() -> None:
    graph = transfers([20, 20, 20], [30, 24, 36], [20, 20, 20])
    (slow,) = find_slow_links(graph)
    (duration_ns,) = link_at_others_speed(graph, slow)

    np.testing.assert_allclose(duration_ns[[0, 2, 4, 6]], [[20] * 3, [20, 16, 24], [20] * 3, [1000] * 3])


def test_the_slowest_comes_first() -> None:
    found = find_slow_links(transfers([20], [30], [20], [50]))

    assert [slow.number for slow in found] == [3, 1]


@pytest.mark.parametrize("slow_ns", [20, 23])
def test_links_differ_by_less_than_a_fifth_without_anything_being_wrong(slow_ns: float) -> None:
    assert find_slow_links(transfers([20], [slow_ns], [20])) == []


def test_messages_of_unknown_size_are_not_compared() -> None:
    assert len(find_slow_links(transfers([20], [60], [20], size_bytes=64))) == 1
    assert find_slow_links(transfers([20], [60], [20], size_bytes=-1)) == []


def test_links_within_a_machine_are_not_compared_with_links_between_machines() -> None:
    nvlink_and_network = transfers(
        [20], [20], [60], [60], machines={0: "a", 1: "a", 2: "b", 3: "b", 4: "a", 5: "b", 6: "a", 7: "b"}
    )

    assert find_slow_links(nvlink_and_network) == []
    assert len(find_slow_links(transfers([20], [20], [60], [60]))) == 2


ONE_BETWEEN_HOSTS: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "a", 5: "b"}


def test_messages_over_the_only_link_between_machines_are_compared_with_those_within() -> None:
    (slow,) = find_slow_links(transfers([20], [24], [66], machines=ONE_BETWEEN_HOSTS, size_bytes=64))

    assert (slow.number, slow.reference, list(slow.usual_ns.values())) == (2, "links within hosts", [22])


def test_messages_over_the_only_link_within_a_machine_are_compared_with_those_between() -> None:
    machines: dict[int, str | None] = {0: "a", 1: "b", 2: "c", 3: "d", 4: "a", 5: "a"}
    (slow,) = find_slow_links(transfers([20], [24], [66], machines=machines, size_bytes=64))

    assert (slow.number, slow.reference) == (2, "links between hosts")


def test_collectives_elsewhere_and_unknown_machines_are_no_measure() -> None:
    assert find_slow_links(transfers([20], [24], [66], machines=ONE_BETWEEN_HOSTS)) == []
    unknown = ONE_BETWEEN_HOSTS | {0: None, 1: None}
    assert find_slow_links(transfers([20], [24], [66], machines=unknown, size_bytes=64)) == []


@pytest.mark.parametrize(
    ("device", "machine", "took_ns", "is_slow"),
    [
        ("NVIDIA H200", "a", 115_000.0, True),
        ("NVIDIA H200", "a", 113_000.0, False),
        ("NVIDIA H200", "b", 115_000.0, False),
        ("NVIDIA L4", "a", 115_000.0, False),
    ],
)
def test_messages_between_the_only_two_ranks_are_compared_with_nvlink(
    device: str, machine: str, took_ns: float, is_slow: bool
) -> None:
    """GIVEN messages that take 46 us over NVLink, and 113.6 us over a single one, THEN that is known of one machine."""
    graph = transfers([took_ns], machines={0: "a", 1: machine}, devices={0: device, 1: device}, size_bytes=1_872_000)

    found = [(slow.reference, list(slow.usual_ns.values())) for slow in find_slow_links(graph)]

    assert found == ([("NVLink", [46_000])] if is_slow else [])


def test_a_link_without_another_of_its_kind_has_nothing_to_be_compared_with() -> None:
    tasks = [
        TaskOf(rank=0, ns=[20], kind=TRANSFER, link=0),
        TaskOf(rank=1, ns=[90], kind=f"{TRANSFER} of more", link=1),
    ]

    assert find_slow_links(graph_of(tasks, links=PAIRS)) == []
    assert find_slow_links(graph_of([TaskOf(rank=0, ns=[20])])) == []
