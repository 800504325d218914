"""How long transfers take once all ranks are ready, from when each was ready and when it ended there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tracekit.explain.whatif.graph.operations import Operations
from tracekit.explain.whatif.graph.transfers import Transfers, synchronise


def synchronised(
    *members: tuple[int, int], groups: Sequence[int] | None = None, spins: bool = True, **columns: Sequence[int]
) -> Operations:
    """Return operations, one a member (arrived, end) of a rank of its own, after their transfers are known.

    groups: the group of each; by default they are one.
    """
    count = len(members)
    of_group = [0] * count if groups is None else list(groups)
    operations = Operations(begin_ns=0)
    for rank, group in enumerate(of_group):
        operations.add(np.array([-1]), task=np.array([0]), type=0, rank=rank, group=np.array([group]))
    transfers = Transfers(
        operation=np.arange(count),
        arrived_ns=np.array([arrived for arrived, _ in members]),
        end_ns=np.array([end for _, end in members]),
        group=np.array(of_group),
        follows=np.full(count, -1),
        rank=np.arange(count),
        network_link=np.zeros(count, dtype=np.int64),
        size_bytes=np.full(count, 64),
        spins=np.full(count, spins),
        batched=np.zeros(count, dtype=np.bool_),
        error_ns=np.zeros(count, dtype=np.int64),
        ahead_ns=np.zeros(count, dtype=np.int64),
        machine=np.arange(count),
    )
    synchronise(operations, replace(transfers, **{name: np.array(values) for name, values in columns.items()}))
    return operations


def test_a_kernel_that_spins_takes_the_transfer_on_the_rank_that_came_last() -> None:
    assert synchronised((10, 100), (80, 100), (30, 100)).column("duration_ns").tolist() == [20] * 3


@pytest.mark.parametrize("ahead_ns", [-500, 0, 500])
def test_the_clock_of_another_rank_does_not_matter_for_kernels_that_spin(ahead_ns: int) -> None:
    assert synchronised((10, 100), (80 + ahead_ns, 100 + ahead_ns)).column("duration_ns").tolist() == [20, 20]


def test_a_member_that_was_over_before_the_last_one_came_had_not_waited_for_it() -> None:
    """GIVEN a broadcast that its source was through with at 30 THEN it leaves the group, and the last one follows."""
    operations = synchronised((10, 30), (80, 100), spins=False)

    assert operations.column("duration_ns").tolist() == [20, 20]
    assert operations.column("group").tolist() == [-1, 0]
    assert [edge.tolist() for edge in operations.edges()] == [[0], [1]]


def test_a_message_of_a_batch_takes_as_long_as_others_over_its_link_do() -> None:
    """GIVEN three messages of 20, and one of 300 because its kernel waited for another message THEN it took 20."""
    at = [(1000 * number, 1000 * number + time_ns) for number, time_ns in enumerate((20, 20, 300, 20))]
    members = [member for member in at for _ in range(2)]
    groups = np.repeat(np.arange(4), 2).tolist()
    batched = [group == 2 for group in groups]
    ranks = [0, 1] * 4

    alone = synchronised(*members, groups=groups, rank=ranks)
    assert alone.column("duration_ns").tolist() == [20] * 4 + [300] * 2 + [20] * 2
    with_it = synchronised(*members, groups=groups, rank=ranks, batched=batched)  # type: ignore[arg-type]
    elsewhere = synchronised(
        *members, groups=groups, rank=ranks, batched=batched, network_link=[0, 0, 0, 0, 1, 1, 0, 0]
    )  # type: ignore[arg-type]
    assert with_it.column("duration_ns").tolist() == [20] * 8
    assert elsewhere.column("duration_ns").tolist() == [20] * 4 + [300] * 2 + [20] * 2


@pytest.mark.parametrize(
    ("machine", "ahead_ns", "expected_ns"),
    [
        pytest.param([0, 1], [0, 0], 100, id="other machines"),
        pytest.param([0, 0], [0, 0], 20, id="one machine"),
        pytest.param([0, 0], [0, 15], 35, id="one machine with two models of its clock"),
        pytest.param([0, 0], [0, 100], 100, id="models that contradict one clock"),
    ],
)
def test_ranks_of_one_machine_share_a_clock(machine: list[int], ahead_ns: list[int], expected_ns: int) -> None:
    """GIVEN a sender whose kernel waits for another message WHEN the receiver has this one 20 after the sender came
    THEN it took 20, and 80 more at most if the two clocks may be wrong by 40 each.
    """
    columns = {"batched": [True, False], "error_ns": [40, 40], "machine": machine, "ahead_ns": ahead_ns}
    operations = synchronised((1000, 1300), (0, 1020), **columns)

    assert operations.column("duration_ns").tolist() == [expected_ns] * 2
