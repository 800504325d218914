"""A simulated job and what tracekit says of it: what every check is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.gpu_jobs import JobSpec, RankStep, SimulatedJob, Truth
from benchmarks.gpu_jobs.kineto import BASE_NS, ORIGIN_NS
from tracekit.model.run import Run
from tracekit.report.report import Report

_PCIE_BYTES_PER_NS = 12.0  # of 16 lanes of the third generation (NCCL, src/graph/topo.h, PCI_BW)
_JUMP_NS = 100_000  # clocks do not drift by as much in a few steps


@dataclass
class Evidence:
    """A job and the function that analyses it.

    The report is made when the first check reads it. If that fails, each check that reads it fails with the same error.
    """

    job: SimulatedJob
    analyze: Callable[[SimulatedJob], Report]
    _report: Report | None = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)

    @property
    def report(self) -> Report:
        if self._error is not None:
            raise self._error
        if self._report is None:
            try:
                self._report = self.analyze(self.job)
            except Exception as error:
                self._error = error
                raise
        return self._report

    @property
    def run(self) -> Run:
        return self.report.run

    @property
    def spec(self) -> JobSpec:
        return self.job.spec

    @property
    def truth(self) -> Truth:
        return self.job.truth

    @property
    def edge_cannot_be_known(self) -> bool:
        """Return whether nothing in the traces tells that the planted edge is slow.

        That takes an edge without another one to compare it with: no other two ranks exchange messages. If files do not
        name hosts, it may be a network of any speed. If they do, it is within a host, and messages that are as fast as
        PCIe carries them are usual on many hosts.
        """
        messages = self.truth.messages
        if self.spec.defect is None or self.spec.defect.cause != "slow_edge":
            return False
        if len({frozenset((message.source, message.destination)) for message in messages}) != 1:
            return False
        names_hosts = self.spec.sequence_numbers
        size_bytes, took_ns = sum(m.size_bytes for m in messages), sum(m.transfer_ns for m in messages)
        return not names_hosts or size_bytes >= _PCIE_BYTES_PER_NS * took_ns

    def shown_ns(self, rank: int, true_ns: int) -> int:
        """Return what the clock of a rank's machine shows in its trace at a true time."""
        duration_ns = self.job.finished.duration_ns
        ahead_ns = self.spec.clocks.error_ns(self.spec.host_of(rank), true_ns, duration_ns)
        return BASE_NS + ORIGIN_NS + true_ns + round(ahead_ns)

    def jumps_near(self, step: RankStep) -> bool:
        """Return whether the clock of the step's rank jumps in it, or in the steps beside it.

        Of a clock that is set back, a trace does not tell which of two records is the earlier one. So it does not tell
        what was launched before a step began.
        """
        length_ns = step.end_ns - step.start_ns
        return self.clock_change_ns(step.rank, step.start_ns - length_ns, step.end_ns + length_ns) > _JUMP_NS

    def clock_change_ns(self, rank: int, start_ns: int | None = None, end_ns: int | None = None) -> int:
        """Return by how much a rank's clock drifts and jumps between two true times, by default in the whole job.

        A time that a trace shows may be off by as much.
        """
        start_ns = 0 if start_ns is None else start_ns
        end_ns = self.job.finished.duration_ns if end_ns is None else end_ns
        return abs(self.shown_ns(rank, end_ns) - self.shown_ns(rank, start_ns) - (end_ns - start_ns))
