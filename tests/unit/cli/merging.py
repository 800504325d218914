"""Runs to merge, and `tracekit merge` of them."""

from __future__ import annotations

import os
from pathlib import Path

from click.testing import CliRunner, Result

from tests.builders import TraceBuilder, write_run
from tracekit.cli import cli


def run_to_merge(folder: Path) -> Path:
    """Write a run of two ranks with three steps of a launch and a kernel; return its folder."""
    ranks = []
    for rank in (0, 1):
        trace = TraceBuilder(rank)
        for k in range(3):
            trace.step(k, 100 * k, 100).kernel("gemm", 100 * k, 50, launched_at=100 * k)
        ranks.append(trace)
    return write_run(folder, ranks)


def without_unicode(run: Path) -> Path:
    """Rename a run's folder and files to bytes that are no UTF-8; return the folder."""
    for file in run.glob("rank*"):
        file.rename(run / os.fsdecode(file.name.encode().replace(b"rank", b"rank\xff-")))
    return run.rename(run.with_name(os.fsdecode(b"run\xff")))


def merge(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["merge", *map(str, arguments)])
