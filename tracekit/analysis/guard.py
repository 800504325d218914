"""What becomes of an error of tracekit's own in an analysis over ranks: it costs that analysis, and no other."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tracekit import __version__
from tracekit.errors import InputError, OutputError, UsageError
from tracekit.model.notes import Note

T = TypeVar("T")
U = TypeVar("U")

_PACKAGE = Path(__file__).parents[1]

__all__ = ["Guard"]


class Guard:
    """Runs analyses, and notes which of them an error has ended."""

    def __init__(self) -> None:
        self._lost: dict[str, list[str]] = {}  # names of analyses, by the error that ended them

    def run(self, name: str, otherwise: U, function: Callable[..., T], *arguments: object) -> T | U:
        """Return `function(*arguments)`; `otherwise` after an error, which becomes a note.

        Errors of the user pass. With TRACEKIT_DEBUG=1 every error does, so that its traceback can be seen.
        """
        try:
            return function(*arguments)
        except (UsageError, InputError, OutputError):
            raise
        except Exception as error:
            if os.environ.get("TRACEKIT_DEBUG", "0") not in {"", "0"}:
                raise
            self._lost.setdefault(_describe(error), []).append(name)
            return otherwise

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return a note for each error, with what to report."""
        return tuple(
            Note(kind="internal-error", severity="error", text=f"{cause}; left out: {', '.join(names)}")
            for cause, names in self._lost.items()
        )


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _PACKAGE in Path(frame.filename).parents]
    last = frames[-1]  # there is one: the guard's own
    where = f"{Path(last.filename).relative_to(_PACKAGE).as_posix()}, line {last.lineno}"
    what = f"a bug in tracekit {__version__} ({type(error).__name__}: {error}; {where})"
    return f"{what}: report what TRACEKIT_DEBUG=1 shows"
