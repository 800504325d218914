"""Which pseudonyms the names of a run have: all names are collected before the run is loaded.

Runs that are compared share their pseudonyms. Workers read each of their files one more time, for the names in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tracekit.analysis.pool.workers import LOST, Progress, map_ranks
from tracekit.errors import UsageError
from tracekit.model.metadata import Progress as ProgressFile
from tracekit.model.names.pseudonyms import KindOfName, NameCollector, Pseudonyms
from tracekit.model.run import Run
from tracekit.read.decode.anonymous.metadata import anonymous_progress, anonymous_run_id
from tracekit.read.decode.decoder import decode
from tracekit.read.files.discover import Discovery, discover
from tracekit.read.files.storage import TracePath

__all__ = ["RunPaths", "anonymous_run", "pseudonyms_of"]


@dataclass(frozen=True, kw_only=True)
class RunPaths:
    """Which run is meant, as for `load`."""

    paths: Sequence[str]
    run: str | None = None
    attempt: int | None = None


def pseudonyms_of(
    runs: Iterable[RunPaths],
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
) -> Pseudonyms:
    """Return pseudonyms for all names in some runs. Raises what `discover` raises."""
    collector = NameCollector()
    runs = list(runs)
    calls = []
    for chosen in runs:
        found = _discover(chosen)
        calls += [(tuple(window.path.absolute() for window in files),) for files in found.chosen.ranks.values()]
        for note in found.notes:
            collector.name("file", note.file or "")
        for each in (found.chosen, *found.others):
            anonymous_run_id(each.run_id or "", collector)
        for file in found.progress:
            anonymous_progress(file, collector)
    names: dict[KindOfName, set[str]] = defaultdict(set, collector.names)
    for of_rank in map_ranks(names_in_files, calls, jobs=jobs, progress=progress):
        if of_rank is not LOST:  # loading the rank will say so
            for kind, found_names in of_rank.items():
                names[kind] |= found_names
    return Pseudonyms.of_names(names, [chosen.paths for chosen in runs])


def _discover(chosen: RunPaths) -> Discovery:
    """Return what `discover` does. If no run has the wanted id, the error does not list the ids that there are."""
    try:
        return discover(chosen.paths, run=chosen.run, attempt=chosen.attempt)
    except UsageError as error:
        raise UsageError(error.message, hint="tracekit info without --anonymize shows the ids of runs") from None


def anonymous_run(run: Run, pseudonyms: Pseudonyms) -> Run:
    """Return a run whose traces were read with pseudonyms, with pseudonyms for everything else that is known of it.

    Only `files` of the ranks are as they are, to be read again.
    """
    progress: list[ProgressFile] = [anonymous_progress(file, pseudonyms) for file in run.progress]
    others = (
        replace(other, run_id=None if other.run_id is None else anonymous_run_id(other.run_id, pseudonyms))
        for other in run.other_runs
    )
    return replace(
        run,
        paths=tuple(pseudonyms.name("run", path) for path in run.paths),
        run_id=None if run.run_id is None else anonymous_run_id(run.run_id, pseudonyms),
        ranks=tuple(replace(rank, notes=tuple(map(pseudonyms.note, rank.notes))) for rank in run.ranks),
        other_runs=tuple(others),
        notes=tuple(map(pseudonyms.note, run.notes)),
        progress=tuple(progress),
        pseudonyms=pseudonyms,
    )


def names_in_files(paths: Sequence[TracePath]) -> Mapping[KindOfName, frozenset[str]]:
    """Return the names in these files, by kind. A file that cannot be used has none: reading it again says why."""
    collector = NameCollector()
    for path in paths:
        collector.name("file", path.name)
        try:
            decode(path, extra_args=True, namer=collector)
        except Exception:  # noqa: S112
            continue
    return {kind: frozenset(names) for kind, names in collector.names.items()}
