"""Summaries of ranks that are in the cache, and the calls that make those which are not.

Comes in: a call of `summarize` a rank. Goes out: the summaries that were kept; the others' calls, for workers, which
keep what they make. A rank that failed is never kept, nor one of which a file was left out: the reason may have gone by
the next time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from tracekit.analysis.summarize import RankFailure, SummaryOptions, summarize
from tracekit.model.summary import RankSummary
from tracekit.read.cache import Cache, Entry, clean, entry_for, fetch, keep, make_folder, may_be_believed
from tracekit.read.code_version import IMPORTED_CODE, is_as_imported
from tracekit.read.codec import CodecError, Shared, pack, unpack
from tracekit.read.kineto import DECODER

__all__ = ["KeptSummaries", "Order", "look_up", "summarize_and_keep"]

Outcome = RankSummary | RankFailure


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a worker does: `summarize(rank, paths, options)`, and keep the result in `entry` if it runs that `code`."""

    rank: int
    paths: tuple[Path, ...]
    options: SummaryOptions
    entry: Entry | None = None
    code: str | None = None


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """`positions`: of the summary's files among those that were asked for, whose folder may have been moved since."""

    positions: tuple[int, ...]
    summary: RankSummary


@dataclass(frozen=True, kw_only=True)
class KeptSummaries:
    """`found`: summaries by the position of their call. `missing`: arguments of `summarize_and_keep` for the others, in
    their order.
    """

    missing: list[tuple[Order]]
    found: Mapping[int, RankSummary] = field(default_factory=dict)

    def completed_by(self, made: Sequence[Outcome]) -> list[Outcome]:
        """One outcome a call, in their order; `made` are those of `missing`."""
        for folder in {order.entry.path.parent for (order,) in self.missing if order.entry is not None}:
            clean(folder)
        rest = iter(made)
        positions = range(len(self.found) + len(made))
        return [self.found[position] if position in self.found else next(rest) for position in positions]


def look_up(calls: Sequence[tuple[int, tuple[Path, ...], SummaryOptions]], cache: Cache | None) -> KeptSummaries:
    """Look for each call's summary in `cache`; where there is none, prepare its folder."""
    if cache is None or not is_as_imported():
        orders = [Order(rank=rank, paths=paths, options=options) for rank, paths, options in calls]
        return KeptSummaries(missing=[(order,) for order in orders])
    found: dict[int, RankSummary] = {}
    missing: list[tuple[Order]] = []
    usable: dict[Path, bool] = {}
    shared: Shared = {}
    for position, (rank, paths, options) in enumerate(calls):
        entry = entry_for(cache, paths, (IMPORTED_CODE, DECODER, np.__version__, msgspec.__version__, rank, options))
        if entry is not None:
            folder = entry.path.parent
            if folder not in usable:
                usable[folder] = may_be_believed(folder)
            summary = _kept_summary(entry, shared) if usable[folder] else None
            if summary is not None:
                found[position] = summary
                continue
            usable[folder] = usable[folder] or make_folder(entry, cache)
            entry = entry if usable[folder] else None
        missing.append((Order(rank=rank, paths=paths, options=options, entry=entry, code=IMPORTED_CODE),))
    return KeptSummaries(found=found, missing=missing)


def summarize_and_keep(order: Order) -> Outcome:
    """`summarize`, in a worker."""
    outcome = summarize(order.rank, order.paths, order.options)
    if order.entry is None or order.code != IMPORTED_CODE or not isinstance(outcome, RankSummary):
        return outcome
    places = {str(path): position for position, path in enumerate(order.paths)}
    positions = tuple(places[file] for file in outcome.files if file in places)
    if len(positions) == len(order.paths):
        try:
            keep(order.entry, pack(_Kept(positions=positions, summary=replace(outcome, files=()))))
        except CodecError:
            return outcome
    return outcome


def _kept_summary(entry: Entry, shared: Shared) -> RankSummary | None:
    data = fetch(entry)
    if data is None:
        return None
    try:
        kept = unpack(data, _Kept, shared)
    except CodecError:
        return None
    if sorted(kept.positions) != list(range(len(entry.files))):
        return None
    return replace(kept.summary, files=tuple(str(entry.files[position]) for position in kept.positions))
