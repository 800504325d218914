"""Whether a process that lives for long, such as a notebook's, keeps anything of the damaged runs that it reads."""

from __future__ import annotations

import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

import tracekit
from tests.damaged_runs.classes import CLASSES
from tests.damaged_runs.good_run import BAD, write_good_run

PASSES = 4

pytestmark = pytest.mark.long


@dataclass(frozen=True)
class Held:
    """What this process holds."""

    memory_bytes: int
    open_files: int
    threads: int


def held() -> Held:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Held(
        memory_bytes=pages * os.sysconf("SC_PAGE_SIZE"),
        open_files=len(list(Path("/proc/self/fd").iterdir())),
        threads=threading.active_count(),
    )


def test_reading_damaged_runs_again_and_again_holds_no_more(tmp_path: Path) -> None:
    """GIVEN a run of each class of damage WHEN each is analysed, written and merged several times THEN the process has
    as many files and threads as after the first time, and its memory hardly grows.
    """
    runs = []
    for number, of_class in enumerate(CLASSES.values()):
        runs.append(write_good_run(tmp_path / f"run{number}"))
        of_class.write(runs[-1] / f"rank{BAD}.json")
    after = []
    for _ in range(PASSES):
        for folder in runs:
            run = tracekit.load(folder, cache=tmp_path / "cache")
            report = tracekit.analyze(run)
            for name in ("report.html", "report.json"):
                report.write(tmp_path / name, force=True)
            tracekit.merge(run, tmp_path / "merged.pftrace", report=report, force=True)
        after.append(held())
    print(*after, sep="\n")
    assert {(held.open_files, held.threads) for held in after} == {(after[0].open_files, after[0].threads)}
    # The first pass also imports, and fills tables of names that are in all runs.
    assert after[-1].memory_bytes - after[1].memory_bytes < 2 << 20, after
