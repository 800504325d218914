"""Which of several files of the same window of a rank is used: the one with most in it, of equal ones the newest.

A job that writes a window again adds to it or writes the same. What has less was cut off, trimmed or filtered, however
new it is.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from tracekit.model.notes import Note
from tracekit.read.files.completeness import Contents, contents_of
from tracekit.read.files.identify import TraceFile, rank_in_name
from tracekit.read.files.storage import version_of

__all__ = ["choose_file", "precedence"]


@dataclass(frozen=True, kw_only=True, order=True)
class _Merit:
    """What decides between files of one window. The first field that differs does, and the larger value is better.

    Attributes:
        is_eligible: The file is not named after another rank.
        is_one_recording: It does not join recordings of several processes.
        is_whole: It was written to its end.
        is_finished: The job did not die before it gave the file its name.
        usual_steps: How many of its steps other ranks have too, where the files number the same steps differently.
        steps: How many it has.
        events: How many it has.
        precedence: Its place in the order of time.
    """

    is_eligible: bool
    is_one_recording: bool
    is_whole: bool
    is_finished: bool
    usual_steps: int
    steps: int
    events: int
    precedence: int


_WHY_WORSE = {
    "is_eligible": "named after another rank",
    "is_one_recording": "joined from several recordings",
    "is_whole": "not written to its end",
    "is_finished": "not finished",
    "usual_steps": "with other step numbers than the other ranks",
    "steps": "with fewer steps",
    "events": "with fewer events",
}


def precedence(file: TraceFile) -> tuple[bool, bool, int, str]:
    """Return what decides between equal files of one window: no `.tmp`, not named after another rank, newer."""
    is_named_so = not _is_named_after_another_rank(file)
    return not file.unfinished, is_named_so, version_of(file.path).changed_ns or 0, str(file.path)


def choose_file(
    files: Sequence[TraceFile], steps_of_others: Callable[[], Collection[int]]
) -> tuple[TraceFile, list[Note]]:
    """Return which file of one window of a rank to use, and a note about each of the others.

    files: In the order of `precedence`.
    steps_of_others: Returns the numbers of steps that other ranks have. It is called only if two files number the same
    steps differently.
    """
    if len(files) == 1:
        return files[0], []
    # Copies need not be looked into: that takes about as long as reading them.
    contents = [Contents()] * len(files) if _are_copies(files) else [contents_of(file.path) for file in files]
    are_renumbered = any(not (a <= b or b <= a) for a, b in combinations({one.steps for one in contents}, 2))
    usual = frozenset(steps_of_others()) if are_renumbered else frozenset()
    merits = [_merit(place, files, contents[place], usual) for place in range(len(files))]
    best = merits.index(max(merits))
    notes = [_replaced(files[place], files[best], merit, merits[best]) for place, merit in enumerate(merits)]
    return files[best], [note for place, note in enumerate(notes) if place != best]


def _are_copies(files: Sequence[TraceFile]) -> bool:
    """Return whether files on a disk have the same bytes."""
    paths = [file.path for file in files if isinstance(file.path, Path)]
    try:
        return len(paths) == len(files) and all(filecmp.cmp(paths[0], path, shallow=False) for path in paths[1:])
    except OSError:  # one of them cannot be read
        return False


def _is_named_after_another_rank(file: TraceFile) -> bool:
    return rank_in_name(file.path) not in (None, file.rank)


def _merit(place: int, files: Sequence[TraceFile], contents: Contents, usual: frozenset[int]) -> _Merit:
    file = files[place]
    return _Merit(
        # A file that is named after another rank takes the place of none, even of one that is cut off.
        is_eligible=not _is_named_after_another_rank(file) or file is files[-1],
        is_one_recording=contents.recordings <= 1,
        is_whole=contents.is_whole,
        is_finished=not file.unfinished,
        usual_steps=len(contents.steps & usual),
        steps=len(contents.steps),
        events=contents.events,
        precedence=place,
    )


def _replaced(file: TraceFile, by: TraceFile, merit: _Merit, best: _Merit) -> Note:
    kind = "unfinished_tmp" if file.unfinished else "duplicate_rank"
    why = next((why for field, why in _WHY_WORSE.items() if getattr(merit, field) != getattr(best, field)), "")
    other = f"another file of the same window, {why}" if why else "another file of the same window"
    text = f"rank {file.rank}: {file.path.name}: {other}; {by.path.name} is used"
    return Note(kind=kind, severity="info", rank=file.rank, file=file.path.name, text=text)
