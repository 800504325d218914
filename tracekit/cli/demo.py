"""`tracekit demo`: train a small model on this machine, record it, analyse and merge the run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import textwrap
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import click

from tracekit.cli.demo_training import PLANTED
from tracekit.cli.inputs.echo import echo, echo_drawn
from tracekit.cli.inputs.options import terminal_format
from tracekit.errors import InputError

_TRAINING_SECONDS = 300
_ENDING_SECONDS = 40  # torchrun kills processes that do not end within 30 s


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("runs/demo"), show_default=True,
              metavar="FOLDER", help="Where the run is recorded.")  # fmt: skip
def demo(output: Path) -> None:
    """Train a small model on two processes and analyse it.

    A transformer trains with DDP over Gloo for a few steps. Rank 1 is slowed on purpose, by twice the length of a step.
    The run is recorded with tracekit.probe, analysed, and merged into a trace for Perfetto.
    """
    if find_spec("torch") is None:
        raise InputError("the demo trains a model, which needs torch", hint="pip install torch")
    echo(f"training on 2 processes, recording into {output} ...", err=True)
    echo(_train(output), err=True)

    from tracekit.loading.load import load
    from tracekit.model.table import rows_of
    from tracekit.model.texts import file_size
    from tracekit.render.merged.merge import merge
    from tracekit.render.terminal import terminal_text
    from tracekit.report.report import analyze

    run = load(output)
    report = analyze(run)
    echo_drawn(terminal_text(report, extent="answer", **terminal_format()))
    echo()
    assert report.breakdown is not None
    fill = partial(textwrap.fill, width=terminal_format()["width"], break_long_words=False, break_on_hyphens=False)
    echo_drawn(fill("compute + exposed communication + exposed copy + idle = all steps, in ns:") + "\n")
    for row in rows_of(report.breakdown, "ranks"):
        times_ns = [int(row[column]) for column in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")]
        sign = "=" if sum(times_ns) == row["step_ns"] else "!="
        sums = f"{' + '.join(f'{time_ns:,}' for time_ns in times_ns)} {sign} {row['step_ns']:,}"
        echo_drawn(fill(f"rank {row['rank']}: {sums}") + "\n")
    echo()
    trace = output / f"{run.run_id}.pftrace"
    merged = merge(run, trace, report=report, force=True)
    echo(f"{trace}: {merged.ranks} ranks, {merged.slices:,} slices, {file_size(merged.size_bytes)}")
    echo(f"Next: {shlex.join(['tracekit', 'open', str(trace)])}")


def _train(output: Path) -> str:
    """Train, and return the line that says which delay was planted."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tracekit.cli.demo_training", "--out", str(output)]
    # torchrun and torch leave folders there if they are interrupted.
    with tempfile.TemporaryDirectory(prefix="tracekit-demo-", ignore_cleanup_errors=True) as scratch:
        environment = {"OMP_NUM_THREADS": "1"} | os.environ | {"TMPDIR": scratch}
        done = _run(command, environment)
    if done.returncode:
        reason = next(
            (line for line in reversed(done.stderr.splitlines()) if "Error" in line), done.stderr.strip()[-200:]
        )
        hint = f"run it yourself to see all it prints: {shlex.join(command)}"
        raise InputError(f"the training failed with exit code {done.returncode}: {reason}", hint=hint)
    return next((line for line in done.stdout.splitlines() if line.startswith(PLANTED)), "")


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run torchrun. If this process is interrupted or waits for too long, torchrun has time to end its processes."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as training:
        try:
            output, errors = training.communicate(timeout=_TRAINING_SECONDS)
        except BaseException as error:
            training.terminate()
            with suppress(subprocess.TimeoutExpired):
                training.communicate(timeout=_ENDING_SECONDS)
            training.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                hint = "two processes that talk over the loopback interface are needed; is it blocked?"
                raise InputError(f"the training did not end within {_TRAINING_SECONDS} s", hint=hint) from None
            raise
    return subprocess.CompletedProcess(command, training.returncode, output, errors)
