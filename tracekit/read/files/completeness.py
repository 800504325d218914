"""Whether a trace file was written to its end, which decides between two files of the same window.

Nothing is decoded. A packed file is inflated as a whole, so ask only about files of which one is to be chosen.
"""

from __future__ import annotations

from tracekit.errors import InputError
from tracekit.read.decode.event_array import tail_keys_text
from tracekit.read.files.inflate import KEYS_BEHIND_BYTES, TextChunks, last_bytes
from tracekit.read.files.storage import TracePath

__all__ = ["is_complete"]


def is_complete(path: TracePath) -> bool:
    """Return whether the array of events is closed and, in a packed file, nothing is missing or damaged."""
    chunks = TextChunks(path)
    stream = iter(chunks)
    try:
        tail = next(stream, b"")
        if not chunks.is_packed:
            return _is_closed(last_bytes(path, KEYS_BEHIND_BYTES))
        for chunk in stream:
            tail = (tail + chunk)[-KEYS_BEHIND_BYTES:]
    except InputError:  # it is gone or cannot be read
        return False
    return chunks.cut_off is None and _is_closed(tail)


def _is_closed(tail: bytes) -> bool:
    """Return whether a text that ends like this closes its array of events: `}]`, `}]}`, or with keys behind the `]`.

    A bracket alone shows nothing. Arguments of an event end in one too, but hardly in an array of objects.
    """
    events = tail.rstrip().removesuffix(b"}").rstrip()
    if events.endswith(b"]") and events[:-1].rstrip(b", \t\r\n").endswith(b"}"):
        return True
    return tail_keys_text(tail) != b"{}"
