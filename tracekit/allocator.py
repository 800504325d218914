"""The C library's allocator, told to keep what is freed.

Columns of a trace are arrays of some megabytes that come and go. By default glibc gives such blocks back to the system,
which must clear new pages for the next one: that takes up to a tenth of a command's CPU time. What is kept is used
again, so that the peak of memory does not grow.
"""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress

__all__ = ["keep_freed_memory"]

# malloc.h of glibc; see mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 512 << 20
_LARGEST_IN_HEAP_BYTES = 32 << 20  # the most that glibc takes


def keep_freed_memory() -> None:
    """For all of this process, and so for processes of our own alone. Does nothing where the C library is another."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP_BYTES)
            library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
