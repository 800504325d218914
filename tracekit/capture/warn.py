"""Warns the user without ever stopping the training loop."""

from __future__ import annotations

import sys
import warnings

from tracekit.model.safe_text import safe_text

__all__ = ["CaptureWarning", "warn"]


class CaptureWarning(UserWarning):
    """Something about a recording that the user should know; training is not affected."""


def warn(text: str) -> None:
    """Issue `text` as a `CaptureWarning`, or on stderr where warnings are errors. It cannot control a terminal."""
    text = safe_text(text)
    try:
        # Without a line of code: most warnings come after the loop, and none is about the line that runs then.
        warnings.warn_explicit(text, CaptureWarning, filename="tracekit", lineno=0)
    except CaptureWarning:
        sys.stderr.write(f"tracekit: {text}\n")
