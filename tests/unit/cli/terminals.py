"""What commands write to a terminal, and what must hold of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from rich.cells import cell_len

from benchmarks.gpu_jobs import JobSpec, simulate
from tests.places import DATA, ROOT
from tests.unit.cli.run_commands import SEPARATOR

WIDTH = 80
TIMEOUT_S = 120
STYLE = re.compile(r"\x1b\[[\d;]*m")
COLOR = re.compile(r"\x1b\[(\d+;)*[34]\d[;\dm]")
CURSOR = re.compile(r"\x1b\[(\?25[lh]|\d*A|2K)|\r")  # of the bar that shows progress
ESCAPE_AS_TEXT = re.compile(r"\\x1b|\\u001b|\\033|\^\[", re.IGNORECASE)
MAY_BE_LONG = re.compile(r"Next: |Page: |  ssh |https:|\S+\.pftrace: |  \w+ +pip install |\s+tracekit ")
"""What is copied in one piece."""


RECORDED = {
    "ddp": "ddp_slow_rank",
    "h100": "h100_context",
    "pipeline": "seed/pipes/two_replicas",
    "served": "seed/server/plain",
    "server": "seed/server/srv30",
    "elastic": "seed/elastic",
}


def named_runs(folder: Path) -> Path:
    """Copy recorded runs into a folder under short names, and write healthy ones; return the folder."""
    for name, run in RECORDED.items():
        shutil.copytree(DATA / run, folder / name)
    simulate(JobSpec(family="fsdp", dp=2, layers=2, steps=3)).write(folder / "fsdp", compressed=False)
    healthy = JobSpec(family="ddp", dp=2, layers=2, steps=3, gradient_us=50, buckets=2)
    simulate(healthy).write(folder / "healthy", compressed=False)
    return folder


def start(folder: Path, commands: list[str], stdout: int, stderr: int, **environment: str) -> subprocess.Popen[bytes]:
    """Start the commands, one after another in one process."""
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "GITHUB_ACTIONS"}}
    kept |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "TRACEKIT_CACHE": "0", **environment}
    command = [sys.executable, "-m", "tests.unit.cli.run_commands", *commands]
    return subprocess.Popen(command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def open_terminal(width: int) -> tuple[int, int]:
    """Return the descriptors of a terminal to read from and to write to. A line ends in a line feed alone."""
    reading, writing = pty.openpty()
    fcntl.ioctl(reading, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    attributes = termios.tcgetattr(writing)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(writing, termios.TCSANOW, attributes)
    return reading, writing


def read_all(descriptor: int) -> list[str]:
    """Return what each command wrote."""
    read = bytearray()
    with suppress(OSError):  # a terminal ends in an error
        while part := os.read(descriptor, 1 << 16):
            read += part
    os.close(descriptor)
    *texts, end = read.decode().split(SEPARATOR)
    assert end == ""
    return texts


def written(
    folder: Path, commands: list[str], *, terminal: bool, width: int = WIDTH, **environment: str
) -> dict[str, tuple[str, str]]:
    """Return what each command writes to stdout and to stderr: two terminals of a width, or two pipes."""
    (out, stdout), (err, stderr) = [open_terminal(width) if terminal else os.pipe() for _ in range(2)]
    with ThreadPoolExecutor() as threads, start(folder, commands, stdout, stderr, **environment) as process:
        os.close(stdout)
        os.close(stderr)
        texts = [threads.submit(read_all, reading) for reading in (out, err)]
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
        return dict(zip(commands, zip(*(text.result() for text in texts), strict=True), strict=True))


def assert_styled_within_the_width(command: str, out: str, err: str, width: int = WIDTH) -> None:
    """Styles are obeyed, nothing else controls the terminal, and no line is too long."""
    text, remarks = STYLE.sub("", out), CURSOR.sub("", STYLE.sub("", err))
    assert not ESCAPE_AS_TEXT.search(text + remarks), command
    assert not {c for c in text + remarks if not c.isprintable()} - {"\n"}, command
    long = [line for line in text.split("\n") if cell_len(line) > width and not MAY_BE_LONG.match(line)]
    assert long == [] or "--json" in command or "--brief" in command, command
