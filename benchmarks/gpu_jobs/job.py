"""From a specification to a simulated job: its traces and its truth."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.gpu_jobs.cluster import FinishedJob, TrainingLoop, run_job
from benchmarks.gpu_jobs.kineto import document, renumbered
from benchmarks.gpu_jobs.measure import truth_of
from benchmarks.gpu_jobs.spec import JobSpec
from benchmarks.gpu_jobs.truth import Truth

if TYPE_CHECKING:
    from tracekit.model.run import Run
    from tracekit.report.report import Report


_encoder = msgspec.json.Encoder(decimal_format="number")


@dataclass(frozen=True)
class SimulatedJob:
    """A job that has run."""

    spec: JobSpec
    truth: Truth
    finished: FinishedJob = field(repr=False)

    @cached_property
    def _documents(self) -> dict[int, dict[str, Any]]:
        missing = self.spec.missing
        lost = missing.ranks if missing is not None and missing.files else ()
        return {rank: document(self.finished, rank) for rank in range(self.spec.ranks) if rank not in lost}

    def documents(self) -> dict[int, dict[str, Any]]:
        """Return a Chrome trace document a rank, as `torch.profiler` writes it: without tracekit's metadata."""
        return self._documents

    def traces(self, numbers: Sequence[int] | None = None) -> dict[int, bytes]:
        """Return the content of each rank's file, not compressed. With `numbers` rank i is written as `numbers[i]`."""
        documents = self.documents()
        if numbers is not None:
            documents = {numbers[rank]: renumbered(trace, numbers) for rank, trace in documents.items()}
        return {rank: _encoder.encode(trace) for rank, trace in documents.items()}

    def write(self, folder: Path, *, compressed: bool = True, numbers: Sequence[int] | None = None) -> Path:
        """Write a trace a rank into a folder, and return the folder. `numbers` are those of `traces`."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank, content in self.traces(numbers).items():
            if compressed:
                (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(content, 1, mtime=0))
            else:
                (folder / f"rank{rank}.json").write_bytes(content)
        return folder

    def run(self, only: str | Iterable[str] | None = None) -> Run:
        """Return what tracekit loads from the job's traces, without writing them to files."""
        from benchmarks.gpu_jobs.analysed import run_of

        return run_of(self.traces(), only)

    def report(self, only: str | Iterable[str] | None = None) -> Report:
        """Return tracekit's report on the job's traces, without writing them to files."""
        from benchmarks.gpu_jobs.analysed import report_of

        return report_of(self.traces(), only)


def simulate(spec: JobSpec, train: TrainingLoop | None = None) -> SimulatedJob:
    """Run a job, and run it again without its defect to know what that costs.

    `train` is the loop of each rank in place of the one of the job's family; `strategies/` holds examples.
    """
    job = run_job(spec, train)
    without_defect = job if spec.defect is None else run_job(replace(spec, defect=None), train)
    return SimulatedJob(spec, truth_of(job, without_defect), job)
