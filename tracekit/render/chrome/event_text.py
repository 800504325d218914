"""Format columns of events as lines of JSON, one line an event.

Times are formatted from integers: a float of microseconds since 1970 has a precision of 250 ns only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tracekit.model.events import Int64
from tracekit.model.safe_text import unicode_text
from tracekit.read.decode.extra_args import is_in_range
from tracekit.render.trace.slices import Argument, Rows

__all__ = ["MICROSECONDS", "JsonStrings", "argument_texts", "format_lines", "json_members", "json_text", "microseconds"]

MICROSECONDS = "%d.%03d"
"""Part of a template, for the two columns of `microseconds`."""
_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|(-?[0-9][0-9.eE+-]*)|\s+')


def format_lines(template: str, columns: Sequence[Iterable[object]]) -> list[str]:
    """Return a line for each row. `template` has a `%` place for each column."""
    return [template % cells for cells in zip(*columns, strict=True)]


def microseconds(time_ns: Int64) -> list[list[int]]:
    """Return whole microseconds, and the remaining nanoseconds, of times >= 0."""
    whole, rest = np.divmod(time_ns, 1000)
    return [whole.tolist(), rest.tolist()]


def json_text(text: str) -> str:
    """Return `text` as JSON, in quotes, with question marks for lone surrogates, which UTF-8 cannot express.

    Perfetto's trace processor (v52) refuses a whole trace for an escaped surrogate pair. It also refuses one for a text
    that ends with an escaped backslash: it takes the quote after that for a part of the text.
    """
    encoded = json.dumps(text, ensure_ascii=False)
    if text.endswith("\\"):
        encoded = encoded[:-3] + '\\u005c"'
    return unicode_text(encoded)


def json_members(text: str) -> str:
    """Return the members of a JSON object, without the braces and without white space.

    Strings and keys are formatted by `json_text`. Numbers keep their digits; those that are out of the range of readers
    of JSON become texts.
    """
    return _TOKEN.sub(_formatted, text)[1:-1]


def _formatted(token: re.Match[str]) -> str:
    string, number = token.groups(default="")
    if string:
        return json_text(json.loads(string))
    return number if not number or is_in_range(number) else json_text(number)


class JsonStrings:
    """A cache of what `encode` returns for strings, over all tables of strings that share it."""

    def __init__(self, encode: Callable[[str], str] = json_text) -> None:
        self._encode = encode
        self._known: dict[str, str] = {}

    def of(self, strings: Sequence[str], ids: np.typing.NDArray[np.int32]) -> list[str]:
        """Return the encoded string of each of the `ids`, indexes into `strings`, int32 [n]. `ABSENT` is encoded as an
        empty text."""
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
    """Return the values of `rows` as they are put into a `%s` place."""
    values = argument.values[rows]
    if argument.is_text:
        return list(encoded.of(strings, values.astype(np.int32, copy=False)))
    return list(values.tolist())
