"""What HTA's analyses find in a run, by the name of each analysis, as tables.

What HTA cannot do is its own error in a line, and the others go on. Nothing here imports HTA or pandas before an
analysis runs, so that the names can be listed without them.

`argument_columns` returns arguments of events as the columns that HTA makes of them. Few texts of arguments are
distinct, so each is parsed once.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pandas as pd

from tracekit.errors import error_line
from tracekit.model.events import ABSENT, Int32, Int64
from tracekit.read.decode.written_events import WrittenEvents

if TYPE_CHECKING:
    import pandas as pd
    from hta.trace_analysis import TraceAnalysis


Tables = Mapping[str, "pd.DataFrame"]

_LIMIT = 1 << 63
_ID_COLUMNS = {
    "correlation": "correlation",
    "External id": "external_id",
    "Sequence number": "sequence_number",
    "Fwd thread id": "forward_thread",
}
"""Columns of `WrittenEvents` by the argument that they hold."""


@dataclass(frozen=True, kw_only=True)
class HtaRequest:
    """What an analysis is asked of.

    Attributes:
        load: Gives the run, loaded anew: HTA's diff of traces changes what it compares.
        analysis: The run, loaded.
        against: Gives another run to compare with, if there is one.
        annotation: The text in the name of the annotation whose critical path is searched.
        instance: Which of these annotations.
    """

    load: Callable[[], TraceAnalysis]
    analysis: TraceAnalysis
    against: Callable[[], TraceAnalysis] | None = None
    annotation: str = "ProfilerStep"
    instance: int = 0

    @property
    def ranks(self) -> list[int]:
        return sorted(self.analysis.t.traces)


@dataclass(frozen=True, kw_only=True)
class HtaResult:
    """What HTA answered.

    Attributes:
        tables: by name; none if it failed.
        error: HTA's exception, in a line; empty if there is none.
        remarks: what HTA logged as warnings and errors, if there are no tables.
    """

    tables: Tables = field(default_factory=dict)
    error: str = ""
    remarks: Sequence[str] = ()


def run_analysis(name: str, request: HtaRequest) -> HtaResult:
    """Return the tables of an analysis, with texts for numbers of symbols and plain columns."""
    with _collect_log() as remarks, contextlib.redirect_stdout(io.StringIO()):
        try:
            tables = ANALYSES[name](request)
        except Exception as error:
            return HtaResult(error=error_line(error), remarks=tuple(remarks))
        symbols = request.analysis.t.symbol_table.get_sym_table()
        plain = {title: _plain(frame, symbols) for title, frame in tables.items()}
    return HtaResult(tables=plain, remarks=() if plain else tuple(dict.fromkeys(remarks)))


def _kernel_breakdown(request: HtaRequest) -> Tables:
    kinds, kernels = request.analysis.get_gpu_kernel_breakdown(visualize=False)
    return {"kernel types": kinds, "kernels": kernels}


def _temporal_breakdown(request: HtaRequest) -> Tables:
    return {"times": request.analysis.get_temporal_breakdown(visualize=False)}


def _idle_time(request: HtaRequest) -> Tables:
    idle, intervals = request.analysis.get_idle_time_breakdown(
        ranks=request.ranks, visualize=False, show_idle_interval_stats=True
    )
    return {"idle time": idle} | ({} if intervals is None else {"idle intervals": intervals})


def _overlap(request: HtaRequest) -> Tables:
    return {"overlap": request.analysis.get_comm_comp_overlap(visualize=False)}


def _queue_length(request: HtaRequest) -> Tables:
    return _tables(
        {
            "queue length": request.analysis.get_queue_length_summary(ranks=request.ranks),
            "queue length over time": _by_rank(request.analysis.get_queue_length_time_series(ranks=request.ranks)),
        }
    )


def _memory_bandwidth(request: HtaRequest) -> Tables:
    return _tables(
        {
            "memory bandwidth": request.analysis.get_memory_bw_summary(ranks=request.ranks),
            "memory bandwidth over time": _by_rank(request.analysis.get_memory_bw_time_series(ranks=request.ranks)),
        }
    )


def _launch_statistics(request: HtaRequest) -> Tables:
    statistics = request.analysis.get_cuda_kernel_launch_stats(ranks=request.ranks, visualize=False)
    return _tables({"launches": _by_rank(statistics)})


def _counters(request: HtaRequest) -> Tables:
    of_ranks = request.analysis.get_cupti_counter_data_with_operators(ranks=request.ranks)
    return {f"counters {number}": frame for number, frame in enumerate(of_ranks)}


def _critical_path(request: HtaRequest) -> Tables:
    paths, shares = {}, {}
    for rank in request.ranks:
        answer = request.analysis.critical_path_analysis(
            rank=rank, annotation=request.annotation, instance_id=request.instance
        )
        if answer is None or not answer[1] or (breakdown := answer[0].get_critical_path_breakdown()) is None:
            continue
        paths[rank] = breakdown
        shares[rank] = answer[0].summary().rename("percent").reset_index()
    return _tables({"critical path by bound": _by_rank(shares), "critical path": _by_rank(paths)})


def _trace_diff(request: HtaRequest) -> Tables:
    diff: Any = importlib.import_module("hta.trace_diff")
    control = diff.LabeledTrace("run", request.load().t)
    if request.against is not None:
        return {"differences": diff.TraceDiff.compare_traces(control, diff.LabeledTrace("other", request.against().t))}
    test = diff.LabeledTrace("last", control.t)
    control.label = "first"
    last = max(test.iterations(), default=None)
    return {"differences": diff.TraceDiff.compare_traces(control, test, test_iteration=last)}


ANALYSES: Mapping[str, Callable[[HtaRequest], Tables]] = {
    "kernel-breakdown": _kernel_breakdown,
    "temporal-breakdown": _temporal_breakdown,
    "idle-time": _idle_time,
    "overlap": _overlap,
    "queue-length": _queue_length,
    "memory-bandwidth": _memory_bandwidth,
    "launch-statistics": _launch_statistics,
    "counters": _counters,
    "critical-path": _critical_path,
    "trace-diff": _trace_diff,
}


def _tables(tables: Mapping[str, pd.DataFrame | None]) -> Tables:
    return {title: frame for title, frame in tables.items() if frame is not None}


def _by_rank(frames: Mapping[int, pd.DataFrame]) -> pd.DataFrame | None:
    """Return the tables of ranks as one with a column `rank`; None without any."""
    ranked = [frame.drop(columns="rank", errors="ignore").assign(rank=rank) for rank, frame in frames.items()]
    if not ranked:
        return None
    import pandas as pd

    whole = pd.concat(ranked)
    return whole[["rank", *(name for name in whole.columns if name != "rank")]]


def _plain(frame: pd.DataFrame, symbols: Sequence[str]) -> pd.DataFrame:
    """Return a table whose index, where it names something, is columns, and whose symbols are texts."""
    if frame.index.names != [None]:
        frame = frame.reset_index()
    if frame.columns.nlevels > 1:
        frame.columns = ["_".join(filter(None, map(str, names))) for names in frame.columns]
    # Numbers are floats where a row has none.
    numbers = [name for name in ("name", "cat") if name in frame and frame[name].dtype.kind in "if"]
    frame = frame.reset_index(drop=True)
    for name in numbers:
        frame[name] = [symbols[int(each)] if each >= 0 else None for each in frame[name]]
    return frame


@contextmanager
def _collect_log() -> Iterator[list[str]]:
    """Collect what HTA logs as warnings and errors, and keep it from the terminal."""
    remarks: list[str] = []
    logger = logging.getLogger("hta")
    collect = logging.Handler(logging.WARNING)
    collect.emit = lambda record: remarks.append(record.getMessage())  # type: ignore[method-assign]
    handlers, propagate, disabled = logger.handlers, logger.propagate, logging.root.manager.disable
    logger.handlers, logger.propagate = [collect], False
    logging.disable(logging.NOTSET)
    try:
        yield remarks
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logging.disable(disabled)


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
    used, positions = _used_texts(written.arguments)
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
            columns[column.name] = _spread([*parsed[column.name], column.default], positions, len(used))
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
    """Return the distinct texts that rows have, and the position of each row's text among them, int64 [k].

    The position after the last is that of rows without arguments.
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


def _spread(values: list[Any], positions: Int64, absent: int) -> Any:
    """Return `values` at `positions`, with the dtype that pandas gives such a column.

    The last value is that of rows without arguments. It does not count for the dtype if there are none.
    """
    if not (len(positions) and int(positions.max()) == absent):
        values.pop()
    types = set(map(type, values))
    if types == {int} and (least := min(values)) >= -_LIMIT and (most := max(values)) < _LIMIT:
        return np.array(values, dtype=_smallest_dtype(least, most))[positions]
    if types <= {int, float}:
        return np.array(values, dtype=np.float64)[positions]
    if list in types:
        return np.fromiter(values, dtype=object, count=len(values))[positions]
    if types == {str} and len(set(values)) == 1:  # an argument that no event has
        return _single_text(values[0]).take(np.zeros_like(positions))
    # The distinct values decide about the dtype, as all rows would.
    return pd.Series(values).array.take(positions)


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
