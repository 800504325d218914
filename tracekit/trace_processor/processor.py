"""What can be asked of a trace processor, however it runs."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

from tracekit.errors import UsageError

__all__ = ["Answer", "Cell", "Row", "TraceProcessor", "sql_error"]

Cell = int | float | str | bytes | None
Row = dict[str, Any]

_PLACE = re.compile(r"line (\d+) col (\d+)")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Rows of a query. Names of columns need not differ."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]


class TraceProcessor(ABC):
    """One trace processor; it can load one trace after another."""

    def load(self, trace: bytes | BinaryIO) -> None:
        """Replace the trace. InputError: it is no trace, or too large; or the trace processor ended."""
        self._load(io.BytesIO(trace) if isinstance(trace, bytes) else trace)

    @abstractmethod
    def ask(self, sql: str) -> Answer:
        """Run the statements; the rows are those of the last one. UsageError: one of them is wrong."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @abstractmethod
    def _load(self, trace: BinaryIO) -> None: ...

    def query(self, sql: str) -> list[Row]:
        """`ask`, a dictionary a row."""
        answer = self.ask(sql)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]

    def errors(self) -> list[Row]:
        """What the trace processor counted as wrong with the trace, or lost of it."""
        return self.query("select name, idx, value from stats where severity in ('error', 'data_loss') and value > 0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sql_error(text: str) -> UsageError:
    """The error for what the trace processor says of a statement: a traceback, whose last line is the reason."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no reason given"]
    places = _PLACE.findall(text)
    where = f" in line {places[-1][0]}, column {places[-1][1]}" if places else ""
    return UsageError(f"the SQL is wrong{where}: {lines[-1]}", hint="tracekit's views: tracekit query --views")
