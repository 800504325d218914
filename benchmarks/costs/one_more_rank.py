"""What one more rank costs, against Holistic Trace Analysis and TraceLens.

Measured are the CPU seconds a rank of each tool, and their ratios. A rank's cost is the cost of several ranks less that
of one rank, divided by the number of additional ranks. It therefore contains neither the start of the interpreter nor
imports, which take HTA and TraceLens longer.

HTA computes overlap and temporal breakdown, TraceLens matches collectives. In either comparison tracekit does both and
aligns clocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measuring.measure import Command, alternate
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import one_more, ratios
from benchmarks.measuring.tools import BIG, SMALL, Setup

NAME = "one more rank"
SECTIONS = ("--section", "breakdown,overlap", "--jobs", "1")
OURS, PORTABLE, HTA, TRACELENS = "tracekit", "tracekit, portable decoder", "HTA", "TraceLens"
# Ranks of the larger run. A tool that takes tenths of a second a rank needs more of them against the noise.
RANKS = {OURS: 8, PORTABLE: 4, HTA: 2, TRACELENS: 4}
MISSING = {HTA: "HTA is not installed (--hta-python)", TRACELENS: "no checkout was given (--tracelens)"}
TARGETS = {(HTA, OURS): ">= 50x", (HTA, PORTABLE): ">= 9x", (TRACELENS, OURS): ">= 10x"}


def rows(setup: Setup) -> list[Row]:
    run = setup.run(max(RANKS.values()), SMALL if setup.quick else BIG)
    tools: dict[str, Callable[[Path], Command | None]] = {
        OURS: lambda folder: setup.analyze(folder, *SECTIONS),
        PORTABLE: lambda folder: setup.analyze(folder, *SECTIONS, decoder="portable"),
        HTA: setup.hta,
        TRACELENS: setup.match_with_tracelens,
    }
    commands: dict[str, Command] = {}
    with ExitStack() as folders:
        for tool, command in tools.items():
            for count in (1, RANKS[tool]):
                given = command(folders.enter_context(setup.first_ranks(run, count)))
                if given is not None:
                    commands[_name(tool, count)] = given
        costs = alternate(commands, setup.runs)
    spent = {name: [cost.cpu_s for cost in of_name] for name, of_name in costs.items()}
    found, a_rank = [], {}
    for tool, ranks in RANKS.items():
        one, many = _name(tool, 1), _name(tool, ranks)
        if one not in costs:
            continue
        a_rank[tool] = one_more(spent[one], spent[many], ranks)
        peaks_mb = [cost.peak_bytes / 1e6 for cost in costs[one]]
        found += [
            row(NAME, tool, "CPU s", a_rank[tool]),
            row(NAME, f"{tool}, peak memory of one rank", "MB", peaks_mb),
        ]
    for (theirs, ours), target in TARGETS.items():
        what = f"{theirs} / {ours}"
        if theirs in a_rank:
            found.append(row(NAME, what, "x", ratios(a_rank[theirs], a_rank[ours]), target))
        else:
            found.append(Row(benchmark=NAME, what=what, unit="x", target=target, reason=MISSING[theirs]))
    return found


def _name(tool: str, ranks: int) -> str:
    return f"{tool}, {ranks} {'rank' if ranks == 1 else 'ranks'}"
