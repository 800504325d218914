"""What a GPU rank does in a range of steps, as operations to replay: its host, its device and its communication.

    host      --| launch a |--| launch all_reduce |--| launch b |--| synchronise   |-->
                   '---limit---.     '----------------.    '---limit---.   ^
    device    ------------ a --+---------------------- | ------- b ----+---'
                               '----- all_reduce ------'       waits for it, too

The host works, and waits where it synchronises. A run of kernels ends when the device has done its work, and not
before the limit that its launches set. Communication begins when it is launched, and the kernels before it have ended
if it needs them; after communication goes on what was seen to wait for it.
"""

from __future__ import annotations

import numpy as np

from tracekit.explain.whatif.graph.device_tasks import DeviceTasks, DeviceTimeline
from tracekit.explain.whatif.graph.operations import Interners, Operations, ProgramOrder, RankReplay
from tracekit.explain.whatif.graph.run_communication import Communication
from tracekit.explain.whatif.tables import CUTS, LaunchIntervals
from tracekit.model.events import ABSENT, Bool, Int32, Int64
from tracekit.model.run import ClockModel
from tracekit.model.summary import RankSummary
from tracekit.replay.operation_graph import NO_TRAINING, NO_TRAINING_TYPES

_WAIT, _SYNCHRONISE, _RESUME, _STEP, _END = (
    CUTS.index(what) for what in ("wait", "synchronise", "resume", "step", "end")
)
_INTERRUPTIONS = np.array([CUTS.index(what) for what in NO_TRAINING])


def add_device_rank(
    summary: RankSummary,
    clock: ClockModel,
    bounds: Int64,
    intervals: LaunchIntervals,
    communication: Communication,
    operations: Operations,
    interners: Interners,
    *,
    has_replicas: bool,
) -> RankReplay:
    """Add the operations of one GPU rank, whose times are taken from its own clock.

    clock: by which the rank's begin is compared with that of others. bounds: int64 [s + 1], on the rank's wall clock,
    the begin of the first step and the end of each. intervals: those of these steps.
    """
    timeline = DeviceTimeline(int(bounds[0]), intervals, communication)
    tasks = DeviceTasks(summary, timeline, communication, operations, interners, has_replicas=has_replicas)
    return _Builder(clock, bounds, timeline, tasks, communication, operations).add()


class _Builder:
    """Adds the operations of a rank, block by block: each block has one kind of operation.

    Attributes:
        work_of_row: of each row that cuts the host's time, the operation that ends at the cut; else -1. int64 [n].
        host_of_row: the same, but where the host synchronises the operation that ends when it goes on, int64 [n].
        last_kernel: the operation of the last kernels that were launched before each row, int64 [n].
        last_limit: the operation of the last limit that was set before each row, or -1, int64 [n].
        order: lets communication and work wait for each other.
        transfer: the operation of each communication, int64 [c].
        kernel_end: the operation with which the kernel of each communication ends, int64 [c].
    """

    def __init__(
        self,
        clock: ClockModel,
        bounds: Int64,
        timeline: DeviceTimeline,
        tasks: DeviceTasks,
        communication: Communication,
        operations: Operations,
    ) -> None:
        self.clock, self.bounds, self.timeline, self.tasks = clock, bounds, timeline, tasks
        self.intervals, self.types, self.operations = timeline.intervals, tasks.interners.types, operations
        self.launched = communication.rows(timeline.rows)
        self.order = ProgramOrder(operations, tasks.interners, tasks.rank, self.launched.purpose)
        by_end = np.argsort(self.launched.own_end_ns, kind="stable")
        self.by_end, self.ends_ns = by_end, self.launched.own_end_ns[by_end]
        none = np.full(len(timeline.what), ABSENT, dtype=np.int64)
        self.work_of_row, self.host_of_row, self.last_kernel, self.last_limit = none.copy(), none.copy(), none, none

    def add(self) -> RankReplay:
        """Add all operations, those that others wait for first."""
        timeline, tasks = self.timeline, self.tasks
        begin_ns = self.clock.to_run(np.array([timeline.begin_ns[0], self.bounds[0]])) - self.operations.begin_ns
        begin = tasks.add([("begin", tasks.rank)] * 2)
        self._add_host(int(begin[0]), int(begin_ns[0]))
        device_begin = self._block(begin[1:], "host", begin_ns[1:])
        kernels = self._add_kernels(int(device_begin[0]))
        arrived_ns = self._add_communication()
        self._add_waits_for_communication(*kernels)
        self._add_synchronisations()
        ends = self._add_step_ends()
        return RankReplay(
            ends=ends, rows=timeline.rows, operations=self.transfer, arrived_ns=self.clock.to_run(arrived_ns)
        )

    def _add_host(self, begin_task: int, begin_ns: int) -> None:
        """Add what the host does until each cut. The first operation is the time until the rank begins."""
        timeline = self.timeline
        host, before = timeline.host, np.concatenate((timeline.host[:1], timeline.host[:-1]))
        work_ns = np.maximum(timeline.begin_ns[host] - timeline.until_ns[before], 0)
        interruption = _interruptions(timeline.what)[before]
        interruption[0] = ABSENT
        task = self.tasks.of_host(before, interruption)
        task[0], work_ns[0] = begin_task, begin_ns
        kind = np.full(len(before), self.types["host"])
        for what in np.unique(interruption[interruption != ABSENT]).tolist():
            kind[interruption == what] = self.types[NO_TRAINING_TYPES[what]]
        self.work_of_row[host] = self._block(task, kind, work_ns)
        self.host_of_row[host] = self.work_of_row[host]
        self.synchronised = np.flatnonzero(timeline.what == _SYNCHRONISE)
        nothing = np.zeros(len(self.synchronised), dtype=np.int64)
        position = self.tasks.position[self.synchronised]
        self.host_of_row[self.synchronised] = self._block(self.tasks.host[position], "host", nothing)
        self.operations.wait(self.host_of_row[host[:-1]], self.work_of_row[host[1:]])

    def _add_kernels(self, begin: int) -> tuple[Int64, Int64]:
        """Add the kernels, one after another, and the limits that launches set; return rows and operations of kernels.

        begin: the operation with which the device begins.
        """
        timeline, tasks, intervals, count = self.timeline, self.tasks, self.intervals, len(self.timeline.what)
        has_kernels, has_limit = intervals.device_ns != ABSENT, intervals.limit_host_ns != ABSENT
        has_kernels[-1] = has_limit[-1] = False
        rows, limits = np.flatnonzero(has_kernels), np.flatnonzero(has_limit)
        task, kind, stage = tasks.of_device(rows)
        kernels = self._block(task, kind, intervals.device_ns[rows], stage=stage)
        task_of_row, kernel_of_row, limit_of_row = np.full((3, count + 1), ABSENT, dtype=np.int64)
        task_of_row[rows], kernel_of_row[rows] = task, kernels
        kernel_of_row[-1] = begin  # of rows with no kernel before
        limit_ns = intervals.limit_host_ns[limits] + intervals.limit_device_ns[limits]
        limit_of_row[limits] = self._block(tasks.of_limits(limits, task_of_row[limits]), "host", limit_ns)
        self.operations.wait(self.host_of_row[timeline.host_row[limits]], limit_of_row[limits])
        self.last_kernel = kernel_of_row[timeline.before(has_kernels)]
        self.last_limit = limit_of_row[timeline.before(has_limit)]
        self._after_kernels(rows, kernels)
        return rows, kernels

    def _add_communication(self) -> Int64:
        """Add communication, and return when the rank was ready for it, int64 [c], on the rank's wall clock."""
        timeline, launched, row_of = self.timeline, self.launched, self.timeline.row_of
        task, kind = self.tasks.of_communication()
        nothing = np.zeros(len(launched), dtype=np.int64)
        self.transfer = self._block(task, kind, nothing, group=launched.group, network_link=launched.network_link)
        behind = self.tasks.device[self.tasks.position[row_of]]
        self.operations.exchanges.append(launched.exchanges(self.transfer, behind))
        needs = self.intervals.needs_kernels[row_of] != 0
        self.order.launched_after(self.work_of_row[row_of], self.transfer)
        for last in (self.last_kernel, self.last_limit):
            self.order.launched_after(last[row_of[needs]], self.transfer[needs], np.flatnonzero(needs))
        self.kernel_end = self._kernel_ends()
        arrived_ns = np.where(needs, timeline.free_ns[row_of], self.bounds[0])
        arrived_ns = np.maximum(arrived_ns, launched.own_launch_ns)
        awaited_ns = self.intervals.awaited_communication_ns[row_of]
        known = self._after_communication(awaited_ns, self.transfer)
        step_begins = self.last_kernel[np.flatnonzero(self.timeline.what[:-1] == _STEP)]
        since = step_begins[self.timeline.step[row_of]]
        self.order.known_since(np.where(needs, since, step_begins[0]), self.transfer)
        return np.where(known, np.maximum(arrived_ns, awaited_ns), arrived_ns)

    def _kernel_ends(self) -> Int64:
        """Return the operation with which the kernel of each communication ends, int64 [c].

        A kernel that carries several messages ends with the last of them.
        """
        keys = np.stack((self.timeline.row_of, self.launched.own_end_ns))
        _, of_kernel, counts = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        of_kernel = of_kernel.reshape(-1)
        batches = np.flatnonzero(counts > 1)
        if not len(batches):
            return self.transfer
        task = self.tasks.add([("transfer", "batch")] * len(batches))
        end = np.full(len(counts), ABSENT, dtype=np.int64)
        end[batches] = self._block(task, "send_recv", np.zeros(len(batches), dtype=np.int64))
        several = counts[of_kernel] > 1
        self.operations.wait(self.transfer[several], end[of_kernel[several]])
        return np.where(several, end[of_kernel], self.transfer)

    def _add_waits_for_communication(self, rows: Int64, kernels: Int64) -> None:
        """Let kernels wait for communication. What other ranks have no part in lasts as long as it did."""
        awaited_ns = np.where(self.timeline.what == _WAIT, self.intervals.awaited_communication_ns, ABSENT)[rows]
        unknown = ~self._after_communication(awaited_ns, kernels, rows) & (awaited_ns != ABSENT)
        waited_ns = np.maximum(awaited_ns - self.timeline.free_ns[rows], 0)
        self.operations.set_times(kernels[unknown], waited_ns[unknown], add=True)

    def _add_synchronisations(self) -> None:
        """Let the host wait for kernels and communication: through operations that may vanish, see `NEVER_NS`."""
        timeline, intervals, rows = self.timeline, self.intervals, self.synchronised
        waits = self._block(self.tasks.of_synchronisations(rows), "host", np.zeros(len(rows), dtype=np.int64))
        self.operations.wait(waits, self.host_of_row[rows])
        self.operations.wait(self.work_of_row[rows], self.host_of_row[rows])
        kernel_ns, communication_ns = intervals.awaited_kernel_ns[rows], intervals.awaited_communication_ns[rows]
        known = self._after_communication(communication_ns, waits)
        since_ns = np.maximum(timeline.begin_ns[rows], kernel_ns)
        since_ns = np.where(known, np.maximum(since_ns, communication_ns), since_ns)
        woken_ns = np.maximum(timeline.until_ns[rows] - since_ns, 0)
        self.operations.set_times(self.host_of_row[rows], woken_ns)
        for_kernel = kernel_ns != ABSENT
        ended = np.searchsorted(timeline.end_ns, kernel_ns[for_kernel], side="right")
        self._after_kernels(np.minimum(ended, rows[for_kernel]), waits[for_kernel])

    def _add_step_ends(self) -> Int64:
        """Add an operation of no length where each step ends: where the host begins the next, and the device is there.

        The last step of a recording ends when all that was launched in it is over.
        """
        timeline, row_of = self.timeline, self.timeline.row_of
        borders = np.append(np.flatnonzero(timeline.what[1:-1] == _STEP) + 1, len(timeline.what) - 1)
        over_ns = np.maximum(timeline.begin_ns[borders], timeline.free_ns[borders])
        in_last = (timeline.step[row_of] == timeline.step[-1]) & bool(timeline.what[-1] == _END)
        if in_last.any():
            over_ns[-1] = max(over_ns[-1], int(self.launched.own_end_ns[in_last].max()))
        task = self.tasks.add([("end",)] * len(borders))
        ends = self._block(task, "host", np.maximum(self.bounds[1:] - over_ns, 0))
        self.operations.wait(self.work_of_row[borders], ends)
        self._after_kernels(borders, ends)
        self.operations.wait(self.kernel_end[in_last], np.full(int(in_last.sum()), ends[-1]))
        return ends

    def _after_kernels(self, rows: Int64, operations: Int64) -> None:
        """Let operations wait for all kernels that were launched before some rows."""
        self.operations.wait(self.last_kernel[rows], operations)
        self.operations.wait(self.last_limit[rows], operations)

    def _after_communication(self, awaited_ns: Int64, operations: Int64, rows: Int64 | None = None) -> Bool:
        """Let operations wait for the communication that ended at some times, int64 [k] each.

        Return a mask [k] of those that have any. rows: of kernels that wait, int64 [k].
        """
        first = np.searchsorted(self.ends_ns, awaited_ns, side="left")
        counts = np.where(awaited_ns == ABSENT, 0, np.searchsorted(self.ends_ns, awaited_ns, side="right") - first)
        of = np.repeat(np.arange(len(awaited_ns)), counts)
        at = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts) + first[of]
        ended, communication = self.kernel_end[self.by_end[at]], self.by_end[at]
        if rows is None:
            self.operations.wait(ended, operations[of])
        else:
            step = self.timeline.step[self.timeline.row_of[communication]]
            self.order.await_all(ended, operations[of], rows[of], step, communication)
        return np.asarray(counts > 0)

    def _block(
        self,
        task: Int64,
        kind: Int64 | str,
        duration_ns: Int64,
        *,
        stage: Int64 | None = None,
        group: Int64 | None = None,
        network_link: Int64 | None = None,
    ) -> Int64:
        """Add operations, and return their indexes. kind: names of types, or one for all."""
        return self.operations.add(
            duration_ns,
            task=task,
            type=self.types[kind] if isinstance(kind, str) else kind,
            rank=self.tasks.rank,
            stage=self.tasks.stage if stage is None else stage,
            group=ABSENT if group is None else group,
            network_link=ABSENT if network_link is None else network_link,
        )


def _interruptions(what: Int32) -> Int64:
    """Return what the host does from each cut on instead of training, index into `NO_TRAINING`, or -1: int64 [n].

    what: index into `CUTS`, int32 [n]. What ends first may have begun before the first cut, at a step's begin: then it
    is the loading of data.
    """
    changes = np.isin(what, (*_INTERRUPTIONS, _RESUME))
    latest = np.maximum.accumulate(np.where(changes, np.arange(len(what)), ABSENT))
    begun = np.where(np.isin(what, _INTERRUPTIONS), what - _INTERRUPTIONS[0], ABSENT)
    first = np.flatnonzero(changes)[:1]
    before = NO_TRAINING.index("data") if len(first) and what[first[0]] == _RESUME else ABSENT
    return np.where(latest == ABSENT, before, begun[latest]).astype(np.int64)
