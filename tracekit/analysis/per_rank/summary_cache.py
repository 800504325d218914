"""Summaries of ranks that are in the cache, and the calls that make those which are not.

Comes in: a call of `summarize` a rank. Goes out: the summaries that were kept; the others' calls, for workers, which
keep what they make. A rank that failed is never kept, nor one of which a file was left out: the reason may have gone by
the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import RankFailure, summarize
from tracekit.analysis.sections import ALL_PARTS
from tracekit.model.summary import RankSummary
from tracekit.read.cache.code_version import CODE_VERSION
from tracekit.read.cache.codec import CodecError, Shared, pack, unpack
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.cache.store import Cache, Entry, store
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.read.files.storage import TracePath

__all__ = ["KeptSummaries", "Order", "look_up", "summarize_and_keep"]

Outcome = RankSummary | RankFailure


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker does: `summarize(rank, paths, options, spool)`, and keep the result in `entry` if it runs that
    `code`."""

    rank: int
    paths: tuple[TracePath, ...]
    options: SummaryOptions
    entry: Entry | None = None
    code: str | None = None
    spool: DecodedSpool | None = None


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A summary as it lies in the cache.

    Attributes:
        positions: of its files among those that were asked for, whose folder may have been moved since.
        summary: without its files and parts.
        parts: names and packed values.
    """

    positions: tuple[int, ...]
    summary: RankSummary
    parts: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class KeptSummaries:
    """`found`: summaries by the position of their call. `missing`: arguments of `summarize_and_keep` for the others, in
    their order.
    """

    found: Mapping[int, RankSummary]
    missing: Sequence[tuple[Order]]

    def completed_by(self, made: Sequence[Outcome]) -> list[Outcome]:
        """One outcome a call, in their order; `made` are those of `missing`."""
        rest = iter(made)
        positions = range(len(self.found) + len(made))
        return [self.found[position] if position in self.found else next(rest) for position in positions]


def look_up(
    calls: Sequence[tuple[int, tuple[TracePath, ...], SummaryOptions]],
    cache: Cache | None,
    spool: DecodedSpool | None = None,
) -> KeptSummaries:
    """Look for each call's summary in `cache`; where there is none, prepare to keep it, and the decoded trace on the
    `spool`."""
    found: dict[int, RankSummary] = {}
    missing: list[tuple[Order]] = []
    shared: Shared = {}
    for position, (rank, paths, options) in enumerate(calls):
        order = Order(rank=rank, paths=paths, options=options, code=CODE_VERSION, spool=spool)
        if cache is not None:
            # What was made for all sections serves those that are wanted.
            choices = dict.fromkeys((options, replace(options, sections=None)))
            entries = [cache.entry_for(paths, (chosen_decoder(), rank, choice)) for choice in choices]
            summary = _first_kept(cache, entries, paths, shared)
            if summary is not None:
                found[position] = summary
                continue
            if entries[0] is not None and cache.prepare(entries[0]):
                order = replace(order, entry=entries[0])
        missing.append((order,))
    return KeptSummaries(found=found, missing=missing)


def summarize_and_keep(order: Order) -> Outcome:
    """`summarize`, in a worker."""
    outcome = summarize(order.rank, order.paths, order.options, order.spool)
    if order.entry is None or order.code != CODE_VERSION or not isinstance(outcome, RankSummary):
        return outcome
    places = {str(path): position for position, path in enumerate(order.paths)}
    positions = tuple(places[file] for file in outcome.files if file in places)
    if len(positions) == len(order.paths):
        with suppress(CodecError):
            parts = tuple((name, pack(value, ALL_PARTS[name].type)) for name, value in outcome.parts.items())
            summary = replace(outcome, files=(), parts={})
            store(order.entry, pack(_Kept(positions=positions, summary=summary, parts=parts)))
    return outcome


def _first_kept(
    cache: Cache, entries: Sequence[Entry | None], paths: Sequence[TracePath], shared: Shared
) -> RankSummary | None:
    for entry in entries:
        data = None if entry is None else cache.fetch(entry)
        summary = None if data is None else _kept_summary(data, paths, shared)
        if summary is not None:
            return summary
    return None


def _kept_summary(data: bytes, paths: Sequence[TracePath], shared: Shared) -> RankSummary | None:
    try:
        kept: _Kept = unpack(data, _Kept, shared)
        parts = {name: unpack(value, ALL_PARTS[name].type, shared) for name, value in kept.parts}
    except (CodecError, KeyError):
        return None
    if sorted(kept.positions) != list(range(len(paths))):
        return None
    return replace(kept.summary, files=tuple(str(paths[position]) for position in kept.positions), parts=parts)
