"""Columns -> lines of JSON, one an event.

Comes in: the columns of a block of events. Goes out: their lines, without a line break inside. Times are turned to text
as integers: a float of microseconds since 1970 is only good to 250 ns.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tracekit.model.events import Int64
from tracekit.render.merged.slices import Argument, Rows

__all__ = ["MICROSECONDS", "JsonStrings", "argument_texts", "format_lines", "json_members", "json_text", "microseconds"]

MICROSECONDS = "%d.%03d"
"""Two places of a template, for the two columns of `microseconds`."""
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|(-?[0-9][0-9.eE+-]*)|\s+')
_MOST_DIGITS = len(str(-(1 << 63)))


def format_lines(template: str, columns: Sequence[Iterable[object]]) -> list[str]:
    """A line a row: `template`, which has a `%` place for each of the columns."""
    return [template % cells for cells in zip(*columns, strict=True)]


def microseconds(time_ns: Int64) -> list[list[int]]:
    """Columns of whole microseconds and of the nanoseconds beyond; times are not negative."""
    whole, rest = np.divmod(time_ns, 1000)
    return [whole.tolist(), rest.tolist()]


def json_text(text: str) -> str:
    """`text` as JSON, in quotes. Lone surrogates, which UTF-8 cannot express, as question marks.

    Perfetto's trace processor (v52) refuses a whole trace for an escaped surrogate pair, and for a text that ends with
    an escaped backslash: it takes the quote behind it for a part of the text.
    """
    encoded = json.dumps(text, ensure_ascii=False)
    if text.endswith("\\"):
        encoded = encoded[:-3] + '\\u005c"'
    return encoded.encode("utf-8", errors="replace").decode()


def json_members(text: str) -> str:
    """Of a JSON object what stands between its braces: strings and keys as `json_text` has them, without space between,
    numbers as they are written, but as text where readers of JSON would make others of them."""
    return _TOKEN.sub(_written, text)[1:-1]


def _written(token: re.Match[str]) -> str:
    string, number = token.groups(default="")
    if string:
        return json_text(json.loads(string))
    return number if not number or _is_readable(number) else json_text(number)


def _is_readable(number: str) -> bool:
    """Whether it fits into int64, or float64 if it has a fraction or an exponent."""
    if number.lstrip("-").isdigit():
        return len(number) <= _MOST_DIGITS and -(1 << 63) <= int(number) < 1 << 63
    return math.isfinite(float(number))


class JsonStrings:
    """Strings as JSON by `encode`, each once, however often and from whichever table it is named."""

    def __init__(self, encode: Callable[[str], str] = json_text) -> None:
        self._encode = encode
        self._known: dict[str, str] = {}

    def of(self, strings: Sequence[str], ids: np.typing.NDArray[np.int32]) -> list[str]:
        """The JSON of each of the `ids`, int32 [n]: indexes into `strings`; of `ABSENT` that of an empty text."""
        table = np.empty(len(strings) + 1, dtype=object)
        table[-1] = self._encoded("")
        for string_id in np.unique(ids[ids >= 0]).tolist():
            table[string_id] = self._encoded(strings[string_id])
        texts: list[str] = table[ids].tolist()
        return texts

    def _encoded(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = self._encode(text)
        return self._known[text]


def argument_texts(argument: Argument, rows: Rows, strings: Sequence[str], encoded: JsonStrings) -> list[object]:
    """What stands in a `%s` place for the values of `rows`."""
    values = argument.values[rows]
    if argument.is_text:
        return list(encoded.of(strings, values.astype(np.int32, copy=False)))
    return list(values.tolist())
