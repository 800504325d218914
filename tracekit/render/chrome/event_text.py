"""Columns -> lines of JSON, one an event.

Comes in: the columns of a block of events. Goes out: their lines, without a line break inside. Times are turned to text
as integers: a float of microseconds since 1970 is only good to 250 ns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tracekit.model.events import Int64
from tracekit.read.decode.extra_args import is_in_range
from tracekit.render.trace.slices import Argument, Rows

__all__ = ["MICROSECONDS", "JsonStrings", "argument_texts", "format_lines", "json_members", "json_text", "microseconds"]

MICROSECONDS = "%d.%03d"
"""Two places of a template, for the two columns of `microseconds`."""
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|(-?[0-9][0-9.eE+-]*)|\s+')


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
    return number if not number or is_in_range(number) else json_text(number)


class JsonStrings:
    """Strings as what `encode` makes of them, each once, however often and from whichever table it is named."""

    def __init__(self, encode: Callable[[str], str] = json_text) -> None:
        self._encode = encode
        self._known: dict[str, str] = {}

    def of(self, strings: Sequence[str], ids: np.typing.NDArray[np.int32]) -> list[str]:
        """Of each of the `ids`, int32 [n]: indexes into `strings`; `ABSENT` is as an empty text."""
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
