"""A native trace processor (trace_processor_shell), which the `perfetto` package starts and talks to."""

from __future__ import annotations

import os
import shutil
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO

from perfetto.common.exceptions import PerfettoException
from perfetto.trace_processor.api import TraceProcessor as PerfettosTraceProcessor
from perfetto.trace_processor.api import TraceProcessorConfig

from tracekit.errors import InputError
from tracekit.trace_processor.processor import Answer, TraceProcessor, sql_error

_NAME = "trace_processor_shell"  # `trace_processor` is a script of Perfetto's, which downloads this program
_PERFETTO_CACHE = Path(".local", "share", "perfetto", "prebuilts")  # in the home folder
_FOR_THIS_MACHINE = "name a trace_processor_shell that runs on this machine"


class ShellTraceProcessor(TraceProcessor):
    """Runs the program `binary`, a trace_processor_shell.

    Raises InputError if it is not a program. `load` raises InputError if it does not start.
    """

    def __init__(self, binary: Path) -> None:
        if not _is_program(binary):
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
                hint = f"{_FOR_THIS_MACHINE}; that one says why with --version"
                raise InputError(f"{self._binary}: it failed to start", hint=hint) from None
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


def installed_shell() -> Path | None:
    """Return the trace_processor_shell in PATH, else the latest that the `perfetto` package has once downloaded.

    None if there is neither. The package itself is not asked: it would download one.
    """
    if found := shutil.which(_NAME):
        return Path(found)
    try:
        downloaded = [*(Path.home() / _PERFETTO_CACHE).glob(f"{_NAME}*")]
        # A download that has not ended may not be executed yet.
        return max(filter(_is_program, downloaded), key=lambda path: path.stat().st_mtime, default=None)
    except (OSError, RuntimeError):  # there is no home folder, or it may not be read
        return None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
