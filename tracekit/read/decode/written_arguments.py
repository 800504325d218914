"""Arguments of any name that are kept as JSON: values of counters, and what synchronising events wait for.

Both decoders keep the same text of the same events, so that what is made of it here is the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from tracekit.model.events import ABSENT, CounterSamples, Int64, StreamWaits

_JSON = msgspec.json.Decoder()
_NO_STREAM = (1 << 32) - 1  # as older versions of Kineto write that there is none


def counter_samples(records: Mapping[str, np.ndarray], strings: Sequence[str], base_time_ns: int) -> CounterSamples:
    """Return a sample for each number among the arguments of events of counters.

    records: `time_ns`, and `process`, `name` and `arguments` as indexes into `strings`.
    """
    texts = {index: strings[index] for name in ("process", "name") for index in set(records[name].tolist()) - {ABSENT}}
    processes_of: dict[str, set[str]] = {}
    series: dict[tuple[str, str, str], int] = {}
    rows: list[tuple[int, int, float]] = []
    columns = zip(*(records[name].tolist() for name in ("time_ns", "process", "name", "arguments")), strict=True)
    for time_ns, process, name, arguments in columns:
        process_text, name_text = texts.get(process, ""), texts[name]
        processes_of.setdefault(name_text, set()).add(process_text)
        for key, value in _numbers(strings[arguments]):
            number = series.setdefault((process_text, name_text, key), len(series))
            rows.append((time_ns + base_time_ns, number, value))
    return CounterSamples(
        time_ns=np.array([row[0] for row in rows], dtype=np.int64),
        series=np.array([row[1] for row in rows], dtype=np.int64),
        value=np.array([row[2] for row in rows], dtype=np.float64),
        names=tuple(_series_name(*key, several=len(processes_of[key[1]]) > 1) for key in series),
    )


def _numbers(arguments: str) -> Iterator[tuple[str, float]]:
    for key, value in _object(arguments).items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield key, float(value)


def _object(text: str) -> dict[str, object]:
    try:
        values = _JSON.decode(text)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _series_name(process: str, name: str, key: str, *, several: bool) -> str:
    """Return `GPU 0 Counters · SM clock`. A number of a process is said only where `several` have the counter."""
    shown = process if several or not process.lstrip("-").isdigit() else ""
    return " · ".join(part for part in (shown, name, "" if key in ("value", name) else key) if part)


def stream_waits(records: Mapping[str, np.ndarray], strings: Sequence[str]) -> StreamWaits:
    """Return what synchronising events wait for. records: `row`, and `arguments` as indexes into `strings`."""
    values = [_object(strings[arguments]) for arguments in records["arguments"].tolist()]

    def column(key: str) -> Int64:
        return np.array([_id(value.get(key)) for value in values], dtype=np.int64)

    return StreamWaits(
        row=records["row"].astype(np.int64),
        stream=column("stream"),
        awaited_stream=column("wait_on_stream"),
        record=column("wait_on_cuda_event_record_corr_id"),
    )


def _id(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _NO_STREAM else ABSENT
