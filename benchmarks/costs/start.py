"""What it costs to start a command: `tracekit --help`, and `tracekit analyze` of a small run that is in the cache.

The cost of the bare interpreter, which is part of both, stands beside them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.measuring.machine import ROOT
from benchmarks.measuring.measure import Command, alternate, measure
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.tools import Setup

NAME = "start"
LEAST_RUNS = 10  # it takes tenths of a second, and varies as much as longer commands do
SMALL_RUN = ROOT / "tests" / "data" / "ddp_slow_rank"
HELP, ANALYZE = "tracekit --help", "tracekit analyze, small run in the cache"
TARGETS = {HELP: "<= 0.15", ANALYZE: "<= 0.35"}


def rows(setup: Setup) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
        analyze = setup.analyze(SMALL_RUN, cache=Path(folder))
        measure(analyze)  # fills the cache
        commands = {
            HELP: Command(arguments=(sys.executable, "-m", "tracekit", "--help")),
            ANALYZE: analyze,
            "python -c pass": Command(arguments=(sys.executable, "-c", "pass")),
        }
        costs = alternate(commands, max(setup.runs, LEAST_RUNS))
    found = []
    for name, of_name in costs.items():
        found += [
            row(NAME, name, "CPU s", [cost.cpu_s for cost in of_name]),
            row(NAME, f"{name}, wall", "s", [cost.wall_s for cost in of_name], TARGETS.get(name, "")),
        ]
    return found
