"""What a command costs: CPU time, wall time and memory of a fresh process and its children.

Comes in: command lines. Goes out: a `Cost` each run. CPU is user + system of the process and of the children that it
waited for. Memory is the highest resident set: of any one process as the kernel states it at the end (never less than
what this process holds: Linux hands that on, so that nothing large is done in it), and of the main process and of the
largest worker apart, which is looked up while they run (Linux alone).
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

__all__ = ["Command", "Cost", "alternate", "log_cost", "measure", "peaks_below", "round_order"]

_PROC = Path("/proc")
_LOOK_EVERY_S = 0.05  # a high-water mark: only what grows within this time before the end is missed


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line, and what is set in its environment besides what this process has. `writes`: a file that it makes
    anew; one of an earlier run is removed before, since to replace it takes time as well."""

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    writes: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one run used. `main_peak_bytes`, `worker_peak_bytes`: None where it is not known or there are no workers."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    main_peak_bytes: int | None = None
    worker_peak_bytes: int | None = None
    output: str = ""


def measure(command: Command) -> Cost:
    """Run a command in a fresh process. Ends the benchmark when it fails: its cost would say nothing."""
    if command.writes is not None:
        command.writes.unlink(missing_ok=True)
    # In files, so that nobody has to read while the command runs.
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
        # Without workers the kernel's own figure is that of the main process, to the last page.
        main_peak_bytes=peak_bytes if worker_bytes is None and main_bytes is not None else main_bytes,
        worker_peak_bytes=worker_bytes,
        output=written,
    )


def _environment() -> dict[str, str]:
    """What commands have from this process. Installed packages are compiled; from a checkout Python may keep what it
    compiles as well, or every run would pay for it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def alternate(commands: Mapping[str, Command], runs: int) -> dict[str, list[Cost]]:
    """The cost of each command in each of `runs` rounds."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for number in range(runs):
        for name in round_order(commands, number):
            costs[name].append(log_cost(f"run {number + 1}: {name}", measure(commands[name])))
    return costs


def round_order(names: Iterable[str], number: int) -> list[str]:
    """The order of a round: whoever is first finds a colder machine, so that the order is turned round each time."""
    return list(names)[:: 1 if number % 2 == 0 else -1]


def log_cost(what: str, cost: Cost) -> Cost:
    """The cost itself; it is told on stderr as well, for who waits."""
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
    """The peak memory in bytes of a process and of all that it started, by process id; of those that still run."""
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
    """Looks up the peak memory of a process and of all below it until it is stopped.

    `ru_maxrss` cannot tell them apart, and a process that was forked has its parent's memory in it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.bytes: dict[int, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> tuple[int | None, int | None]:
        """Of the process itself, and of the largest below it."""
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
    except OSError:  # it is gone, or there is no /proc
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)


def _children_of(pid: int) -> list[int]:
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
        return [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return []
