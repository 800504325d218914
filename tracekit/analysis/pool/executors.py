"""Calls on an executor that somebody else runs, such as a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, as_completed
from typing import TypeVar

from tracekit import __version__
from tracekit.analysis.pool.dask_cluster import worker_deaths
from tracekit.errors import InputError, UsageError
from tracekit.limits import Limits, limits, using

T = TypeVar("T")

__all__ = ["run_on_executor"]


def run_on_executor(
    executor: Executor, work: Callable[..., T], calls: Sequence[tuple[object, ...]], positions: Iterable[int]
) -> Iterator[tuple[int, T]]:
    """Yield positions and results as calls finish, except calls whose worker died.

    Raises BrokenExecutor after the last result.
    """
    broken: BrokenExecutor | None = None
    waiting: dict[Future[T], int] = {}
    try:
        for position in positions:
            waiting[executor.submit(_as_here, __version__, limits(), work, *calls[position])] = position
        for future in as_completed(waiting):
            position = waiting.pop(future)
            try:
                result = future.result()
            except BrokenExecutor as error:
                broken = error
            except worker_deaths():
                continue
            except CancelledError:
                hint = "its scheduler may have gone away; start it again"
                raise InputError("the executor gave up before all ranks were read", hint=hint) from None
            else:
                yield position, result
    finally:
        for future in waiting:
            future.cancel()
    if broken is not None:
        raise broken


def _as_here(version: str, allowed: Limits, work: Callable[..., T], *call: object) -> T:
    """Run a call in a worker, under the caller's limits. Raises UsageError when it has another version of tracekit."""
    if version != __version__:
        what = f"a worker has tracekit {__version__}, this one is {version}: their results would not fit together"
        raise UsageError(what, hint=f"where the workers run: pip install torch-tracekit=={version}")
    with using(allowed):
        return work(*call)
