"""Numbers of operations and tasks while a graph is built."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.replay.operation_graph import DATA, WORK
from tracekit.analysis.whatif.graph.operations import Interner, Operations


def array(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_names_are_numbered_in_order_of_first_use() -> None:
    interner = Interner()

    assert [interner[name] for name in ("gemm", ("transfer", 8), "gemm", "adam")] == [0, 1, 0, 2]
    assert interner.numbers(["adam", "sgd"]).tolist() == [2, 3]


def test_names_with_a_number_behind_them_are_numbered_at_once() -> None:
    """GIVEN three numbers behind a name THEN others behind it, or behind another name, have other numbers."""
    interner = Interner()
    interner["gemm"]

    assert interner.behind(("host", 4), array(7, 2, 7)).tolist() == [2, 1, 2]
    assert interner.behind(("device", 4), array(2)).tolist() == [3]
    assert interner.behind(("host", 4), array(9, 7, 1, 2)).tolist() == [5, 2, 4, 1]
    assert sorted(interner.tuples({"host"})) == [(("host", 4), number) for number in (1, 2, 4, 5)]


def test_an_operation_waits_for_others() -> None:
    operations = Operations(begin_ns=0)
    first = operations.add(array(10, 20), task=array(0, 1), type=4, rank=3, stage=0)
    last = operations.add(array(0), task=array(1), type=array(6), rank=4, group=array(5), link=array(2))
    operations.wait(first, array(*last, *last))
    operations.wait(array(-1, 0), array(0, 1))  # -1: none

    assert (first.tolist(), last.tolist(), operations.count) == ([0, 1], [2], 3)
    assert [edge.tolist() for edge in operations.edges()] == [[0, 1, 0], [2, 2, 1]]
    expected = {"rank": [3, 3, 4], "type": [4, 4, 6], "stage": [0, 0, -1], "group": [-1, -1, 5], "link": [-1, -1, 2]}
    assert {name: operations.column(name).tolist() for name in expected} == expected


def test_times_and_groups_may_change_until_the_columns_are_made() -> None:
    operations = Operations(begin_ns=0)
    operations.add(array(10, 20, 30), task=array(0, 0, 0), type=0, rank=0, group=array(1, 1, 2))
    operations.set_times(array(2, 0), array(5, 7))
    operations.set_times(array(0), array(1), add=True)
    operations.leave_group(array(1))

    assert operations.column("duration_ns").tolist() == [8, 20, 5]
    assert operations.column("group").tolist() == [1, -1, 2]


def test_tasks_know_the_task_of_their_host() -> None:
    operations = Operations(begin_ns=0)
    hosts = operations.add_tasks(array(1, 1), array(2, 3))
    load = operations.add_tasks(array(5), array(6), role=DATA, host_task=hosts[:1])

    assert (hosts.tolist(), load.tolist(), operations.task_count) == ([0, 1], [2], 3)
    assert operations.column("role").tolist() == [WORK, WORK, DATA]
    assert operations.column("host_task").tolist() == [-1, -1, 0]
    assert operations.column("host_share").tolist() == [0.0, 0.0, 0.0]
