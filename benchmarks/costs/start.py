"""What it costs to start the command: `tracekit --help`.

The cost of the bare interpreter, which is part of it, stands beside it.
"""

from __future__ import annotations

import sys

from benchmarks.measuring.measure import Command, alternate
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.tools import Setup

NAME = "start"
LEAST_RUNS = 10  # it takes a tenth of a second, and varies as much as longer commands do
TARGETS = {"tracekit --help": "<= 0.15"}


def rows(setup: Setup) -> list[Row]:
    commands = {
        "tracekit --help": Command(arguments=(sys.executable, "-m", "tracekit", "--help")),
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
