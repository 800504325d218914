"""Every command in a terminal of 80 columns: with its colors, within its width, and with no escape printed as text."""

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

import pytest
from rich.cells import cell_len

from tests.components import require_module
from tests.places import DATA, ROOT
from tests.unit.cli.run_commands import SEPARATOR

WIDTH = 80
TIMEOUT_S = 120
STYLED = [
    "analyze ddp",
    "analyze ddp --full",
    "analyze ddp --section breakdown",
    "analyze h100",
    "analyze h100 --full",
    "info ddp",
    "info h100 --kernels",
    "explain ddp",
    "explain straggler ddp",
    "whatif ddp",
    "compare ddp ddp",
    "check ddp --baseline ddp",
    "hta h100 kernel-breakdown",
    "hta ddp cross-check",
    "demo",
    "config",
    "doctor",
]
PLAIN = [
    "analyze ddp --json",
    "analyze nowhere",
    "analyze ddp --section nothing",
    "anlyze",
    "links --help",
    "query ddp 'select 1'",
    "merge ddp -o run.pftrace",
    "open ddp --print-url",
    "cache dir",
    "--help",
]
COLORED = ["analyze ddp", "analyze h100", "demo", "doctor"]
COMMANDS = STYLED + PLAIN
FEW = ["analyze ddp", "analyze ddp --full", "info h100 --kernels", "compare ddp ddp", "config", "analyze nowhere"]
STYLE = re.compile(r"\x1b\[[\d;]*m")
COLOR = re.compile(r"\x1b\[(\d+;)*[34]\d[;\dm]")
CURSOR = re.compile(r"\x1b\[(\?25[lh]|\d*A|2K)|\r")  # of the bar that shows progress
ESCAPE_AS_TEXT = re.compile(r"\\x1b|\\u001b|\\033|\^\[", re.IGNORECASE)
MAY_BE_LONG = re.compile(r"Next: |https:|\S+\.pftrace: |  \w+ +pip install ")  # is copied in one piece


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with recorded runs of short names."""
    require_module("hta")
    for name, run in (("ddp", "ddp_slow_rank"), ("h100", "h100_context")):
        shutil.copytree(DATA / run, tmp_path / name)
    return tmp_path


def start(folder: Path, commands: list[str], stdout: int, stderr: int, **environment: str) -> subprocess.Popen[bytes]:
    """Start the commands, one after another in one process."""
    kept = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "GITHUB_ACTIONS"}}
    kept |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "TRACEKIT_CACHE": "0", **environment}
    command = [sys.executable, "-m", "tests.unit.cli.run_commands", *commands]
    return subprocess.Popen(command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


def open_terminal() -> tuple[int, int]:
    """Return the descriptors of a terminal to read from and to write to. A line ends in a line feed alone."""
    reading, writing = pty.openpty()
    fcntl.ioctl(reading, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
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


def written(folder: Path, commands: list[str], *, terminal: bool, **environment: str) -> dict[str, tuple[str, str]]:
    """Return what each command writes to stdout and to stderr: two terminals, or two pipes."""
    (out, stdout), (err, stderr) = [open_terminal() if terminal else os.pipe() for _ in range(2)]
    with ThreadPoolExecutor() as threads, start(folder, commands, stdout, stderr, **environment) as process:
        os.close(stdout)
        os.close(stderr)
        texts = [threads.submit(read_all, reading) for reading in (out, err)]
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
        return dict(zip(commands, zip(*(text.result() for text in texts), strict=True), strict=True))


def test_a_terminal_gets_colors_within_its_width(runs: Path) -> None:
    """GIVEN a terminal of 80 columns THEN styles are obeyed, and nothing else on stdout controls it."""
    for command, (out, err) in written(runs, COMMANDS, terminal=True).items():
        assert STYLE.search(out) or command in PLAIN, command
        assert COLOR.search(out) or command not in COLORED, command
        text, remarks = STYLE.sub("", out), CURSOR.sub("", STYLE.sub("", err))
        assert not ESCAPE_AS_TEXT.search(text + remarks), command
        assert not {c for c in text + remarks if not c.isprintable()} - {"\n"}, command
        long = [line for line in text.split("\n") if cell_len(line) > WIDTH and not MAY_BE_LONG.match(line)]
        assert long == [] or "--json" in command, command


def test_a_terminal_without_colors_gets_none(runs: Path) -> None:
    """GIVEN NO_COLOR THEN stdout has no escape, and stderr none but those that move the cursor."""
    for command, (out, err) in written(runs, FEW, terminal=True, NO_COLOR="1").items():
        assert "\x1b" not in out, command
        assert not COLOR.search(err), command


def test_a_file_gets_no_escapes(runs: Path) -> None:
    """GIVEN pipes in place of terminals THEN neither has an escape, and no escape is printed as text."""
    for command, (out, err) in written(runs, FEW, terminal=False).items():
        assert "\x1b" not in out + err, command
        assert not ESCAPE_AS_TEXT.search(out + err), command
