"""Whether Holistic Trace Analysis is installed: it is an extra, and nothing of tracekit waits for its import."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.errors import UsageError

__all__ = ["ROUNDING_VARIABLE", "import_bridge", "quiet", "rounding"]

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
