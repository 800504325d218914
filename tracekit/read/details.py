"""Arguments of an event that have no column of their own -> one text, the same for all events that say the same.

Comes in: the event's arguments as they are written. Goes out: a JSON object. Of the many events that profilers of
PyTorch write few say different things once the numbers are left out that are an event's own.
"""

from __future__ import annotations

import msgspec

__all__ = ["IDS", "NO_DETAILS", "details_of"]

IDS = {
    "External id": "external_id",
    "correlation": "correlation",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread",
}
"""Arguments that have a column of all events, by Kineto's names; what is no id there, such as -1, is shown nowhere."""

# By which the profiler counts its records: they tell nothing else.
_COUNTERS = ("Ev Idx", "Record function id", "Python id", "Python parent id")

NO_DETAILS = (*IDS, *_COUNTERS)

_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def details_of(arguments: bytes) -> str:
    """Of the JSON object of an event's arguments, or null, all that are none of `NO_DETAILS`, as they are written; ""
    for none, and where they are nested so deep that Python cannot tell."""
    try:
        members = _ARGUMENTS.decode(arguments) or {}
    except UnicodeDecodeError:  # of keys; of values nobody asks
        members = _ARGUMENTS.decode(arguments.decode("utf-8", "replace")) or {}
    except RecursionError:
        return ""
    told = [msgspec.json.encode(key) + b": " + bytes(value) for key, value in members.items() if key not in NO_DETAILS]
    return (b"{" + b", ".join(told) + b"}").decode("utf-8", "replace") if told else ""
