"""`tracekit doctor SCRIPT`: run a training script until its first window is written, and say what the probe saw.

In a job each rank runs the script and records into one folder of its host; rank 0 waits for the others there, reads
what its host recorded, and speaks for all.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from click.exceptions import Exit

from tracekit.capture.job.process import identify
from tracekit.checks.recording import recorded_activities
from tracekit.checks.script_checkup import run_until_window
from tracekit.cli.inputs.echo import echo, echo_drawn, echo_traceback
from tracekit.cli.inputs.options import terminal_format
from tracekit.errors import InputError, OutputError, UsageError

_PATIENCE_S = 60.0  # for the other ranks of this host to write what they recorded
_FAILED = 1

__all__ = ["see_script"]


def see_script(script: str, arguments: Sequence[str], *, module: bool, whole: bool) -> None:
    """Raises Exit with the script's own code if it fails, InputError if it recorded nothing."""
    if not module and not Path(script).is_file():
        raise UsageError(f"there is no script {script}", hint="give its path, or a module's name after -m")
    identity = identify()
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    folder = _folder_of_host()
    try:
        ending = run_until_window(script, arguments, folder, module=module, whole=whole)
    except SystemExit as left:
        if left.code:
            shutil.rmtree(folder, ignore_errors=True)
            raise  # as without tracekit: the code, or what Python makes of a text
        ending = "end"
    except Exception as error:
        shutil.rmtree(folder, ignore_errors=True)
        sys.stdout.flush()
        echo_traceback(error.with_traceback(_of_script(error.__traceback__)))
        raise Exit(_FAILED) from None
    sys.stdout.flush()
    (folder / f"{identity.rank}.done").touch()
    if identity.local_rank != 0:
        return
    late = local_ranks - _await(folder, local_ranks)
    try:
        if identity.rank == 0:
            _report(folder, script, ended_early=ending == "window", late=late)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _report(folder: Path, script: str, *, ended_early: bool, late: int) -> None:
    from tracekit.analysis.load import load
    from tracekit.analysis.report import analyze
    from tracekit.render.checkup import CheckupPage

    if not any(folder.rglob("*.json*")):
        raise InputError(
            f"{script} recorded no step",
            hint="decorate its training step with @tracekit.probe, and let it make a step or more",
        )
    report = analyze(load(folder), only=("breakdown", "phases", "memory"))  # the page reads more than these sections do
    if late:
        echo(f"{late} ranks of this host did not come to their end within {_PATIENCE_S:g} s", err=True)
    page = CheckupPage(**terminal_format())
    echo_drawn(page.render(report, script, profiler=recorded_activities(), ended_early=ended_early))


def _folder_of_host() -> Path:
    """A private folder that the ranks of this host and attempt share: they have one parent. Raises OutputError."""
    job = (os.getppid(), os.environ.get("MASTER_PORT", "0"), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    alone = "RANK" not in os.environ
    name = "-".join(["tracekit-doctor", *map(str, job), *([str(os.getpid())] if alone else [])])
    folder = Path(tempfile.gettempdir()) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise OutputError(f"{folder} belongs to somebody else", hint="set TMPDIR to a folder of yours")
    return folder


def _await(folder: Path, ranks: int) -> int:
    """How many of this host's ranks came to their end before the patience was."""
    deadline = time.monotonic() + _PATIENCE_S
    while (done := len(list(folder.glob("*.done")))) < ranks and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def _of_script(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the script on, without what ran it."""
    here = Path(__file__).parents[2]
    own = trace
    while own is not None:
        file = Path(own.tb_frame.f_code.co_filename)
        if here not in file.parents and "runpy" not in file.name:
            return own
        own = own.tb_next
    return trace
