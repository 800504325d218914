"""The instructions that the probe adds to a training step, compared with bare torch.profiler with the same flags.

    python -m benchmarks.studies.capture_instructions [--workload gpt] [--steps 2]

As `capture_overhead`, but counted by valgrind and so the same in each run: CPU time on a shared machine may be off by
a fifth even as the median of thirty rounds. Only the training thread counts, in recorded steps. It needs valgrind with
its headers and a C compiler, and takes four to eight minutes for each of the three arms.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.studies.capture_overhead import ARMS
from benchmarks.studies.capture_overhead_job import SIZES, SKIP, WARMUP, Job

MOST_RATIO = 1.03
SOURCE = "#include <valgrind/callgrind.h>\nvoid toggle(void) { CALLGRIND_TOGGLE_COLLECT; }\n"


class CountedJob(Job):
    """Counts in recorded steps only."""

    def __init__(self, workload: str, steps: int, toggle: ctypes.CDLL) -> None:
        super().__init__(workload)
        self._steps, self._toggle = steps, toggle.toggle

    def _step(self) -> None:
        is_recorded = SKIP + WARMUP <= len(self._began) < SKIP + WARMUP + self._steps
        if is_recorded:
            self._toggle()
        super()._step()
        if is_recorded:
            self._toggle()


def train(arm: str, workload: str, steps: int, library: Path) -> None:
    """Train in this process, recorded as `arm` says."""
    job = CountedJob(workload, steps, ctypes.CDLL(str(library)))
    with tempfile.TemporaryDirectory() as folder:
        if arm == "probe":
            job.run_with_probe(Path(folder), steps)
        elif arm == "bare":
            job.run_with_profiler(Path(folder), steps)
        else:
            job.run_alone(steps)


def counted(arm: str, workload: str, steps: int, library: Path) -> float:
    """Return the instructions of a recorded step, in millions."""
    this = [sys.executable, "-m", "benchmarks.studies.capture_instructions", "--workload", workload]
    valgrind = ["valgrind", "--tool=callgrind", "--collect-atstart=no", "--callgrind-out-file=/dev/null"]
    child = [*this, "--steps", str(steps), "--arm", arm, "--library", str(library)]
    done = subprocess.run([*valgrind, *child], capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", done.stderr)
    if found is None:
        sys.exit(done.stderr)
    return int(found[1]) / steps / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the instructions of recorded steps.")
    parser.add_argument("--workload", choices=SIZES, default="gpt")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--library", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.arm:
        train(options.arm, options.workload, options.steps, options.library)
        return
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        library = Path(folder) / "toggle.so"
        compiler = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(compiler, input=SOURCE, text=True, check=True)
        millions = dict(
            zip(ARMS, pool.map(lambda arm: counted(arm, options.workload, options.steps, library), ARMS), strict=True)
        )
    for arm, value in millions.items():
        print(f"{arm:6}{value:12.3f} million instructions a recorded step")
    print(f"probe / bare {millions['probe'] / millions['bare']:.4f}; wanted: at most {MOST_RATIO}")


if __name__ == "__main__":
    main()
