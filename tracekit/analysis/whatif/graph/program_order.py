"""Which waits for communication are the program's doing, and would vanish if only data had to be waited for."""

from __future__ import annotations

import numpy as np

from tracekit.analysis.whatif.graph.operations import Interners, Operations
from tracekit.analysis.whatif.graph.run_communication import GRADIENTS, PARAMETERS, REGATHERED
from tracekit.model.events import ABSENT, Bool, Int64

__all__ = ["PROGRAM_ORDER", "ProgramOrder"]

_GATHERS = (PARAMETERS, REGATHERED)
PROGRAM_ORDER = "program order"
"""The label of tasks whose operations stand for waits that the program orders and no data requires."""


class ProgramOrder:
    """Lets the communication of one rank wait for work, and work for it."""

    def __init__(self, operations: Operations, interners: Interners, rank: int, purpose: Int64) -> None:
        """purpose: of the rank's communication, int64 [c]."""
        self.operations, self.interners, self.rank, self.purpose = operations, interners, rank, purpose
        self._task: Int64 | None = None

    def _wait(self, before: Int64, after: Int64, by_program: Bool) -> None:
        self.operations.wait(before[~by_program], after[~by_program])
        if not by_program.any():
            return
        if self._task is None:
            names = [(PROGRAM_ORDER,)]
            kind, label = self.interners.kinds.numbers(names), self.interners.comparison_classes.numbers(names)
            self._task = self.operations.add_tasks(kind, label)
        self.operations.wait_in_order(before[by_program], after[by_program], task=self._task, rank=self.rank)

    def launched_after(self, work: Int64, transfers: Int64, rows: Int64 | None = None) -> None:
        """Let communication wait for the work before it, int64 [k] each; -1 is none.

        rows: of the communication, int64 [k]; None: all.
        """
        known = work != ABSENT
        purpose = self.purpose if rows is None else self.purpose[rows]
        self._wait(work[known], transfers[known], np.isin(purpose[known], _GATHERS))

    def known_since(self, step_ends: Int64, transfers: Int64) -> None:
        """Let parameters wait for the end of the step before, which made them, int64 [c] each.

        They stay in the order of their process group, so that reductions that were issued before them go first.
        """
        gathers = np.isin(self.purpose, _GATHERS)
        self.operations.wait(step_ends[gathers], transfers[gathers])

    def await_all(self, transfers: Int64, waiting: Int64, place: Int64, step: Int64, rows: Int64 | None = None) -> None:
        """Let work wait for communication; for gradients only the last work of the step that does.

        transfers, waiting: the operations, int64 [k] each; a missing one is -1. place: ascending with the time at
        which the rank waits, int64 [k]. step: in which the communication was issued, int64 [k]. rows: of the
        communication, int64 [k].
        """
        known = np.flatnonzero((waiting != ABSENT) & (transfers != ABSENT))
        transfers, waiting, place, step = transfers[known], waiting[known], place[known], step[known]
        gradients = (self.purpose if rows is None else self.purpose[rows])[known] == GRADIENTS
        last = np.full(int(step.max(initial=0)) + 1, ABSENT)
        np.maximum.at(last, step[gradients], place[gradients])
        early = gradients & (place < last[step])
        self._wait(transfers, waiting, early)
        if early.any():
            final = np.full(len(last), ABSENT)
            at_last = gradients & ~early
            final[step[at_last]] = waiting[at_last]
            self.operations.wait(transfers[early], final[step[early]])
