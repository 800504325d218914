"""One rank's slices as the table that HTA makes of a trace file.

It is the table of `hta.common.trace.parse_trace_file`: the same rows, index, columns and dtypes. HTA's parser works row
by row in Python, and this one on whole columns. HTA has columns in the order in which keys first come in a file; here
they are always in Kineto's order. Launches belong to what they launched, and events to the profiler's steps, as HTA
defines them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tracekit.hta.analyses import ArgumentColumn, argument_columns, counter_names, smallest_integers
from tracekit.model.events import ABSENT, Bool, Float64, Int32, Int64
from tracekit.read.decode.written_events import WrittenEvents

SymbolIds = Callable[[Iterable[str]], Sequence[int]]
"""Gives each text its number in HTA's table of symbols, and adds texts that are new."""

_COUNTERS = "cuda_profiler_range"
_SPAN_OF_PROFILER = "Trace"
_STEP = "ProfilerStep"
_SYNCHRONISATIONS = {"Event Sync", "Context Sync"}  # on stream -1, and yet on the device
_LINKED_STEP = re.compile(r"ProfilerStep\s*#\s*(\d+)")


@dataclass(frozen=True, kw_only=True, eq=False)
class RankColumns:
    """HTA's table of a rank before its ranks are aligned: k slices in the order of the file.

    Attributes:
        columns: arrays [k] of numpy or pandas by name, in HTA's order. Times are in microseconds.
        on_device: what HTA takes for events of a device, bool [k].
        of_step: the events that are steps of the profiler, bool [k].
    """

    columns: dict[str, Any]
    on_device: Bool
    of_step: Bool

    def __len__(self) -> int:
        return len(self.on_device)

    def parsed_table(self) -> pd.DataFrame:
        """Return the table as HTA's parser leaves it. Its labels are the events' positions in the file."""
        return pd.DataFrame(self.columns, index=self.columns["index"].astype(np.int64), copy=False)

    def loaded_table(self, first_us: float, rows: Int64 | None) -> pd.DataFrame:
        """Return the table as HTA loads it: times since `first_us`, and some rows, int64 [m]; None: all of them."""
        columns = self.columns if rows is None else {name: column[rows] for name, column in self.columns.items()}
        return pd.DataFrame(columns | {"ts": columns["ts"] - first_us}, index=_labels(columns["index"]), copy=False)

    def rows_of_steps(self, first_us: float, *, include_last_step: bool) -> Int64:
        """Return the rows that HTA keeps of a run with several steps, int64 [m]: device events first.

        It keeps what the host did before the last step began, and what these events launched. With the last step it
        keeps all host events: it compares starts since `first_us` with an end that still counts from the clock's zero.
        """
        ts, correlation = self.columns["ts"], self.columns["correlation"]
        steps = self.of_step & ~self.on_device
        if not steps.any():
            return np.empty(0, dtype=np.int64)
        before = ts - first_us <= self.columns["end"][steps].max() if include_last_step else ts < ts[steps].max()
        host = np.flatnonzero(~self.on_device & before)
        device = np.flatnonzero(self.on_device)
        # A launch with several events of the host has as many rows: HTA joins the two tables.
        order = np.sort(correlation[host])
        first, stop = (np.searchsorted(order, correlation[device], side) for side in ("left", "right"))
        return np.concatenate([np.repeat(device, stop - first), host])


def rank_columns(
    written: WrittenEvents, wanted: Sequence[ArgumentColumn], symbol_ids: SymbolIds, *, rounded: bool
) -> RankColumns:
    """Return HTA's table of a rank.

    Slices without a category, those of the category `Trace`, and pairs of B and E events have no row, as in HTA's
    table.

    Args:
        wanted: The arguments that HTA keeps.
        rounded: Whether times with nanoseconds are rounded to whole microseconds: starts up, ends down.
    """
    has_pairs = bool((written.position == ABSENT).any())
    written = _rows_of_hta(written)
    position, name = written.position, written.name
    counters = [index for index, text in enumerate(written.texts) if text == _COUNTERS]
    if counters and (of_counters := np.isin(written.category, counters)).any():
        names = counter_names(written, np.flatnonzero(of_counters))
        known = {column.name for column in wanted}
        wanted = [*wanted, *(ArgumentColumn(each, each, ABSENT) for each in names if each not in known)]
    times = _times(
        written.start_ns,
        written.duration_ns,
        rounded=rounded,
        all_have_durations=not written.has_other_phases and not has_pairs,
    )
    columns: dict[str, Any] = {
        "index": smallest_integers(position.astype(np.int64)),
        "cat": _symbols(written.texts, written.category, symbol_ids),
        "name": _symbols(written.texts, name, symbol_ids),
        "pid": _track_ids([each.pid for each in written.tracks], written.track),
        "tid": _track_ids([each.tid for each in written.tracks], written.track),
        **times,
        **argument_columns(written, wanted),
    }
    stream, correlation = columns["stream"], columns["correlation"].astype(np.int64)
    on_device = (stream >= 0) & (correlation >= 0)
    if _SYNCHRONISATIONS & {*written.texts}:
        on_device |= _named(written.texts, name, _SYNCHRONISATIONS.__contains__)
    links = linked_events(position, correlation, on_device)
    columns["index_correlation"] = smallest_integers(links)
    columns["iteration"] = steps_of_events(written.texts, name, times["ts"], times["dur"], stream, position, links)
    columns["end"] = times["ts"] + times["dur"]
    of_step = _named(written.texts, name, lambda text: _STEP in text)
    return RankColumns(columns=columns, on_device=on_device, of_step=of_step)


def _labels(index: np.ndarray) -> Any:
    """Return what `DataFrame.set_index` makes of a column: pandas 3 makes a range of equal steps."""
    return pd.DataFrame({"index": index}).set_index("index").index.rename(None)


def _rows_of_hta(written: WrittenEvents) -> WrittenEvents:
    has_row = np.array([text not in {"", _SPAN_OF_PROFILER} for text in written.texts], dtype=np.bool_)
    kept = has_row[written.category] & (written.position != ABSENT)
    return written if kept.all() else written.rows(np.flatnonzero(kept))


def _times(start_ns: Int64, duration_ns: Int64, *, rounded: bool, all_have_durations: bool) -> dict[str, np.ndarray]:
    """Return `ts` and `dur` in microseconds [k], and `end` where HTA has added it by then.

    An event without a duration, such as a flow, makes durations float64, before HTA leaves it out.
    """
    if not (start_ns % 1000).any():
        whole = all_have_durations and not (duration_ns % 1000).any()
        return {"ts": smallest_integers(start_ns // 1000), "dur": _durations(duration_ns / 1000, whole=whole)}
    start, duration = _microseconds(start_ns), _microseconds(duration_ns)
    if not rounded:
        return {"ts": start, "dur": duration}
    ts, end = np.ceil(start), np.floor(start + duration)
    duration, whole = end - ts, all_have_durations
    return {
        "ts": smallest_integers(ts.astype(np.int64)),
        "dur": _durations(duration, whole=whole),
        "end": _durations(end, whole=whole),
    }


def _durations(microseconds: Float64, *, whole: bool) -> np.ndarray:
    return smallest_integers(microseconds.astype(np.int64)) if whole else microseconds


def _microseconds(nanoseconds: Int64) -> Float64:
    """Return what the decimal number of a file becomes as a float64."""
    if len(nanoseconds) and int(np.abs(nanoseconds).max()) >= 1 << 53:  # as a float64 it would lose digits before
        return np.asarray((nanoseconds.astype(np.longdouble) / 1000).astype(np.float64))
    return np.asarray(nanoseconds / 1000)


def _symbols(texts: Sequence[str], column: Int32, symbol_ids: SymbolIds) -> Int64:
    used = np.flatnonzero(np.bincount(column, minlength=len(texts)))
    ids = np.empty(len(texts), dtype=np.int64)
    ids[used] = symbol_ids([texts[index] for index in used.tolist()])
    return ids[column]


def _named(texts: Sequence[str], name: Int32, predicate: Callable[[str], bool]) -> Bool:
    return np.array([predicate(text) for text in texts], dtype=np.bool_)[name]


def _track_ids(ids: Sequence[int | str], track: Int32) -> np.ndarray:
    """Return the pid or tid of each event; Python objects if any is text."""
    if all(isinstance(each, int) for each in ids):
        return smallest_integers(np.array(ids, dtype=np.int64)[track])
    objects = np.empty(len(ids), dtype=object)
    objects[:] = ids
    return objects[track]


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
    match = _LINKED_STEP.match(text) if text.startswith("ProfilerStep") else None
    return int(match[1]) if match else ABSENT
