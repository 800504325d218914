"""A Dask cluster as an executor. No other module imports `distributed`."""

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
    """Yield the executor of the Dask scheduler at `address`, such as tcp://host:8786.

    Its workers need this version of tracekit, and see the files under the same paths or URLs.

    Raises UsageError when `distributed` is not installed or `address` is not an address. Raises InputError when no
    scheduler answers there, when it stops answering, and when there are no workers or no tracekit.
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
            with warnings.catch_warnings(action="ignore"):  # versions that differ; tracekit's is checked below
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
                # Not pure: a call runs again even if the cluster has its result, since the file may have changed.
                yield client.get_executor(pure=False)
            except Exception as error:
                if client.status == "running" or isinstance(error, UsageError):
                    raise
                hint = "start it again, and this command"
                raise InputError(f"--scheduler {address}: the connection broke", hint=hint) from error


def _without_tracekit(client: Any) -> str | None:
    """Return the first process of the cluster that lacks tracekit; None if all have it. The scheduler unpacks calls
    too.
    """

    def can_import() -> bool:  # an inner function is sent by value; one of this module would have to be imported there
        try:
            import tracekit  # noqa: F401
        except ImportError:
            return False
        return True

    answers = {"its scheduler": client.run_on_scheduler(can_import)}
    answers |= {f"its worker {worker}": answer for worker, answer in client.run(can_import).items()}
    return next((name for name, answer in answers.items() if not answer), None)


def worker_deaths() -> tuple[type[BaseException], ...]:
    """Return the exceptions that mean that the workers of a call died."""
    if "distributed" not in sys.modules:
        return ()
    from distributed import KilledWorker

    return (KilledWorker,)


@contextmanager
def _silence() -> Iterator[None]:
    """Silence Dask's logs: errors reach the user as exceptions, and the logs repeat them over many lines."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
