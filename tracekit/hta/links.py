"""Launches and what they launched, and the profiler's step of each event, as HTA defines them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tracekit.hta.arguments import smallest_integers
from tracekit.model.events import ABSENT, Bool, Int32, Int64

__all__ = ["linked_events", "steps_of_events"]

_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")


def linked_events(position: Int32, correlation: Int64, on_device: Bool) -> Int64:
    """Return the position of the event at the other end of each launch, int64 [n].

    0: the event has a correlation id, but the other end is not recorded. `ABSENT`: it has none. Of several events with
    an id the last one counts.

    Args:
        position: int32 [n].
        correlation: int64 [n].
        on_device: whether the event is on a device, bool [n].
    """
    links = np.minimum(correlation, 0)
    has_id = correlation != ABSENT
    host, device = np.flatnonzero(has_id & ~on_device), np.flatnonzero(has_id & on_device)
    for rows, others in ((host, device), (device, host)):
        order = np.argsort(correlation[others], kind="stable")
        ids = correlation[others[order]]
        last = np.searchsorted(ids, correlation[rows], side="right") - 1
        linked = np.flatnonzero((last >= 0) & (ids[last] == correlation[rows])) if len(ids) else last[:0]
        links[rows[linked]] = position[others[order[last[linked]]]]
    return links


def steps_of_events(
    texts: Sequence[str],
    name: Int32,
    ts: np.ndarray,
    duration: np.ndarray,
    stream: np.ndarray,
    position: Int32,
    links: Int64,
) -> np.ndarray:
    """Return the number of the profiler's step in which each event began, or what it was launched by; -1 in none.

    On stream 0 of a device HTA knows no step; there it is NaN, and all numbers are float64. All columns have [n] rows.

    Args:
        texts: What `name` refers to.
        ts: In microseconds.
        duration: In microseconds.
        stream: -1 for events of the host.
        position: As in `WrittenEvents`, ascending.
        links: What `linked_events` returns.
    """
    numbers = np.array([_step_number(text) for text in texts], dtype=np.int64)
    number = numbers[name]
    steps = np.full(len(name), -1, dtype=np.int64)
    for row in np.flatnonzero(number != ABSENT).tolist():  # of several steps the last one counts
        steps[(ts >= ts[row]) & (ts < ts[row] + duration[row])] = number[row]
    on_stream = np.flatnonzero(stream > 0)
    launches = links[on_stream]
    of_launch = np.searchsorted(position, np.maximum(launches, 0))
    steps[on_stream] = np.where(launches > 0, steps[np.minimum(of_launch, len(steps) - 1)], -1)
    if (stream == 0).any():
        return np.where(stream == 0, np.nan, steps)
    return smallest_integers(steps)


def _step_number(text: str) -> int:
    match = _STEP.match(text) if text.startswith("ProfilerStep") else None
    return int(match[1]) if match else ABSENT
