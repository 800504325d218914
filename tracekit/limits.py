"""What one file may cost: one table of limits, for both decoders, the analysis, the merged trace and operation tables.

Each is far above what a profiler writes. A file that reaches one is damaged, or was made to hurt the machine that reads
it. What was read of a trace before counts, and a note names the limit. A table of operations counts whole or not at
all. $TRACEKIT_LIMITS sets them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache

from tracekit.errors import UsageError

VARIABLE = "TRACEKIT_LIMITS"

_SETTING = re.compile(r"([a-z_]+)=([1-9][0-9]{0,14})([KMG]?)")
_MOST_EVENTS = (1 << 31) - 1
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The largest value of each quantity.

    Attributes:
        text_bytes: Bytes of the text of a file, unpacked.
        ratio: Bytes of the text of a packed file per byte of the file. It is checked once the text is longer than
            256 MB. Kineto's text reaches 20, that of a gzip bomb 1,000.
        keys_bytes: Bytes of the text before the events of a file. The text behind them may be as long.
        event_bytes: Bytes of the text of one event.
        events: Events of one file.
        lanes: Rows of a merged trace on which the slices of one thread or stream are shown.
        table_operations: Operations of one table.
    """

    text_bytes: int = 64 << 30
    ratio: int = 400
    keys_bytes: int = 64 << 20
    event_bytes: int = 32 << 20
    events: int = 100_000_000  # at most 2**31 - 1, as they are numbered in 32 bits
    lanes: int = 200
    table_operations: int = 2_000_000

    def named(self, name: str) -> str:
        """Return what a note says of a limit that was reached; docs/settings.md says how to change it."""
        return f"limit {name}={getattr(self, name)}"


def limits() -> Limits:
    """Return the limits that hold. Raises UsageError when $TRACEKIT_LIMITS cannot be followed."""
    return _limits(os.environ.get(VARIABLE, ""))


def parse_limits(texts: Iterable[str]) -> Limits:
    """Return the limits with those replaced that texts such as `text_bytes=8G` set. Raises UsageError for others."""
    values = asdict(Limits())
    for text in texts:
        match = _SETTING.fullmatch(text)
        if match is None or match[1] not in values:
            what = f"{text!r} is none of the limits {', '.join(values)}, with a number"
            raise UsageError(what, hint="write it as in ratio=1000 or text_bytes=8G")
        values[match[1]] = int(match[2]) * _UNITS[match[3]]
    return Limits(**values | {"events": min(values["events"], _MOST_EVENTS)})


@lru_cache
def _limits(text: str) -> Limits:
    try:
        return parse_limits(text.split())
    except UsageError as error:
        raise UsageError(f"{VARIABLE}={text}: {error.message}", hint=error.hint) from None
