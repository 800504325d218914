"""HTA's analyses by name, as tables. What HTA cannot do is its own error in a line, and the others go on.

Nothing here imports HTA or pandas before an analysis runs, so that the names can be listed without them.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from hta.trace_analysis import TraceAnalysis

__all__ = ["ANALYSES", "HtaRequest", "HtaResult", "error_line", "run_analysis"]

Tables = Mapping[str, "pd.DataFrame"]


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


def error_line(error: BaseException) -> str:
    """Return an exception as a line: its type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


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
