"""Which waits for communication vanish if only data has to be waited for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tracekit.explain.whatif.graph.operations import Interners, Operations, ProgramOrder
from tracekit.explain.whatif.graph.run_communication import GRADIENTS, OTHER, PARAMETERS
from tracekit.replay.operation_graph import NEVER_NS
from tracekit.replay.replay import build_graph


class Rank:
    """A rank whose work of 10 between transfers of 30 is awaited in order: work, transfer, work, transfer, work."""

    def __init__(self, purposes: Sequence[int]) -> None:
        self.operations = Operations(begin_ns=0)
        count = len(purposes)
        self.work = self._add(10, count + 1)
        self.operations.wait(self.work[:-1], self.work[1:])
        self.transfers = self._add(30, count)
        self.order = ProgramOrder(self.operations, Interners(), 0, np.array(purposes))

    def _add(self, duration_ns: int, count: int) -> np.ndarray:
        return self.operations.add(np.full(count, duration_ns), task=np.zeros(count, dtype=np.int64), type=0, rank=0)

    def ends(self, *, by_data_alone: bool) -> list[float]:
        """Return when the rank's work ends."""
        count = self.operations.count
        duration_ns = self.operations.column("duration_ns").astype(np.float64)
        duration_ns[len(self.work) + len(self.transfers) :] = NEVER_NS if by_data_alone else 0.0
        graph = build_graph(count, *self.operations.edges(), np.full(count, -1))
        return graph.ends(duration_ns[:, None], self.work)[:, 0].tolist()


def blocking(*purposes: int) -> Rank:
    rank = Rank(purposes)
    rank.order.launched_after(rank.work[:-1], rank.transfers)
    rank.order.known_since(np.full(len(purposes), rank.work[0]), rank.transfers)
    waiting = rank.work[1:]
    rank.order.await_all(rank.transfers, waiting, waiting, np.zeros(len(purposes), dtype=np.int64))
    return rank


def test_gradients_are_needed_by_the_last_work_of_the_step_that_waits_for_them() -> None:
    assert blocking(GRADIENTS, GRADIENTS, GRADIENTS).ends(by_data_alone=False) == [10, 50, 90, 130]
    assert blocking(GRADIENTS, GRADIENTS, GRADIENTS).ends(by_data_alone=True) == [10, 20, 30, 70]


def test_parameters_are_known_when_the_step_begins_and_needed_where_they_are_awaited() -> None:
    assert blocking(PARAMETERS, PARAMETERS).ends(by_data_alone=False) == [10, 50, 90]
    assert blocking(PARAMETERS, PARAMETERS).ends(by_data_alone=True) == [10, 50, 60]


def test_everything_else_depends_on_the_work_before_and_is_needed_behind() -> None:
    for by_data_alone in (False, True):
        assert blocking(OTHER, OTHER).ends(by_data_alone=by_data_alone) == [10, 50, 90]


def test_gradients_that_are_never_awaited_hold_up_nothing() -> None:
    rank = Rank([GRADIENTS])
    rank.order.launched_after(rank.work[:-1], rank.transfers)
    rank.order.await_all(rank.transfers, np.array([-1]), np.array([-1]), np.array([0]))

    assert rank.ends(by_data_alone=False) == [10, 20]
