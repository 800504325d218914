"""These types as JSON, with the standard library alone, for a training job that has no other package than torch."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return a value, and the records in it, as compact JSON in UTF-8."""
    text = json.dumps(value, default=_members, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def decode(text: bytes | str, kind: type[T]) -> T:
    """Return the record of a text that `encode` has made. The reader of traces checks types and limits, this does not.

    Unknown keys are ignored. Raises ValueError for a text that is no such record.
    """
    members = json.loads(text)
    try:
        return kind(**{each.name: members[each.name] for each in fields(kind) if each.name in members})  # type: ignore[arg-type]
    except TypeError as error:  # it is no object, or a member is missing
        raise ValueError(str(error)) from error


def _members(record: Any) -> dict[str, Any]:
    members: dict[str, Any] = vars(record)  # in the order of the fields; `dataclasses.asdict` would copy every number
    return members
