"""How the capture side speaks: one Python warning, that cannot stop the training loop."""

from __future__ import annotations

import sys
import warnings

__all__ = ["CaptureWarning", "warn"]


class CaptureWarning(UserWarning):
    """Something about a recording that the user should know; training is not affected."""


def warn(text: str) -> None:
    """Issue `text` as a `CaptureWarning`; on stderr where warnings are errors, as training must go on."""
    try:
        # Without a place in the code: most come when the loop is over, and none is about the line that runs then.
        warnings.warn_explicit(text, CaptureWarning, filename="tracekit", lineno=0)
    except CaptureWarning:
        sys.stderr.write(f"tracekit: {text}\n")
