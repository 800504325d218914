"""Which file counts where several say that they are of one rank, which only reading them whole may show."""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.analysis.per_rank.summarize import RankFailure
from tracekit.model.notes import Note
from tracekit.model.summary import RankSummary

__all__ = ["without_duplicates"]


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


def _duplicate_note(summary: RankSummary) -> Note:
    file = summary.file_name
    text = f"rank {summary.rank}: {file}: another file is of rank {summary.rank} too; left out"
    return Note(kind="duplicate_rank", severity="error", rank=summary.rank, file=file, text=text)
