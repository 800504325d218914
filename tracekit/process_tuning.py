"""A process that is ours alone, made quick: for a command and its workers, never for one that somebody else began.

Memory. Columns of a trace are arrays of some megabytes that come and go. By default glibc gives such blocks back to the
system, which must clear new pages for the next one: that takes up to a tenth of a command's CPU time. What is kept is
used again, so that the peak of memory does not grow.

Garbage. Python looks for cycles whenever 700 objects are new, and importing makes many more, none of them garbage. It
does so again, among all objects, before it ends, when the system takes all memory back anyway.

Threads. The OpenBLAS in numpy starts one a processor as it is imported, and each looks for work for some time before it
sleeps: a tenth of a second of CPU time. What is multiplied here is small.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from contextlib import suppress

__all__ = ["tune_cli_process"]

# malloc.h of glibc; see mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 512 << 20
_LARGEST_IN_HEAP_BYTES = 32 << 20  # the most that glibc takes
_NEW_OBJECTS = 1_000_000


def tune_cli_process() -> None:
    """For all of this process and those that it starts, best before numpy is imported. Where the C library is another,
    memory is as it was; a number of threads that the user has set stays."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP_BYTES)
            library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
