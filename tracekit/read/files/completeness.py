"""How much of a recording a trace file has, which decides between two files of the same window.

Nothing is decoded: the text is searched for a few words. It is read, and inflated, as a whole, so ask only about files
of which one is to be chosen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tracekit.errors import InputError
from tracekit.read.decode.event_array import tail_keys_text
from tracekit.read.files.inflate import KEYS_BEHIND_BYTES, TextChunks
from tracekit.read.files.storage import TracePath

__all__ = ["Contents", "contents_of"]

_PHASE = b'"ph"'  # each event has it once
_PROFILER = b'"PyTorch Profiler ('  # Kineto's last span: each recording has it once
_STEP = b'"ProfilerStep#'
_STEP_NUMBER = re.compile(rb'"ProfilerStep#([0-9]{1,18})"')
_LONGEST_WORD_BYTES = 40


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What the text of a file shows of the recording in it.

    Attributes:
        is_whole: The array of events is closed and, in a packed file, nothing is missing or damaged.
        recordings: How many recordings of Kineto are joined in it; 0 if another profiler wrote it, or it is filtered.
        steps: The numbers of the profiler's steps.
        events: How many there are.
    """

    is_whole: bool = False
    recordings: int = 0
    steps: frozenset[int] = frozenset()
    events: int = 0


def contents_of(path: TracePath) -> Contents:
    """Return what a file has; nothing if it is gone or cannot be read."""
    chunks = TextChunks(path)
    tail = begun = b""
    recordings = events = 0
    steps: set[int] = set()
    try:
        for chunk in chunks:
            text = begun + chunk  # a word may go on in the next chunk
            events += text.count(_PHASE) - begun.count(_PHASE)
            recordings += text.count(_PROFILER) - begun.count(_PROFILER)
            steps.update(_steps_in(text))
            begun = text[-_LONGEST_WORD_BYTES:]
            tail = (tail + chunk)[-KEYS_BEHIND_BYTES:]
    except InputError:
        return Contents()
    is_whole = chunks.cut_off is None and _is_closed(tail)
    return Contents(is_whole=is_whole, recordings=recordings, steps=frozenset(steps), events=events)


def _steps_in(text: bytes) -> set[int]:
    steps = set()
    place = text.find(_STEP)
    while place >= 0:  # a search for the plain bytes is many times faster than one for the pattern
        if match := _STEP_NUMBER.match(text, place):
            steps.add(int(match[1]))
        place = text.find(_STEP, place + 1)
    return steps


def _is_closed(tail: bytes) -> bool:
    """Return whether a text that ends like this closes its array of events: `}]`, `}]}`, or with keys behind the `]`.

    A bracket alone shows nothing. Arguments of an event end in one too, but hardly in an array of objects.
    """
    events = tail.rstrip().removesuffix(b"}").rstrip()
    if events.endswith(b"]") and events[:-1].rstrip(b", \t\r\n").endswith(b"}"):
        return True
    return tail_keys_text(tail) != b"{}"
