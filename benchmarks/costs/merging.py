"""What merging ranks into one Perfetto trace costs, against TraceLens' fusion, and whether memory grows with ranks.

Measured are the CPU seconds of both tools for two ranks, from the command to the file, and for one more rank. The speed
of writing slices is measured without decoding, and peak memory with 2 and with 16 ranks.

Both tools read the same files and write slices with their arguments and arrows. tracekit also aligns clocks and adds
the findings of its analysis; its cache is off.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measuring.measure import Command, alternate, log_cost, measure
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import one_more, ratios
from benchmarks.measuring.tools import BIG, SMALL, Setup

NAME = "merging"
RANKS = (1, 2)
FEW, MANY = 2, 16
OURS, TRACELENS = "tracekit merge", "TraceLens fusion"
_TIMES_A_ROUND = 5  # the median of them counts: a command of two seconds is easily disturbed

_WRITE = """
import sys, tempfile, time
from pathlib import Path
from tracekit.loading.load import load
from tracekit.loading.options import SummaryOptions
from tracekit.process_tuning import tune_cli_process
from tracekit.read.cache.cache_dir import DecodedSpool
from tracekit.render.merged.derived_tracks import SliceFilter
from tracekit.render.merged.plan import plan_of
from tracekit.render.merged.rank_page import write_rank
from tracekit.render.perfetto import PerfettoFormat

tune_cli_process()
with tempfile.TemporaryDirectory() as folder:
    spool = DecodedSpool(folder=Path(folder))
    (plan,) = plan_of(load(sys.argv[1], spool=spool)).ranks
    with (Path(folder) / "part").open("wb") as stream:
        begin_s = time.process_time()
        counts = write_rank(PerfettoFormat(start_ns=0).writer(stream, 0), plan, SummaryOptions(), SliceFilter(), spool)
        print(counts.slices / (time.process_time() - begin_s))
"""


def rows(setup: Setup) -> list[Row]:
    run = setup.run(8, SMALL if setup.quick else BIG)
    found = []
    with ExitStack() as folders:
        ranks = {count: folders.enter_context(setup.first_ranks(run, count)) for count in RANKS}
        output = Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="tracekit-bench-")))
        found += _against_tracelens(setup, ranks, output)
        found.append(_writing(setup, ranks[1]))
        found += _memory(setup, output)
    return found


def _against_tracelens(setup: Setup, ranks: dict[int, Path], output: Path) -> list[Row]:
    commands: dict[str, Command] = {}
    for count, folder in ranks.items():
        merging = setup.merge(folder, output / "run.pftrace", "--jobs", "1")
        commands |= {f"{OURS}, {count}, {time}": merging for time in range(_TIMES_A_ROUND)}
        fusion = setup.fuse_with_tracelens(folder, output / "fused.json")
        if fusion is not None:
            commands[f"{TRACELENS}, {count}"] = fusion
    costs = alternate(commands, setup.runs)
    spent = {name: [cost.cpu_s for cost in of_name] for name, of_name in costs.items()}
    for count in ranks:
        a_round = zip(*(spent.pop(f"{OURS}, {count}, {time}") for time in range(_TIMES_A_ROUND)), strict=True)
        spent[f"{OURS}, {count}"] = [statistics.median(times) for times in a_round]
    few, more = RANKS
    found = []
    a_rank = {}
    for tool in (OURS, TRACELENS):
        if f"{tool}, {more}" in spent:
            a_rank[tool] = one_more(spent[f"{tool}, {few}"], spent[f"{tool}, {more}"], more)
            found.append(row(NAME, f"{tool}, {more} ranks", "CPU s", spent[f"{tool}, {more}"]))
            found.append(row(NAME, f"{tool}, one rank more", "CPU s", a_rank[tool]))
    if TRACELENS in a_rank:
        whole = ratios(spent[f"{TRACELENS}, {more}"], spent[f"{OURS}, {more}"])
        found.append(row(NAME, f"TraceLens / tracekit, {more} ranks", "x", whole, ">= 50x"))
        found.append(row(NAME, "TraceLens / tracekit, one rank more", "x", ratios(a_rank[TRACELENS], a_rank[OURS])))
    else:
        what, reason = f"TraceLens / tracekit, {more} ranks", "no checkout was given (--tracelens)"
        found.append(Row(benchmark=NAME, what=what, unit="x", target=">= 50x", reason=reason))
    return found


def _writing(setup: Setup, rank: Path) -> Row:
    command = Command(arguments=(sys.executable, "-c", _WRITE, str(rank)))
    speeds = [
        statistics.median(
            float(log_cost(f"run {number + 1}: writing, {time}", measure(command)).output) / 1e6
            for time in range(_TIMES_A_ROUND)
        )
        for number in range(setup.runs)
    ]
    return row(NAME, "slices written, decoding apart", "M/CPU s", speeds, ">= 2")


def _memory(setup: Setup, output: Path) -> list[Row]:
    run = setup.run(MANY, SMALL)
    peaks: dict[int, list[float]] = {}
    with setup.first_ranks(run, FEW) as few:
        for number in range(setup.runs):
            for count, folder in ((FEW, few), (MANY, run)):
                command = setup.merge(folder, output / "run.pftrace", "--jobs", "2")
                cost = log_cost(f"run {number + 1}: merging {count} ranks", measure(command))
                peaks.setdefault(count, []).append(cost.peak_bytes / 1e6)
    found = [row(NAME, f"peak memory, {count} ranks", "MB", of_count) for count, of_count in peaks.items()]
    growth = ratios(peaks[MANY], peaks[FEW])
    return [*found, row(NAME, f"peak memory, {MANY} ranks / {FEW}", "x", growth, "<= 1.2")]
