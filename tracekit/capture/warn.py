"""Warns the user without ever stopping the training loop."""

from __future__ import annotations

import sys
import warnings

__all__ = ["CaptureWarning", "warn"]


class CaptureWarning(UserWarning):
    """Something about a recording that the user should know; training is not affected."""


def warn(text: str) -> None:
    """Issue `text` as a `CaptureWarning`, or on stderr where warnings are errors."""
    try:
        # Without a line of code: most warnings come after the loop, and none is about the line that runs then.
        warnings.warn_explicit(text, CaptureWarning, filename="tracekit", lineno=0)
    except CaptureWarning:
        sys.stderr.write(f"tracekit: {text}\n")
