"""Reads the ranks of a run: from the cache, else from their files, in this process or by workers.

Tasks compute and store the summaries that the cache has not. A failed rank is never stored, nor a rank with a file that
was left out: the reason may be gone next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from tracekit.errors import InputError
from tracekit.explain.sections import ALL_PARTS
from tracekit.limits import limits
from tracekit.loading.options import SummaryOptions
from tracekit.loading.summarize import summarize
from tracekit.loading.workers import LOST, Progress, map_ranks
from tracekit.model.notes import Note
from tracekit.model.run import format_ranges
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.read.cache.codec import CodecError, Shared, pack, unpack
from tracekit.read.cache.store import CODE_VERSION, Cache, Entry, store
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.read.files.discover import Discovery
from tracekit.read.files.storage import TracePath, version_of

SMALL_RUN_BYTES = 4 << 20
"""Compressed: for less, starting workers costs more than it saves."""

Outcome = RankSummary | RankFailure


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
        self,
        discovery: Discovery,
        options: SummaryOptions,
        ranks: Collection[int] | None = None,
        first_steps: Mapping[int, int] = MappingProxyType({}),
    ) -> list[RankSummary | RankFailure]:
        """Return the outcome of each rank. Raises InputError when none of the selected ranks is there.

        ranks: some of `ranks_of`; None: all of them.
        first_steps: the number of the first step of a rank, where that is not 0.
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
        calls = [
            (rank, windows, replace(options, first_step=first_steps.get(rank, 0))) for rank, windows in files.items()
        ]
        lookup = look_up(calls, self.cache, self.spool)
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
    return RankFailure(rank=rank, notes=(Note(id="worker-died", severity="error", rank=rank, file=name, text=text),))


@dataclass(frozen=True, kw_only=True)
class SummaryTask:
    """The arguments of `summarize` for one rank, and where to store the result.

    Attributes:
        entry: of the cache; None: the result is not stored.
        code: the version that the result must come from; a worker of another version does not store it.
    """

    rank: int
    paths: tuple[TracePath, ...]
    options: SummaryOptions
    entry: Entry | None = None
    code: str | None = None
    spool: DecodedSpool | None = None


@dataclass(frozen=True, kw_only=True)
class _CachedSummary:
    """A summary as it is stored in the cache.

    Attributes:
        positions: of its files among the files that were asked for. Their folder may have been moved since.
        summary: without files and parts.
        parts: names and packed values.
    """

    positions: tuple[int, ...]
    summary: RankSummary
    parts: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class CacheLookup:
    """What the cache has for a list of calls.

    Attributes:
        cached: summaries by the position of their call.
        missing: arguments of `summarize_and_store` for the other calls, in order.
    """

    cached: Mapping[int, RankSummary]
    missing: Sequence[tuple[SummaryTask]]

    def complete(self, computed: Sequence[Outcome]) -> list[Outcome]:
        """Return one outcome per call, in order. `computed` are the outcomes of `missing`."""
        next_computed = iter(computed)
        positions = range(len(self.cached) + len(computed))
        return [self.cached[position] if position in self.cached else next(next_computed) for position in positions]


def look_up(
    calls: Sequence[tuple[int, tuple[TracePath, ...], SummaryOptions]],
    cache: Cache | None,
    spool: DecodedSpool | None = None,
) -> CacheLookup:
    """Look for the summary of each call in the cache, and prepare the tasks for those that are missing."""
    cached: dict[int, RankSummary] = {}
    missing: list[tuple[SummaryTask]] = []
    shared: Shared = {}
    for position, (rank, paths, options) in enumerate(calls):
        task = SummaryTask(rank=rank, paths=paths, options=options, code=CODE_VERSION, spool=spool)
        if cache is not None:
            # A summary for all sections also serves for some of them.
            choices = dict.fromkeys((options, replace(options, sections=None)))
            entries = [cache.entry_for(paths, (chosen_decoder(), limits(), rank, choice)) for choice in choices]
            summary = _first_cached(cache, entries, paths, shared)
            if summary is not None:
                cached[position] = summary
                continue
            if entries[0] is not None and cache.prepare(entries[0]):
                task = replace(task, entry=entries[0])
        missing.append((task,))
    return CacheLookup(cached=cached, missing=missing)


def summarize_and_store(task: SummaryTask) -> Outcome:
    """Return the outcome of `summarize`, and store it in the cache. Runs in a worker."""
    outcome = summarize(task.rank, task.paths, task.options, task.spool)
    if task.entry is None or task.code != CODE_VERSION or not isinstance(outcome, RankSummary):
        return outcome
    places = {str(path): position for position, path in enumerate(task.paths)}
    positions = tuple(places[file] for file in outcome.files if file in places)
    if len(positions) == len(task.paths):
        with suppress(CodecError):
            parts = tuple((name, pack(value, ALL_PARTS[name].type)) for name, value in outcome.parts.items())
            summary = replace(outcome, files=(), parts={})
            store(task.entry, pack(_CachedSummary(positions=positions, summary=summary, parts=parts)))
    return outcome


def _first_cached(
    cache: Cache, entries: Sequence[Entry | None], paths: Sequence[TracePath], shared: Shared
) -> RankSummary | None:
    """Return the first of the entries that the cache has and that can be read; None without any."""
    for entry in entries:
        data = None if entry is None else cache.fetch(entry)
        summary = None if data is None else _unpack_summary(data, paths, shared)
        if summary is not None:
            return summary
    return None


def _unpack_summary(data: bytes, paths: Sequence[TracePath], shared: Shared) -> RankSummary | None:
    """Return the summary stored in `data`, with `paths` as its files; None if it does not fit."""
    try:
        entry: _CachedSummary = unpack(data, _CachedSummary, shared)
        parts = {name: unpack(value, ALL_PARTS[name].type, shared) for name, value in entry.parts}
    except (CodecError, KeyError):
        return None
    if sorted(entry.positions) != list(range(len(paths))):
        return None
    return replace(entry.summary, files=tuple(str(paths[position]) for position in entry.positions), parts=parts)
