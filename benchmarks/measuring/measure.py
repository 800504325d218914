"""What a command costs: CPU time, wall time and memory of a fresh process and its children.

CPU time is user + system of the process and of the children that it waited for. Memory is the peak resident set:

* of the largest process, as the kernel states it at the end. On Linux a new process starts with the peak of the one
  that started it, so this process must stay small.
* of the main process and of the largest worker, read from /proc while they run (Linux only).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

_PROC = Path("/proc")
_LOOK_EVERY_S = 0.05  # /proc states the peak so far: only growth in the last moment of a process is missed


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command to measure.

    Attributes:
        environment: variables in addition to those of this process.
        writes: a file that the command writes. It is removed before each run, because replacing a file takes time.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    writes: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run of a command used.

    Attributes:
        peak_bytes: of the largest process.
        main_peak_bytes: of the main process; None where it is unknown.
        worker_peak_bytes: of the largest child; None where it is unknown or there is none.
        output: what the command wrote to stdout.
    """

    cpu_s: float
    wall_s: float
    peak_bytes: int
    main_peak_bytes: int | None = None
    worker_peak_bytes: int | None = None
    output: str = ""


def measure(command: Command) -> Cost:
    """Run a command in a fresh process and return its cost. Raises SystemExit when the command fails."""
    if command.writes is not None:
        command.writes.unlink(missing_ok=True)
    # Files, not pipes: a pipe must be read while the command runs.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begun_s = time.perf_counter()
        process = subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env={**_environment(), **command.environment},
        )
        peaks = _Peaks(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - begun_s
        main_bytes, worker_bytes = peaks.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        written, complaints = _text(output), _text(errors)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command.arguments)[:200]}: exit {process.returncode}\n{complaints[-2000:]}")
    peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Cost(
        cpu_s=usage.ru_utime + usage.ru_stime,
        wall_s=wall_s,
        peak_bytes=peak_bytes,
        # Without workers the kernel's figure belongs to the main process, and is exact.
        main_peak_bytes=peak_bytes if worker_bytes is None and main_bytes is not None else main_bytes,
        worker_peak_bytes=worker_bytes,
        output=written,
    )


def _environment() -> dict[str, str]:
    """Return the environment for commands: this process', but Python may write bytecode.

    An installed package has its bytecode; from a checkout every run would compile all modules again.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def alternate(commands: Mapping[str, Command], runs: int) -> dict[str, list[Cost]]:
    """Return the cost of each command in each of `runs` rounds."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs):
        for name in round_order(commands, number):
            costs[name].append(log_cost(f"run {number + 1}: {name}", measure(commands[name])))
    return costs


def round_order(names: Iterable[str], number: int) -> list[str]:
    """Return the names in the order of round `number`: reversed in every second one, as the first may run slower."""
    return list(names)[:: 1 if number % 2 == 0 else -1]


def log_cost(what: str, cost: Cost) -> Cost:
    """Print a line about the cost on stderr; return the cost."""
    print(
        f"  {what}: {cost.cpu_s:.2f} CPU s, {cost.wall_s:.2f} s, {cost.peak_bytes / 1e6:.0f} MB",
        file=sys.stderr,
        flush=True,
    )
    return cost


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read().decode(errors="replace")


def peaks_below(pid: int) -> dict[int, int]:
    """Return peak memory in bytes by process id: of a process and its descendants that still run."""
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        peak = _peak_of(one)
        if peak is not None:
            found[one] = peak
            waiting += _children_of(one)
    return found


class _Peaks:
    """A thread that reads the peak memory of a process and its descendants until it is stopped.

    `ru_maxrss` has no figure for each of them, and that of a forked process includes its parent's memory.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.bytes: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int | None, int | None]:
        """Return the peak of the process, and of its largest descendant."""
        self._over.set()
        self._thread.join()
        workers = [peak for pid, peak in self.bytes.items() if pid != self.pid]
        return self.bytes.get(self.pid), max(workers, default=None)

    def _look(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            for pid, peak in peaks_below(self.pid).items():
                self.bytes[pid] = max(peak, self.bytes.get(pid, 0))


def _peak_of(pid: int) -> int | None:
    try:
        lines = (_PROC / str(pid) / "status").read_text().splitlines()
    except OSError:  # the process has ended, or there is no /proc
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _children_of(pid: int) -> list[int]:
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
