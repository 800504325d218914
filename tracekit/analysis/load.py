"""From paths to a `Run`: find the files, summarise each rank in a worker, match the ranks.

A rank that cannot be used gives a note and counts as missing; the other ranks are analysed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tracekit.analysis.events.communication_rules import CommunicationRule
from tracekit.analysis.loading.assembly import run_of_counted_steps
from tracekit.analysis.loading.rank_reader import RankReader
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.pool.workers import Progress
from tracekit.model.names.pseudonyms import Pseudonyms
from tracekit.model.run import Run
from tracekit.model.summary import RankFailure, RankSummary
from tracekit.read.cache.spool import DecodedSpool
from tracekit.read.cache.store import CacheChoice, chosen_cache
from tracekit.read.decode.decoder import chosen_decoder
from tracekit.read.files.discover import discover
from tracekit.read.files.foreign_jobs import started_far_apart
from tracekit.read.files.identify import identify

__all__ = ["Paths", "load"]

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A folder, a glob or a file, local or a URL such as s3://bucket/run; or several of them."""


def load(
    paths: Paths,
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks: Iterable[int] | None = None,
    options: SummaryOptions | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
    cache: CacheChoice = False,
    spool: DecodedSpool | None = None,
    communication_rules: Iterable[CommunicationRule | str] = (),
    anonymize: bool | Pseudonyms = False,
) -> Run:
    """Return the newest run below `paths`, or the given `run` and `attempt`. Each rank is read by this process or a
    worker.

    `cache=True` stores the summary of each rank for the next time. The place is given by `TRACEKIT_CACHE`; without it,
    it is a folder `.tracekit-cache` beside a trace that the probe wrote, and the user's cache folder for other traces.
    If `cache` is a path, the folder is there.

    `jobs=None` starts as many workers as there are processors, and none for a small run. Workers import the main module
    again, so a script with workers needs the guard `if __name__ == "__main__":`. A call whose worker dies is tried
    again. If that worker dies too, only its rank is lost. Workers put what they decode into the `spool`.

    A first step of a window that is longer than the others is left out of everything, and a note says so; steps that
    the `options` select are all kept.

    `communication_rules` say of kernels, by their names, that they communicate, and how (`^my_ring=all_to_all`), or
    that they do not (`^my_cast=compute`). They are tried before those of the `options`.

    `anonymize` replaces the names of hosts, paths, modules, groups and annotations in all that is made of the run. The
    cache is not used then, and each file is read twice to number the names; runs to compare share `Pseudonyms`.

    Raises InputError when there is no usable trace, or none of the selected `ranks` or steps is there. Raises
    UsageError when there is no such `run` or `attempt`, when a rule is none, or when $TRACEKIT_NATIVE asks for a
    decoder that there is not.
    """
    chosen_decoder()  # raises now if the choice is wrong, and not once per rank
    path_texts = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    if anonymize is True:
        from tracekit.analysis.loading.anonymity import RunPaths, pseudonyms_of

        meant = RunPaths(paths=path_texts, run=run, attempt=attempt)
        anonymize = pseudonyms_of([meant], jobs=jobs, progress=progress)
    pseudonyms = anonymize or None
    reader = RankReader(
        paths=path_texts,
        selected=None if ranks is None else frozenset(ranks),
        cache=None if pseudonyms is not None else chosen_cache(cache),
        spool=spool,
        jobs=jobs,
        progress=progress,
    )
    summary_options = replace((options or SummaryOptions()).with_rules(communication_rules), pseudonyms=pseudonyms)

    steps = summary_options.steps
    leaves_out_first = steps.is_everything and not steps.whole
    settled = replace(summary_options, settled=leaves_out_first)
    discovery = discover(path_texts, run=run, attempt=attempt)
    outcomes = reader.read(discovery, settled)
    if discovery.is_provisional and started_far_apart(_first_events_ns(outcomes)):
        discovery = discover(path_texts, run=run, attempt=attempt, identify_file=identify)
        outcomes = reader.read(discovery, settled)
    loaded = run_of_counted_steps(reader, discovery, outcomes, summary_options, leaves_out_first=leaves_out_first)
    if reader.cache is not None:
        reader.cache.prune()
    loaded = replace(
        loaded,
        sections=summary_options.sections,
        communication_rules=tuple(rule.text for rule in summary_options.rules if not rule.source),
    )
    if pseudonyms is None:
        return loaded
    from tracekit.analysis.loading.anonymity import anonymous_run

    return anonymous_run(loaded, pseudonyms)


def _first_events_ns(outcomes: Iterable[RankSummary | RankFailure]) -> list[int]:
    ranks = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    return [rank.first_event_ns for rank in ranks if rank.first_event_ns is not None]
