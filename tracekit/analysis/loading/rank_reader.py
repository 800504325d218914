"""Reads the ranks of a run: from the cache, else from their files, in this process or by workers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summary_cache import look_up, summarize_and_store
from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.errors import InputError
from tracekit.model.notes import Note
from tracekit.model.ranks import format_ranges
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.cache.store import Cache
from tracekit.read.files.discover import Discovery
from tracekit.read.files.storage import TracePath, version_of

__all__ = ["SMALL_RUN_BYTES", "RankReader", "size_bytes_of"]

SMALL_RUN_BYTES = 4 << 20
"""Compressed: for less, starting workers costs more than it saves."""


@dataclass(frozen=True, kw_only=True)
class RankReader:
    """How ranks are read; `load` describes the attributes.

    Attributes:
        paths: as errors name them.
        selected: the ranks to read; None: all.
    """

    paths: Sequence[str]
    selected: frozenset[int] | None
    cache: Cache | None
    spool: DecodedSpool | None
    jobs: int | None
    progress: Progress | None

    def ranks_of(self, discovery: Discovery) -> list[int]:
        """Return the ranks to read, in the order in which `read` returns them."""
        return [rank for rank in discovery.chosen.ranks if self.selected is None or rank in self.selected]

    def read(
        self, discovery: Discovery, options: SummaryOptions, ranks: Collection[int] | None = None
    ) -> list[RankSummary | RankFailure]:
        """Return the outcome of each rank. Raises InputError when none of the selected ranks is there.

        ranks: some of `ranks_of`; None: all of them.
        """
        files = {
            rank: tuple(window.path.absolute() for window in discovery.chosen.ranks[rank])
            for rank in self.ranks_of(discovery)
            if ranks is None or rank in ranks
        }
        if not files:
            present = format_ranges(discovery.chosen.ranks)
            raise InputError(
                f"{' '.join(self.paths)}: none of the selected ranks is there", hint=f"there are ranks {present}"
            )
        lookup = look_up([(rank, windows, options) for rank, windows in files.items()], self.cache, self.spool)
        size_bytes = size_bytes_of(task.paths for (task,) in lookup.missing)
        is_small = self.jobs is None and size_bytes < SMALL_RUN_BYTES
        outcomes_of_missing = map_ranks(
            summarize_and_store,
            lookup.missing,
            jobs=1 if is_small else self.jobs,
            progress=self.progress,
        )
        return lookup.complete(
            [
                _worker_died(task.rank, task.paths) if result is LOST else result
                for result, (task,) in zip(outcomes_of_missing, lookup.missing, strict=True)
            ]
        )


def size_bytes_of(files: Iterable[Sequence[TracePath]]) -> int:
    """Return the size of the files of ranks, as they lie there."""
    return sum(version_of(path).size_bytes for windows in files for path in windows)


def _worker_died(rank: int, windows: Sequence[TracePath]) -> RankFailure:
    name = windows[0].name
    text = f"rank {rank}: {name}: the worker that read it died, twice; left out (out of memory? try --jobs 1)"
    return RankFailure(rank=rank, notes=(Note(kind="worker_died", severity="error", rank=rank, file=name, text=text),))
