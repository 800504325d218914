"""What a trace processor can do, however it runs, and the SQL that defines tracekit's views in it."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, BinaryIO, Self

from tracekit.errors import UsageError

Cell = int | float | str | bytes | None
Row = dict[str, Any]

_POSITION = re.compile(r"line (\d+) col (\d+)")

_FILES = ("views.sql", "run_views.sql", "kernel_views.sql")  # each may use the ones before


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Columns and rows of a query. Several columns may have the same name."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class TraceProcessor(ABC):
    """One trace processor. It can load one trace after another."""

    def load(self, trace: bytes | BinaryIO) -> None:
        """Load a trace in place of the previous one.

        Raises InputError if it is not a trace, if it is too large, and if the trace processor has ended.
        """
        self._load(io.BytesIO(trace) if isinstance(trace, bytes) else trace)

    @abstractmethod
    def ask(self, sql: str) -> Answer:
        """Run the statements and return the rows of the last one. Raises UsageError if a statement is wrong."""

    @abstractmethod
    def close(self) -> None:
        """End the trace processor."""

    @abstractmethod
    def _load(self, trace: BinaryIO) -> None: ...

    def query(self, sql: str) -> list[Row]:
        """Run the statements and return a dictionary for each row of the last one."""
        answer = self.ask(sql)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    def errors(self) -> list[Row]:
        """Return what the trace processor reports as errors of the trace, or as lost data."""
        return self.query("select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sql_error(text: str) -> UsageError:
    """Return the error for the trace processor's message on a wrong statement.

    The message is a traceback, whose last line is the reason.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    positions = _POSITION.findall(text)
    where = f" in line {positions[-1][0]}, column {positions[-1][1]}" if positions else ""
    return UsageError(f"the SQL is wrong{where}: {lines[-1]}", hint="tracekit's views: tracekit query --views")


def views_sql() -> str:
    """Return the statements that create the views of a merged trace, to be run once after it was loaded.

    Every column has a comment with its meaning and unit.
    """
    folder = files("tracekit.trace_processor")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in _FILES)
