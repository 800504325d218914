"""What is kept of one rank's communication: sums by group, kind and phase, and what was in flight when."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

from tracekit.model.communication import GroupKey
from tracekit.model.summary import Part

__all__ = ["COMMUNICATION", "IN_FLIGHT_TIMES", "CommunicationSum", "InFlight", "InFlightTime", "merge_sums"]

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class CommunicationSum:
    """Communication of one rank by group, kind and phase, over its complete steps."""

    group: GroupKey | None
    kind: str
    phase: str | None
    count: int
    size_bytes: int | None
    total_ns: int
    exposed_ns: int


@dataclass(frozen=True, kw_only=True)
class InFlight:
    """Collectives, or messages, of one rank in one group (None: not known)."""

    group: GroupKey | None
    messages: bool


@dataclass(frozen=True, kw_only=True)
class InFlightTime:
    """Time of one rank in its complete steps during which exactly these were in flight.

    Attributes:
        charged: the one that held the rank up; None where the rank computed meanwhile.
    """

    in_flight: tuple[InFlight, ...]
    charged: InFlight | None
    total_ns: int


def merge_sums(rows: Iterable[S], key: Callable[[S], Hashable], amounts: Sequence[str]) -> tuple[S, ...]:
    """Return the rows of several recordings of one rank with one row for each `key`.

    The fields `amounts` are added up; the recordings do not overlap. A sum with an unknown value is not known.
    """
    merged: dict[Hashable, Any] = {}
    for row in rows:
        seen = merged.get(key(row))
        if seen is None:
            merged[key(row)] = row
        else:
            values = {name: (getattr(seen, name), getattr(row, name)) for name in amounts}
            added = {name: None if None in pair else sum(pair) for name, pair in values.items()}
            merged[key(row)] = replace(seen, **added)
    return tuple(merged.values())


def _merged_communication(windows: Sequence[tuple[CommunicationSum, ...]]) -> tuple[CommunicationSum, ...]:
    amounts = ("count", "size_bytes", "total_ns", "exposed_ns")
    return merge_sums(chain.from_iterable(windows), lambda row: (row.group, row.kind, row.phase), amounts)


def _merged_in_flight(windows: Sequence[tuple[InFlightTime, ...]]) -> tuple[InFlightTime, ...]:
    return merge_sums(chain.from_iterable(windows), lambda row: (frozenset(row.in_flight), row.charged), ("total_ns",))


COMMUNICATION: Part[tuple[CommunicationSum, ...]] = Part(
    name="communication", type=tuple[CommunicationSum, ...], empty=tuple, merge=_merged_communication
)
IN_FLIGHT_TIMES: Part[tuple[InFlightTime, ...]] = Part(
    name="in_flight_times", type=tuple[InFlightTime, ...], empty=tuple, merge=_merged_in_flight
)
