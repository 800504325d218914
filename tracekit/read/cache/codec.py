"""A dataclass of numbers, texts and arrays, such as a `RankSummary`, to MessagePack and back, by its declared types.

The bytes name no type and run no code, and `unpack` checks them against the declarations. So bytes that somebody else
has written can at worst be refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import msgspec
import numpy as np

from tracekit.model.columnar import Columnar, element_type

Shared = dict[tuple[Any, ...], tuple[Any, ...]]
"""Long tuples that were unpacked so far, each as one object."""


_LONG_TUPLE = 16  # the members of a large process group are in many rows of every rank


class CodecError(ValueError):
    """A value that would not come back equal, or bytes that hold no such value."""


def pack(value: Any, kind: Any = None) -> bytes:
    """Return the bytes of a value of a declared type, by default its class.

    Raises CodecError for a value that would not come back equal.
    """
    try:
        data = _ENCODER.encode(value)
        again = _ENCODER.encode(_decoder(kind or value.__class__).decode(data))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise CodecError(str(error)) from error
    if again != data:  # an int where a float is declared, and the like
        raise CodecError("a value is not of the type that is declared for it")
    return data


def unpack(data: bytes, kind: Any, shared: Shared | None = None) -> Any:
    """Return the value that `pack` was given. Raises CodecError.

    Long tuples that are equal, within the value or in `shared`, become one object, as they were before packing.
    """
    try:
        value = _decoder(kind).decode(data)
    except (ValueError, OverflowError, MemoryError, RecursionError, msgspec.MsgspecError) as error:
        raise CodecError(str(error)) from error
    known: Shared = {} if shared is None else shared
    for nested in _dataclasses_in(value):
        if isinstance(nested, Columnar):
            _check_columns(nested)
            continue
        for name in _field_names(nested):
            if isinstance(items := getattr(nested, name), tuple) and len(items) >= _LONG_TUPLE:
                # Nobody else has the value yet, so that it may still be changed.
                object.__setattr__(nested, name, _shared_tuple(items, known))
    return value


def _shared_tuple(items: tuple[Any, ...], known: Shared) -> tuple[Any, ...]:
    if not all(type(item) is int for item in items):  # 1.0 is equal to 1, but another value
        return items
    return known.setdefault(items, items)


def _dataclasses_in(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        if value and not isinstance(value[0], int | str):
            for item in value:
                yield from _dataclasses_in(item)
    elif isinstance(value, Columnar):
        yield value
    elif is_dataclass(value):
        yield value
        for name in _field_names(value):
            yield from _dataclasses_in(getattr(value, name))


def _field_names(value: Any) -> tuple[str, ...]:
    return _fields_of(value.__class__)


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _check_columns(table: Columnar) -> None:
    lengths = {len(getattr(table, name)) for name in _field_names(table)}
    if len(lengths) > 1:
        raise CodecError(f"{type(table).__name__}: columns of {len(lengths)} lengths")


def _to_plain(array: Any) -> object:
    """Return the dtype and the bytes of an array; for an array of texts the list of them."""
    if not isinstance(array, np.ndarray) or array.ndim != 1:
        raise TypeError(f"cannot pack {type(array).__name__}")
    if array.dtype == object:
        texts = array.tolist()
        if not all(isinstance(text, str) or text is None for text in texts):
            raise TypeError("cannot pack an array of objects other than texts")
        return texts
    return [array.dtype.str, array.tobytes()]


def _from_plain(declared: Any, plain: object) -> np.ndarray:
    dtype = _declared_dtype(declared)
    if not isinstance(plain, list):
        raise TypeError("not an array")
    if dtype is None:
        array = np.empty(len(plain), dtype=object)
        array[:] = plain
        if not all(isinstance(text, str) or text is None for text in plain):
            raise TypeError("not an array of texts")
        return array
    if len(plain) != 2 or plain[0] != dtype.str or not isinstance(plain[1], bytes):
        raise TypeError(f"not an array of {dtype}")
    return np.frombuffer(plain[1], dtype=dtype).copy()  # a view of bytes cannot be written to


@cache
def _declared_dtype(declared: Any) -> np.dtype | None:
    """Return the dtype of `npt.NDArray[...]`; None for a bare `np.ndarray`, which holds texts."""
    scalar = element_type(declared)
    return None if scalar is None else np.dtype(scalar)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_to_plain)


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_from_plain)
