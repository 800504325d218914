"""Arguments of events as the columns that HTA makes of them.

Few texts of arguments are distinct, so each is parsed once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.read.decode.written_events import WrittenEvents

__all__ = ["ArgumentColumn", "argument_columns", "counter_names", "smallest_integers"]

_LIMIT = 1 << 63
_ID_COLUMNS = {
    "correlation": "correlation",
    "External id": "external_id",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread",
}
"""Columns of `WrittenEvents` by the argument that they hold."""


class ArgumentColumn(msgspec.Struct, frozen=True):
    """A column that HTA wants.

    Attributes:
        name: of the column.
        key: of the argument that it holds.
        default: its value where the argument is not written.
    """

    name: str
    key: str
    default: Any


def argument_columns(written: WrittenEvents, wanted: Sequence[ArgumentColumn]) -> dict[str, Any]:
    """Return the wanted columns by name: arrays [n] of numpy or pandas, with the dtypes that HTA gives them."""
    used, places = _used_texts(written.arguments)
    in_texts = [column for column in wanted if column.key not in _ID_COLUMNS]
    parsed = _parse([written.argument_texts[index] for index in used], in_texts)
    columns: dict[str, Any] = {}
    for column in wanted:
        if (of_ids := _ID_COLUMNS.get(column.key)) is not None:
            ids = getattr(written, of_ids)
            if column.default != ABSENT:
                ids = np.where(ids == ABSENT, column.default, ids)
            columns[column.name] = smallest_integers(ids)
        else:
            columns[column.name] = _spread([*parsed[column.name], column.default], places, len(used))
    if "stream" in columns:
        columns["stream"] = _stream_numbers(columns["stream"])
    return columns


def counter_names(written: WrittenEvents, rows: Int64) -> list[str]:
    """Return the names of the performance counters in the arguments of these rows, int64 [k], sorted."""
    used, _ = _used_texts(written.arguments[rows])
    return sorted({key for index in used for key in _object(written.argument_texts[index])})


def smallest_integers(values: Int64) -> np.ndarray:
    """Return integers, int64 [k], in the smallest signed dtype that holds them, as `pandas.to_numeric` does."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    return values.astype(_smallest_dtype(least, most))


def _smallest_dtype(least: int, most: int) -> type[np.signedinteger[Any]]:
    for dtype, limit in ((np.int8, 1 << 7), (np.int16, 1 << 15), (np.int32, 1 << 31)):
        if -limit <= least and most < limit:
            return dtype
    return np.int64


def _used_texts(arguments: Int32) -> tuple[list[int], Int64]:
    """Return the distinct texts that rows have, and the place of each row's text among them, int64 [k].

    The place behind the last is that of rows without arguments.
    """
    count = int(arguments.max(initial=ABSENT)) + 1
    seen = np.zeros(count + 1, dtype=np.bool_)
    seen[arguments] = True  # ABSENT is the last
    used = np.flatnonzero(seen[:count])
    new_place = np.full(count + 1, len(used), dtype=np.int64)
    new_place[used] = np.arange(len(used))
    return used.tolist(), new_place[arguments]


def _parse(texts: Sequence[bytes], wanted: Iterable[ArgumentColumn]) -> Mapping[str, Sequence[Any]]:
    """Return the values of each wanted column in the texts."""
    columns = tuple(wanted)
    try:
        parsed = _decoder(columns).decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # such as NaN, which is no JSON
        objects = [_object(text) for text in texts]
        return {column.name: [each.get(column.key, column.default) for each in objects] for column in columns}
    by_column = zip(*map(msgspec.structs.astuple, parsed), strict=True) if parsed else [()] * len(columns)
    return {column.name: values for column, values in zip(columns, by_column, strict=True)}


@cache
def _decoder(columns: tuple[ArgumentColumn, ...]) -> msgspec.json.Decoder[list[Any]]:
    """Return a decoder of objects with an attribute `f0`, `f1`, ... for each of the columns."""
    fields = [
        (f"f{at}", Any, msgspec.field(name=column.key, default=column.default)) for at, column in enumerate(columns)
    ]
    return msgspec.json.Decoder(list[msgspec.defstruct("Arguments", fields, gc=False)])  # type: ignore[misc]


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _spread(values: list[Any], places: Int64, absent: int) -> Any:
    """Return `values` at `places`, with the dtype that pandas gives such a column.

    The last value is that of rows without arguments. It does not count for the dtype if there are none.
    """
    if not (len(places) and int(places.max()) == absent):
        values.pop()
    types = set(map(type, values))
    if types == {int} and (least := min(values)) >= -_LIMIT and (most := max(values)) < _LIMIT:
        return np.array(values, dtype=_smallest_dtype(least, most))[places]
    if types <= {int, float}:
        return np.array(values, dtype=np.float64)[places]
    if list in types:
        return np.fromiter(values, dtype=object, count=len(values))[places]
    if types == {str} and len(set(values)) == 1:  # an argument that no event has
        return _single_text(values[0]).take(np.zeros_like(places))
    # The distinct values decide about the dtype, as all rows would.
    return pd.Series(values).array.take(places)


@cache
def _single_text(text: str) -> Any:
    """Return the array of pandas that holds one text."""
    return pd.Series([text]).array


def _stream_numbers(column: Any) -> np.ndarray:
    """Return numbers of streams; -1 for what is no number."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "i":
        return column
    numbers = []
    for value in column:
        try:
            numbers.append(int(value))
        except (ValueError, TypeError):
            numbers.append(ABSENT)
    return smallest_integers(np.array(numbers, dtype=np.int64))
