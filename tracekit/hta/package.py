"""Whether Holistic Trace Analysis is installed: it is an extra, and nothing of tracekit waits for its import."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.model.run import Run

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis


ROUNDING_VARIABLE = "HTA_DISABLE_NS_ROUNDING"
"""HTA rounds times to whole microseconds unless this is 1."""


def import_bridge(module: str) -> Any:
    """Return the module `tracekit.hta.<module>`, which imports HTA.

    Raises UsageError when HTA is not installed.
    """
    if importlib.util.find_spec("hta") is None:
        raise UsageError(
            "Holistic Trace Analysis is not installed", hint="install it with: pip install 'torch-tracekit[hta]'"
        )
    return importlib.import_module(f"tracekit.hta.{module}")


def to_hta(
    source: Run | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks: Iterable[int] | None = None,
    include_last_step: bool = False,
    window: int = -1,
) -> TraceAnalysis:
    """Return the `TraceAnalysis` of Holistic Trace Analysis (HTA), with the traces of a run loaded.

    HTA parses nothing: its tables are made of the columns that our decoder reads. They are equal to those of
    `TraceAnalysis(trace_files=...)`, and so are the results of its analyses. HTA has one clock for all ranks, that of
    the files. It rounds times to whole microseconds unless $HTA_DISABLE_NS_ROUNDING is 1.

    Args:
        source: A run that is loaded, or the folders, globs, files and URLs that `load` takes: these are read without
            our own analyses.
        run: Which run below these paths.
        attempt: Which attempt of it.
        ranks: Which ranks; by default all that are present.
        include_last_step: Whether HTA keeps the last step of the profiler (`include_last_profiler_step`).
        window: Which recording of each rank, as an index; by default the last.

    Raises InputError when there is no usable trace, or a rank's trace cannot be read. Raises UsageError when HTA is not
    installed, or there is no such `run`, `attempt`, rank or window.
    """
    if isinstance(source, str | os.PathLike):
        source = [source]
    analysis: TraceAnalysis = import_bridge("trace").analysis_of(
        source if isinstance(source, Run) else [os.fspath(path) for path in source],
        run=run,
        attempt=attempt,
        ranks=ranks,
        include_last_step=include_last_step,
        window=window,
    )
    return analysis


@contextmanager
def quiet() -> Iterator[None]:
    """Keep HTA from logging its progress to the terminal meanwhile."""
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(previous)


@contextmanager
def rounding(*, enabled: bool) -> Iterator[None]:
    """Let HTA round the times that it loads meanwhile to whole microseconds, or keep their nanoseconds."""
    previous = os.environ.get(ROUNDING_VARIABLE)
    os.environ[ROUNDING_VARIABLE] = "0" if enabled else "1"
    try:
        yield
    finally:
        if previous is None:
            del os.environ[ROUNDING_VARIABLE]
        else:
            os.environ[ROUNDING_VARIABLE] = previous
