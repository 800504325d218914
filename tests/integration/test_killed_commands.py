"""What a command leaves behind that is killed at any moment, and how the next one gets on with it."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data" / "ddp_slow_rank"
KILLS = 8

pytestmark = pytest.mark.long


def contents(folder: Path) -> dict[str, str]:
    """Return a digest of each file below a folder, without those that summaries are kept in."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".tracekit-cache" not in path.parts
    }


def start(command: str, run: Path, output: Path, home: Path) -> subprocess.Popen[bytes]:
    """Start a command in a process group of its own, with two workers."""
    environment = os.environ | {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TRACEKIT_CONFIG": "0"}
    arguments = [sys.executable, "-m", "tracekit", command, str(run), "--jobs", "2", "-o", str(output), "--force"]
    return subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


@pytest.mark.parametrize(("command", "name"), [("merge", "merged.pftrace.gz"), ("analyze", "report.json")])
def test_a_command_killed_at_any_moment_spoils_nothing(command: str, name: str, tmp_path: Path) -> None:
    """WHEN a command and its workers are killed THEN the run is as it was, and its output is whole or not there.

    The next run of the command answers as if nothing had happened, and removes what the killed one left.
    """
    run, home, out = (tmp_path / part for part in ("run", "home", "out"))
    shutil.copytree(DATA, run)
    home.mkdir()
    out.mkdir()
    before = contents(run)
    begun_s = time.monotonic()
    finish(start(command, run, out / name, home))
    takes_s = time.monotonic() - begun_s
    expected = contents(out)
    moments = random.Random(name)
    for _ in range(KILLS):
        if moments.random() < 0.5:
            shutil.rmtree(home / "cache", ignore_errors=True)
            shutil.rmtree(run / ".tracekit-cache", ignore_errors=True)
        if moments.random() < 0.5:
            (out / name).unlink(missing_ok=True)
        process = start(command, run, out / name, home)
        try:
            process.communicate(timeout=moments.uniform(0, takes_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        left = contents(out)
        assert left.get(name, expected[name]) == expected[name]
        assert contents(run) == before
    finish(start(command, run, out / name, home))
    assert contents(out) == expected
    assert contents(run) == before
