"""A Dask cluster as an executor; the one place that knows `distributed`.

Comes in: the address of a scheduler. Goes out: a `concurrent.futures.Executor`, whose workers need this tracekit and
see the files under the same paths or URLs.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from tracekit import __version__
from tracekit.errors import InputError, UsageError

__all__ = ["dask_cluster", "worker_deaths"]

_ADDRESS = re.compile(r"(tcp|tls|ucx|ws|wss)://[^/\s]+:\d{1,5}")
_CONNECT_S = 5
_FIRST_WORKER_S = 10
_LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "asyncio")


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """The cluster of the scheduler at `address`, such as tcp://host:8786.

    Raises UsageError when `distributed` is not installed or `address` is none, InputError when nobody answers there
    (any more), or there are no workers, or no tracekit.
    """
    try:
        from distributed import Client
    except ImportError:
        hint = "pip install 'torch-tracekit[dask]'"
        raise UsageError("--scheduler needs the package distributed", hint=hint) from None
    if not _ADDRESS.fullmatch(address):
        raise UsageError(f"--scheduler {address}: no address of a scheduler", hint="such as tcp://host:8786")
    with _silence():
        try:
            with warnings.catch_warnings(action="ignore"):  # versions of libraries that differ; ours is checked later
                client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError):
            hint = "leave out --scheduler, or start one with: dask scheduler"
            raise InputError(f"--scheduler {address}: no Dask scheduler answers there", hint=hint) from None
        with client:
            try:
                client.wait_for_workers(1, timeout=_FIRST_WORKER_S)
            except TimeoutError:
                hint = f"start one with: dask worker {address}"
                raise InputError(f"--scheduler {address}: the cluster has no worker", hint=hint) from None
            if lacking := _without_tracekit(client):
                hint = f"where it and its workers run: pip install torch-tracekit=={__version__}"
                raise InputError(f"--scheduler {address}: tracekit is not installed on {lacking}", hint=hint)
            try:
                # A call whose result the cluster remembers is made again: the file may be another one by now.
                yield client.get_executor(pure=False)
            except Exception as error:
                if client.status == "running" or isinstance(error, UsageError):
                    raise
                hint = "start it again, and this command"
                raise InputError(f"--scheduler {address}: the connection broke", hint=hint) from error


def _without_tracekit(client: Any) -> str | None:
    """The first process of the cluster that lacks it. Calls are unpacked by the scheduler too."""

    def can_import() -> bool:  # goes over by value, as a function of this module could not
        try:
            import tracekit  # noqa: F401
        except ImportError:
            return False
        return True

    answers = {"its scheduler": client.run_on_scheduler(can_import)}
    answers |= {f"its worker {worker}": answer for worker, answer in client.run(can_import).items()}
    return next((name for name, answer in answers.items() if not answer), None)


def worker_deaths() -> tuple[type[BaseException], ...]:
    """What futures of a cluster raise when the workers that had the call died."""
    if "distributed" not in sys.modules:
        return ()
    from distributed import KilledWorker

    return (KilledWorker,)


@contextmanager
def _silence() -> Iterator[None]:
    """What goes wrong comes as an error; Dask's logs repeat it, over many lines."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
