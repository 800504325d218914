"""Which files count where several say that they are of one rank, or one is of no rank of the job.

Only reading them whole may show it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.model.notes import Note
from tracekit.model.summary import RankFailure, RankSummary

__all__ = ["without_duplicates", "without_files_of_no_rank"]


def without_duplicates(
    expected: Sequence[int], outcomes: Sequence[RankSummary | RankFailure]
) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which each rank has one: others of it become failures with a note.

    expected: the rank of which each outcome was to be, by what names and headers of the files say. An outcome of
    another rank gives way to one that was expected to be of that rank, else the first one stays.
    """
    pairs = list(zip(expected, outcomes, strict=True))
    as_expected = {rank for rank, outcome in pairs if isinstance(outcome, RankSummary) and outcome.rank == rank}
    kept: set[int] = set()
    result: list[RankSummary | RankFailure] = []
    for rank, outcome in pairs:
        if isinstance(outcome, RankFailure):
            result.append(outcome)
        elif outcome.rank in kept or (outcome.rank != rank and outcome.rank in as_expected):
            result.append(RankFailure(rank=rank, notes=(*outcome.notes, _duplicate_note(outcome))))
        else:
            kept.add(outcome.rank)
            result.append(outcome)
    return result


def without_files_of_no_rank(outcomes: Sequence[RankSummary | RankFailure]) -> list[RankSummary | RankFailure]:
    """Return the outcomes, of which those of no rank of the job become failures with a note.

    Nothing is known of such a file but a rank that the job does not have, such as of a merged trace or a launcher.
    """
    summaries = [outcome for outcome in outcomes if isinstance(outcome, RankSummary)]
    world_size = max((summary.world_size or 0 for summary in summaries if summary.is_measured), default=0)
    return [
        RankFailure(rank=outcome.rank, notes=(*outcome.notes, _no_rank_note(outcome, world_size)))
        if isinstance(outcome, RankSummary)
        and outcome.unmeasured is not None
        and outcome.world_size is None
        and 0 < world_size <= outcome.rank
        else outcome
        for outcome in outcomes
    ]


def _no_rank_note(summary: RankSummary, world_size: int) -> Note:
    file = summary.file_name
    text = f"rank {summary.rank}: {file}: the job has {world_size} ranks, and this file is of none of them; left out"
    return Note(kind="no_rank", severity="warning", rank=summary.rank, file=file, text=text)


def _duplicate_note(summary: RankSummary) -> Note:
    file = summary.file_name
    text = f"rank {summary.rank}: {file}: another file is of rank {summary.rank} too; left out"
    return Note(kind="duplicate_rank", severity="error", rank=summary.rank, file=file, text=text)
