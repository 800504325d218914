"""Join the pages of a merged trace in one file. A page is written here, or comes from a file that a worker wrote."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from tracekit.render.output import move_to_end
from tracekit.render.trace.slices import TraceFormat

__all__ = ["Document"]


class Document:
    """A merged trace that is being written. What is written to it belongs to the page that was begun last.

    A page may be empty. The trace is complete after `end`.
    """

    def __init__(self, stream: BinaryIO, form: TraceFormat) -> None:
        self._stream = stream
        self._form = form
        self._is_empty = True
        self._between = b""
        stream.write(form.head)

    def begin_page(self) -> None:
        self._between = b"" if self._is_empty else self._form.separator

    def write(self, content: bytes | memoryview, /) -> None:
        if content:
            self._stream.write(self._between)
            self._stream.write(content)
            self._is_empty, self._between = False, b""

    def add_page(self, part: Path) -> None:
        """Append the page in the file `part`, and remove the file."""
        self.begin_page()
        if part.stat().st_size:
            self._stream.write(self._between)
            self._is_empty = False
        move_to_end(part, self._stream)

    def end(self) -> None:
        self._stream.write(self._form.tail)
