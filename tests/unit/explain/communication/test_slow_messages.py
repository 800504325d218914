"""Which links of GPU jobs are slow, by messages whose times are known."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.exchanges import Message, clocks, rank, recv, run_of, send
from tracekit.explain.communication.slow_messages import SlowMessages, slow_messages
from tracekit.job.messages import match_messages

Times = Mapping[tuple[int, int], int | list[int]]
EVEN = {(0, 1): 100, (1, 2): 100, (2, 3): 100, (3, 4): 100}


def found(
    took_ns: Times,
    *,
    count: int = 6,
    sizes: Mapping[tuple[int, int], int] | None = None,
    hosts: Mapping[int, str] | None = None,
    batched: frozenset[int] = frozenset(),
    comparable: bool = True,
    devices: Mapping[int, str] | None = None,
) -> tuple[SlowMessages, np.ndarray]:
    """Return the slow links of a run with as many messages on each link, and the source of each message.

    took_ns: how long the messages of each link took, or each of them. batched: ranks with one kernel for all messages
    of a turn; others have one kernel a message.
    """
    messages: dict[int, list[Message]] = {number: [] for ends in took_ns for number in ends}
    for turn in range(count):
        for place, ends in enumerate(took_ns):
            size_bytes = (sizes or {}).get(ends, 64)
            for number, make, peer in ((ends[0], send, ends[1]), (ends[1], recv, ends[0])):
                at_ns = 10_000 * turn + (0 if number in batched else 100 * (place + 1))
                messages[number].append(make(peer, at_ns, took_ns=5000, size_bytes=size_bytes))
    members = [
        rank(
            number,
            of_rank,
            device="gpu",
            device_name=(devices or {}).get(number),
            host=(hosts or {}).get(number, "node0"),
        )
        for number, of_rank in sorted(messages.items())
    ]
    matched, _ = match_messages(members, clocks(len(members)))
    assert len(matched) == count * len(took_ns)
    left = {ends: iter([ns] * count if isinstance(ns, int) else ns) for ends, ns in took_ns.items()}
    pairs = zip(matched.source.tolist(), matched.destination.tolist(), strict=True)
    of_messages = np.array([next(left[pair]) for pair in pairs], dtype=np.int64)
    run = run_of(members, messages=matched)
    return slow_messages(run, of_messages, np.full(len(matched), comparable)), matched.source


def test_links_that_take_equally_long_are_not_slow() -> None:
    slow, _ = found(EVEN)

    assert (slow.links, slow.slowdown) == ((), ())
    assert set(slow.link.tolist()) == {-1}
    assert slow.slow_ns.sum() == 0


def test_a_link_that_takes_longer_than_others_is_slow() -> None:
    slow, source = found(EVEN | {(1, 2): 300})

    assert (slow.links, slow.slowdown) == (((1, 2),), (3.0,))
    assert slow.link.tolist() == np.where(source == 1, 0, -1).tolist()
    assert slow.slow_ns.tolist() == np.where(source == 1, 200, 0).tolist()


@pytest.mark.parametrize(("took_ns", "links"), [(119, ()), (125, ((1, 2),))])
def test_a_difference_of_less_than_a_fifth_says_nothing(took_ns: int, links: tuple[tuple[int, int], ...]) -> None:
    assert found(EVEN | {(1, 2): took_ns})[0].links == links


def test_the_fastest_message_of_a_link_counts() -> None:
    """GIVEN messages that wait for others, all but one of each link THEN no link is slow."""
    assert found(EVEN | {(1, 2): [900, 900, 100, 900, 900, 900]})[0].links == ()


def test_a_link_may_be_slow_in_one_direction() -> None:
    both = EVEN | {(b, a): ns for (a, b), ns in EVEN.items()}

    assert found(both | {(1, 2): 300})[0].links == ((1, 2),)
    assert found(both | {(1, 2): 300, (2, 1): 200})[0].links == ((1, 2), (2, 1))


def test_messages_are_compared_with_those_of_their_size() -> None:
    assert found(EVEN | {(1, 2): 300}, sizes={(1, 2): 640})[0].links == ()


def test_messages_of_unknown_size_are_not_compared() -> None:
    assert found(EVEN | {(1, 2): 300}, sizes=dict.fromkeys(EVEN, -1))[0].links == ()


def test_messages_between_hosts_are_compared_with_each_other() -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    between_hosts = {(1, 2): 300, (3, 4): 300}

    assert found(EVEN | between_hosts, hosts=hosts)[0].links == ()
    slow, _ = found(EVEN | between_hosts | {(1, 2): 900}, hosts=hosts)
    assert (slow.links, slow.slowdown, slow.references) == (((1, 2),), (3.0,), ("others alike",))


def test_the_only_link_between_hosts_is_compared_with_those_within() -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b", 4: "b"}

    slow, source = found(EVEN | {(1, 2): 300}, hosts=hosts)

    assert (slow.links, slow.slowdown, slow.references) == (((1, 2),), (3.0,), ("links within hosts",))
    assert slow.slow_ns.tolist() == np.where(source == 1, 200, 0).tolist()
    assert found(EVEN | {(1, 2): 119}, hosts=hosts)[0].links == ()


def test_the_only_link_within_a_host_is_compared_with_those_between() -> None:
    hosts = {0: "a", 1: "b", 2: "b", 3: "c", 4: "d"}

    slow, _ = found(EVEN | {(1, 2): 300}, hosts=hosts)

    assert (slow.links, slow.references) == (((1, 2),), ("links between hosts",))


def test_where_hosts_are_not_known_links_are_compared_wherever_they_are() -> None:
    """GIVEN ranks that do not name their host, and one that does THEN nothing is said of where links are."""
    hosts = dict.fromkeys(range(5), "localhost") | {2: "b"}

    assert found(EVEN | {(3, 4): 300}, hosts=hosts)[0].references == ("others alike",)
    assert found({(0, 1): 100, (1, 2): 300}, hosts=hosts)[0].links == ()


LONE = {(0, 1): 172_000, (1, 0): 172_000}
NVLINK = "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize(
    ("names", "hosts", "size_bytes", "is_slow"),
    [
        pytest.param([NVLINK, NVLINK], "aa", 1_872_000, True, id="11 GB/s"),
        pytest.param([NVLINK, NVLINK], "aa", 3_600_000, False, id="21 GB/s"),
        pytest.param([NVLINK, NVLINK], "ab", 1_872_000, False, id="a network"),
        pytest.param([NVLINK, "NVIDIA A100 80GB PCIe"], "aa", 1_872_000, False, id="PCIe"),
    ],
)
def test_the_only_link_of_a_run_is_compared_with_nvlink(
    names: list[str], hosts: str, size_bytes: int, is_slow: bool
) -> None:
    """GIVEN messages of 172 us between the only two ranks THEN 46 us would be usual over NVLink, and 114 us at most."""
    slow, _ = found(
        LONE,
        sizes=dict.fromkeys(LONE, size_bytes),
        devices=dict(enumerate(names)),
        hosts=dict(enumerate(hosts)),
    )

    assert slow.links == (((0, 1), (1, 0)) if is_slow else ())
    if is_slow:
        assert slow.references == ("NVLink", "NVLink")
        assert slow.slowdown == pytest.approx((172 / 46, 172 / 46))
        assert slow.slow_ns.tolist() == [126_000] * 12


def test_a_few_messages_tell_nothing() -> None:
    assert found(EVEN | {(1, 2): 300}, count=3)[0].links == ()


def test_only_messages_of_gpus_whose_times_are_known_count() -> None:
    assert found(EVEN | {(1, 2): 300}, comparable=False)[0].links == ()
    assert found(EVEN | {(1, 2): [-1, -1, -1, 300, 300, 300]})[0].links == ()


def test_a_link_that_shares_kernels_with_a_slower_one_only_seems_slow() -> None:
    """GIVEN a rank 2 that receives from rank 1 and sends to rank 3 in one kernel THEN sends wait for receives."""
    times = EVEN | {(1, 2): 300, (2, 3): 290}

    assert found(times, batched=frozenset({2}))[0].links == ((1, 2),)
    assert found(times)[0].links == ((1, 2), (2, 3))


def test_the_way_back_and_faster_links_in_the_same_kernels_hide_nothing() -> None:
    """GIVEN a rank 2 with one kernel for messages to and from rank 1, slow both ways, and others."""
    times = EVEN | {(1, 2): 300, (2, 1): 200, (2, 3): 110}

    assert found(times, batched=frozenset({2}))[0].links == ((1, 2), (2, 1))
    slower = times | {(2, 3): 250}
    assert found(slower, batched=frozenset({2}))[0].links == ((1, 2),)
