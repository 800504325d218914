"""What one more rank costs, against Holistic Trace Analysis and TraceLens.

Comes in: a run of big ranks, packed with gzip. Goes out: CPU seconds a rank of each tool, and how many times tracekit's
the others' are.

A rank's cost is the difference between a run with several and with one, over the ranks between them: the start of the
interpreter and imports, which take HTA and TraceLens longer, are in none of the figures. HTA is asked for overlap and
temporal breakdown, TraceLens for matched collectives; tracekit does both, and aligns clocks, in either comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import Command, alternate
from benchmarks.results import Row
from benchmarks.samples import one_more, ratios
from benchmarks.tools import BIG, SMALL, Setup

NAME = "one more rank"
SECTIONS = ("--only", "breakdown,overlap", "--jobs", "1")
OURS, PORTABLE, HTA, TRACELENS = "tracekit", "tracekit, portable decoder", "HTA 0.5.0", "TraceLens"
# Ranks of the larger run: what takes tenths of seconds needs more of them to stand out.
RANKS = {OURS: 8, PORTABLE: 4, HTA: 2, TRACELENS: 2}
TARGETS = {(HTA, OURS): ">= 50x", (HTA, PORTABLE): ">= 9x", (TRACELENS, OURS): ">= 10x"}


def rows(setup: Setup) -> list[Row]:
    run = setup.run(max(RANKS.values()), SMALL if setup.quick else BIG)
    tools: dict[str, Callable[[Path], Command]] = {
        OURS: lambda folder: setup.analyze(folder, *SECTIONS),
        PORTABLE: lambda folder: setup.analyze(folder, *SECTIONS, decoder="portable"),
        HTA: setup.hta,
    }
    checkout = setup.tracelens
    if checkout is not None:
        tools[TRACELENS] = lambda folder: setup.match_with_tracelens(folder, checkout)
    with ExitStack() as folders:
        commands = {
            f"{tool}, {count} ranks": command(folders.enter_context(setup.first_ranks(run, count)))
            for tool, command in tools.items()
            for count in (1, RANKS[tool])
        }
        costs = alternate(commands, setup.runs)
    spent = {name: [cost.cpu_s for cost in of_name] for name, of_name in costs.items()}
    a_rank = {
        tool: one_more(spent[f"{tool}, 1 ranks"], spent[f"{tool}, {RANKS[tool]} ranks"], RANKS[tool]) for tool in tools
    }
    found = [Row(benchmark=NAME, what=tool, unit="CPU s", values=tuple(values)) for tool, values in a_rank.items()]
    found += [
        Row(
            benchmark=NAME,
            what=f"peak memory, {tool}, 1 rank",
            unit="MB",
            values=tuple(cost.peak_bytes / 1e6 for cost in costs[f"{tool}, 1 ranks"]),
        )
        for tool in tools
    ]
    for (theirs, ours), target in TARGETS.items():
        what = f"{theirs} / {ours}"
        if theirs in tools:
            values = tuple(ratios(a_rank[theirs], a_rank[ours]))
            found.append(Row(benchmark=NAME, what=what, unit="x", values=values, target=target))
        else:
            reason = "no checkout was given (--tracelens)"
            found.append(Row(benchmark=NAME, what=what, unit="x", target=target, reason=reason))
    return found
