"""The errors a user can cause.

    TracekitError                    exit code 4
     ├── UsageError                  exit code 2: options that contradict each other
     ├── InputError                  exit code 3: a path, file or run that cannot be used
     │    └── NotATraceError         the file was read, and holds no trace
     └── OutputError                 exit code 3: a result that cannot be written

Every error says what happened, to which file or rank. Its `hint` says what to do. The command line prints both as one
line; nothing else in the package formats errors.
"""

from __future__ import annotations

from typing import ClassVar


class TracekitError(Exception):
    """Base of all errors that tracekit raises on purpose. An instance of this class itself is an internal error."""

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})"

    def __reduce__(self) -> tuple[object, ...]:
        # Workers raise these in other processes. The default pickling loses keyword-only arguments.
        return _rebuild, (type(self), self.message, self.hint), vars(self)


class UsageError(TracekitError):
    exit_code = 2


class InputError(TracekitError):
    """A path, file or run that cannot be used.

    Attributes:
        reason: the message without the path, for lists of files.
        kind: the kind of the note that a run gets for this file.
    """

    exit_code = 3

    def __init__(self, message: str, *, hint: str, reason: str | None = None, kind: str = "ignored-file") -> None:
        super().__init__(message, hint=hint)
        self.reason = message if reason is None else reason
        self.kind = kind


class NotATraceError(InputError):
    pass


class OutputError(TracekitError):
    exit_code = 3


def missing_package(error: ModuleNotFoundError) -> UsageError:
    """Return what to say where a package is missing: a training job needs none of them, an analysis needs all."""
    return UsageError(
        f"to read runs, tracekit needs {error.name}, which is not installed here",
        hint="recording needs torch alone; where runs are read: pip install torch-tracekit",
    )


def _rebuild(kind: type[TracekitError], message: str, hint: str) -> TracekitError:
    return kind(message, hint=hint)


def error_line(error: BaseException) -> str:
    """Return an exception as a line: its type, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
