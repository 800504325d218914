"""How cost grows with ranks and with events: twice as many should cost twice as much.

The runs have 1, 2, 4 ... 64 ranks, or one rank with 1, 2, 4 ... 16 times the events. For each size its CPU time is
divided by that of half the size. The CPU time of analysing a nearly empty trace is taken off both first. Each analysis
is one process, without a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.measuring.empty_run import nearly_empty_run
from benchmarks.measuring.measure import alternate
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import doublings
from benchmarks.measuring.tools import SMALL, Setup

NAME = "growth"
RANKS, FEW_RANKS = (1, 2, 4, 8, 16, 32, 64), (1, 2, 4, 8)
EVENTS, FEW_EVENTS = (1, 2, 4, 8, 16), (1, 2, 4)
TARGET = "1.9 - 2.1"
EMPTY_RUN = "a nearly empty trace"


def rows(setup: Setup) -> list[Row]:
    ranks = {count: setup.run(count, setup.growth_repeats) for count in (FEW_RANKS if setup.quick else RANKS)}
    sizes, repeats = (FEW_EVENTS, 1) if setup.quick else (EVENTS, SMALL)
    events = {times: setup.run(1, times * repeats) for times in sizes}
    grown = {"ranks": ranks, "times the events": events}
    commands = {
        f"{size} {of_what}": setup.analyze(run, "--jobs", "1")
        for of_what, runs in grown.items()
        for size, run in runs.items()
    }
    with nearly_empty_run() as empty_run:
        costs = alternate({EMPTY_RUN: setup.analyze(empty_run, "--jobs", "1")} | commands, setup.runs)
    spent = {name: [cost.cpu_s for cost in of_name] for name, of_name in costs.items()}
    found = [row(NAME, EMPTY_RUN, "CPU s", spent[EMPTY_RUN])]
    for of_what, runs in grown.items():
        found += _growth(of_what, {size: spent[f"{size} {of_what}"] for size in runs}, spent[EMPTY_RUN])
    return found


def _growth(of_what: str, of_size: Mapping[int, Sequence[float]], empty: Sequence[float]) -> Iterator[Row]:
    for size, values in doublings(of_size, empty).items():
        what = f"{size // 2} to {size} {of_what}"
        yield row(NAME, what, "x", values, TARGET)
    most = max(of_size)
    yield row(NAME, f"{most} {of_what}", "CPU s", of_size[most])
