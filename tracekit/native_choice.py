"""Which of the parts that exist both compiled and portable are used: $TRACEKIT_NATIVE."""

from __future__ import annotations

import os

from tracekit.errors import UsageError

VARIABLE = "TRACEKIT_NATIVE"


def use_native(part: str, *, is_built: bool) -> bool:
    """Whether to use the compiled form of `part`. When $TRACEKIT_NATIVE is not set: where it was built.

    Raises UsageError when the variable is neither 0 nor 1, and when it is 1 and the part was not built.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "0", "1"):
        hint = "set it to 1 for native code, to 0 for portable code, or unset it"
        raise UsageError(f"{VARIABLE}={wanted}: neither 0 nor 1", hint=hint)
    if wanted == "1" and not is_built:
        hint = "unset the variable, or see why, and what to do: tracekit doctor"
        raise UsageError(f"{VARIABLE}=1: the native {part} was not built", hint=hint)
    return is_built and wanted != "0"
