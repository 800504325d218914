"""A tuned process reuses freed memory, and numpy starts no threads in it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource, sys
from tracekit.process_tuning import tune_cli_process
if sys.argv[1] == "kept":
    tune_cli_process()
for repetition in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        columns = [bytearray(6 << 20) for _ in range(8)]
        del columns
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_blocks_are_used_again() -> None:
    """GIVEN 48 MB (12,288 pages) allocated and freed 10 times THEN the second time hardly a page is new."""
    assert page_faults("by default") > 10 * 6000
    assert page_faults("kept") < 1000


THREADS = """
import sys
from pathlib import Path
from tracekit.process_tuning import tune_cli_process
if sys.argv[1] == "quick":
    tune_cli_process()
import numpy
print(len(list(Path("/proc/self/task").iterdir())))
"""


def threads_of_numpy(how: str) -> int:
    unlimited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", THREADS, how]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=unlimited)
    return int(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_numpy_starts_no_threads() -> None:
    if threads_of_numpy("by default") == 1:
        pytest.skip("one processor, or a numpy whose BLAS starts no threads")
    assert threads_of_numpy("quick") == 1
