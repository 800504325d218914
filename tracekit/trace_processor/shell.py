"""A native trace processor (trace_processor_shell), which the `perfetto` package starts and talks to."""

from __future__ import annotations

import contextlib
import os
import sys
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

from perfetto.common.exceptions import PerfettoException
from perfetto.trace_processor.api import TraceProcessor as PerfettosTraceProcessor
from perfetto.trace_processor.api import TraceProcessorConfig
from perfetto.trace_processor.platform import PlatformDelegate

from tracekit.errors import InputError
from tracekit.trace_processor.processor import Answer, TraceProcessor, sql_error

__all__ = ["ShellTraceProcessor", "downloaded_shell"]

_FOR_THIS_MACHINE = "name a trace_processor_shell that runs on this machine"


class ShellTraceProcessor(TraceProcessor):
    """Runs the program `binary`, a trace_processor_shell.

    Raises InputError if it is not a program. `load` raises InputError if it does not start.
    """

    def __init__(self, binary: Path) -> None:
        if not binary.is_file() or not os.access(binary, os.X_OK):
            raise InputError(f"{binary}: not a program", hint=_FOR_THIS_MACHINE)
        self._binary = binary
        self._running: Any = None

    def close(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def _load(self, trace: BinaryIO) -> None:
        self.close()
        try:
            self._running = PerfettosTraceProcessor(
                trace=trace, config=TraceProcessorConfig(bin_path=str(self._binary))
            )
        except PerfettoException as error:
            if "failed to start" in str(error):
                raise InputError(f"{self._binary}: {_one_line(error)}", hint=_FOR_THIS_MACHINE) from None
            hint = "give a merged trace, another trace that Perfetto reads, or a run"
            raise InputError(f"Perfetto cannot read the trace: {_one_line(error)}", hint=hint) from None
        except (OSError, HTTPException) as error:
            raise self._ended(error) from None

    def ask(self, sql: str) -> Answer:
        try:
            found = self._running.query(sql)
        except PerfettoException as error:
            raise sql_error(str(error)) from None
        except (OSError, HTTPException) as error:
            raise self._ended(error) from None
        columns = tuple(found.column_names)
        cells = iter(found.cells)
        return Answer(columns=columns, rows=list(zip(*[cells] * len(columns), strict=True)))

    def _ended(self, error: Exception) -> InputError:
        hint = "it may have run out of memory: ask fewer ranks (--ranks)"
        return InputError(f"{self._binary} ended: {_one_line(error)}", hint=hint)


def downloaded_shell() -> Path:
    """Return the binary that the `perfetto` package uses, and download it first if need be.

    Raises InputError if the download failed.
    """
    try:
        # The package reports the download on stdout, which is for results.
        with contextlib.redirect_stdout(sys.stderr):
            return Path(PlatformDelegate().get_shell_path(bin_path=None))
    except Exception as error:  # the package raises plain exceptions here
        raise InputError(f"the download failed: {_one_line(error)}", hint="see the three ways") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
