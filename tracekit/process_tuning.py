"""Settings that make a command and its workers faster. They affect the whole process, so `tracekit.load` sets none that
stays.

Memory. The columns of a trace are arrays of several megabytes that are allocated and freed all the time. By default
glibc returns such blocks to the system, which must clear new pages for the next ones. That takes up to a tenth of a
command's CPU time. With these settings freed blocks are reused; the peak of memory does not grow.

Garbage. Python searches for reference cycles after every 700 new objects. Imports create many more objects, none of
them garbage. At exit Python searches all objects again, although the system is about to free all memory.

Threads. The OpenBLAS of numpy starts a thread for each processor at import. Each thread polls for work before it
sleeps, which takes a tenth of a second of CPU time. The matrices here are too small to need threads.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# malloc.h of glibc; see mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_FREE_HEAP_BYTES = 512 << 20
_LARGEST_IN_HEAP_BYTES = 32 << 20  # the highest value that glibc accepts
_NEW_OBJECTS_A_COLLECTION = 1_000_000


def tune_cli_process() -> None:
    """Apply the settings to this process and those that it starts. Call it before numpy is imported.

    The memory settings need glibc. A number of threads that the user has set is not changed.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_NEW_OBJECTS_A_COLLECTION)
    atexit.register(gc.freeze)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP_BYTES)
            library.mallopt(_TRIM_THRESHOLD, _MOST_FREE_HEAP_BYTES)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Stop the garbage collector while a block makes many objects without cycles: each collection searches all."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
