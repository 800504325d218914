"""Keeps the capture's frames out of the tracebacks of the program's exceptions.

Python adds a frame to a traceback once, as the exception reaches the frame. A bare `raise` does not add it again. So a
function that catches what passes, removes the entry of its own frame and raises with a bare `raise` leaves no trace.
"""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["CaughtError", "hide_this_frame"]


def hide_this_frame() -> None:
    """Remove the caller's frame from the traceback of the exception that it handles; a bare `raise` has to follow."""
    _, error, trace = sys.exc_info()
    if error is not None and trace is not None:
        _set_traceback(error, trace.tb_next)


class CaughtError:
    """An exception as it left a function of the program, from the handler that catches it.

    The frames between that handler and another one, and what is raised between them, can be undone by `restore()`.
    """

    __slots__ = ("context", "error", "trace")

    def __init__(self) -> None:
        _, error, trace = sys.exc_info()
        assert error is not None
        self.error = error
        self.trace = None if trace is None else trace.tb_next
        self.context = error.__context__

    def restore(self) -> None:
        """Give the exception the traceback and the context back that it had; a bare `raise` has to follow."""
        _set_traceback(self.error, self.trace)
        if self.error.__context__ is not self.context:
            object.__setattr__(self.error, "__context__", self.context)


def _set_traceback(error: BaseException, trace: TracebackType | None) -> None:
    """Set a traceback, also of an exception whose class forbids to set attributes, such as a frozen dataclass."""
    BaseException.with_traceback(error, trace)
