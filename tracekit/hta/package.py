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

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

__all__ = ["ROUNDING_VARIABLE", "import_bridge", "quiet", "rounding", "to_hta"]

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
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    run: str | None = None,
    attempt: int | None = None,
    ranks: Iterable[int] | None = None,
    include_last_step: bool = False,
    window: int = -1,
) -> TraceAnalysis:
    """Return what `tracekit.load(paths, run=run, attempt=attempt).to_hta(...)` returns, without our own analyses.

    Takes the folders, globs, files and URLs that `load` takes. See `Run.to_hta` for the other arguments.

    Raises InputError when there is no usable trace, or a rank's trace cannot be read. Raises UsageError when HTA is not
    installed, or there is no such `run`, `attempt`, rank or window.
    """
    path_texts = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else [os.fspath(path) for path in paths]
    analysis: TraceAnalysis = import_bridge("trace").analysis_of_paths(
        path_texts, run=run, attempt=attempt, ranks=ranks, include_last_step=include_last_step, window=window
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
