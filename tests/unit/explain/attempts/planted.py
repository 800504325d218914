"""Progress files of the ranks of a job, with planted times: seconds after a common start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tracekit.capture.output.paths import progress_file
from tracekit.model.metadata import Progress, ProgressHeader
from tracekit.model.metadata.job import FILE_BYTES, HEADER_BYTES, pack_entry, pack_header

START_NS = 1_790_000_000 * 10**9


def ns(seconds: float) -> int:
    """The wall clock so many seconds after the start of the job."""
    return START_NS + round(seconds * 1e9)


@dataclass(frozen=True, kw_only=True)
class Rank:
    """How a rank of an attempt ended: in or after the last of so many calls; silent unless said otherwise."""

    calls: int
    raised_s: float | None = None
    error: str | None = None
    ended_s: float | None = None
    ending: str | None = None
    agent: str = "a"
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class PlantedAttempt:
    """An attempt whose steps take `step_s`, the first of which begins at `first_call_s`."""

    ranks: Sequence[Rank]
    start_s: float
    joined_s: float | None
    first_call_s: float
    step_s: float = 0.5
    first_step: int = 0

    def progress(self, attempt: int) -> list[Progress]:
        """The progress files of its ranks. Rank r starts, joins and begins r ms after rank 0."""
        return [self._of_rank(attempt, number, rank) for number, rank in enumerate(self.ranks)]

    def write(self, root: Path, attempt: int) -> None:
        """Write the progress files of its ranks where the probe would."""
        for progress in self.progress(attempt):
            file = progress_file(root, "run-1", attempt, progress.header.rank, len(self.ranks))
            file.parent.mkdir(parents=True, exist_ok=True)
            content = bytearray(FILE_BYTES)
            content[:HEADER_BYTES] = pack_header(progress.header)
            for number, (call, time_ns) in enumerate(progress.calls):
                place, entry = pack_entry(number, call, time_ns)
                content[place : place + len(entry)] = entry
            file.write_bytes(content)

    def _of_rank(self, attempt: int, number: int, rank: Rank) -> Progress:
        late_s = number / 1000
        header = ProgressHeader(
            run_id="run-1",
            attempt=attempt,
            rank=number,
            world_size=len(self.ranks),
            pid=number + 1,
            host="a",
            host_id="a",
            elastic_id="myjob",
            agent=rank.agent,
            worker=f"{attempt}/{number}",
            restarts=rank.restarts,
            process_start_ns=ns(self.start_s + late_s),
            joined_ns=None if self.joined_s is None else ns(self.joined_s + late_s),
            first_call_ns=ns(self.first_call_s + late_s),
            first_step=self.first_step,
            first_step_source="optimizer" if self.first_step else "calls",
            raised_ns=None if rank.raised_s is None else ns(rank.raised_s),
            error=rank.error,
            ended_ns=None if rank.ended_s is None else ns(rank.ended_s),
            ending=rank.ending,
        )
        calls = [(call, ns(self.first_call_s + late_s + call * self.step_s)) for call in range(rank.calls)]
        return Progress(header=header, calls=tuple(calls[-256:]))
