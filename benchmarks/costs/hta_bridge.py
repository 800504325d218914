"""What it costs to fill HTA with the traces of a run: with HTA's own parser, and with tracekit's decoder.

Each run is a fresh process. It imports both packages first, so that only the load is measured: CPU seconds of the
process and of its children, which HTA starts for several ranks.

* hta: `TraceAnalysis(trace_files=...)`.
* to_hta(run): of a run that was loaded before, without a cache.
* to_hta(path): from the path, which finds the files, too. It has no cache.
* load, to_hta(run): from the path, with all of our own analysis of each rank, without a cache and from a cache.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.measuring.measure import Command, log_cost, measure, round_order
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import ratios
from benchmarks.measuring.tools import Setup

NAME = "HTA bridge"
TARGET = ">= 20"
TRACES = {
    "DLRM, 8 ranks": "dlrm_8xV100",
    "A100": "single_rank/a100_ddp_rank0_of_2.json.gz",
    "B200": "single_rank/b200_tp8_custom_allreduce.json.gz",
    "MI300X": "single_rank/mi300x_resnet_rank0_of_8.json.gz",
}

# On pandas 3 HTA cannot link launches in its narrow columns; a wide column changes neither result nor cost.
_LOAD = """
import logging, resource, sys
import hta.common.trace as trace
import pandas
from hta.trace_analysis import TraceAnalysis
import tracekit
import tracekit.hta.trace
tracekit.load  # imports the analyses
pandas.Series([], dtype="string")  # imports parts of pyarrow, at the first use in either parser
logging.disable(logging.CRITICAL)
link = trace.transform_correlation_to_index

def link_in_wide_columns(frame, symbols):
    frame["correlation"] = frame["correlation"].astype("int64")
    return link(frame, symbols)

trace.transform_correlation_to_index = link_in_wide_columns

def cpu_s():
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)

if __name__ == "__main__":
    how, path, cache = sys.argv[1:]
    cache = cache or False
    run = tracekit.load(path) if how in {"hta", "to_hta(run)"} else None
    files = {} if run is None else {rank.rank: rank.files[0] for rank in run.ranks}
    begun_s = cpu_s()
    if how == "hta":
        TraceAnalysis(trace_files=files)
    elif how == "to_hta(path)":
        tracekit.to_hta(path)
    else:
        tracekit.to_hta(run or tracekit.load(path, cache=cache))
    print(cpu_s() - begun_s)
"""


def rows(setup: Setup) -> list[Row]:
    traces = setup.seed.parents[1]
    found: list[Row] = []
    for name, place in TRACES.items():
        found += _rows_of(setup, name, traces / place)
    return found


def _rows_of(setup: Setup, name: str, path: Path) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as cache:
        commands = {
            "hta": _command("hta", path),
            "to_hta(run)": _command("to_hta(run)", path),
            "to_hta(path)": _command("to_hta(path)", path),
            "load, to_hta(run)": _command("load, to_hta(run)", path),
            "load from the cache, to_hta(run)": _command("load, to_hta(run)", path, cache),
        }
        measure(commands["load from the cache, to_hta(run)"])  # fills the cache
        cpu_s: dict[str, list[float]] = {each: [] for each in commands}
        for number in range(setup.runs):
            for each in round_order(commands, number):
                cost = log_cost(f"run {number + 1}: {name}, {each}", measure(commands[each]))
                cpu_s[each].append(float(cost.output))
    return [*_costs(name, cpu_s), *_ratios(name, cpu_s)]


def _command(how: str, path: Path, cache: str = "") -> Command:
    return Command(arguments=(sys.executable, "-c", _LOAD, how, str(path), cache))


def _costs(name: str, cpu_s: Mapping[str, list[float]]) -> list[Row]:
    return [row(NAME, f"{name}: {each}", "CPU ms", [1000 * value for value in cpu_s[each]]) for each in cpu_s]


def _ratios(name: str, cpu_s: Mapping[str, list[float]]) -> list[Row]:
    targets = {"to_hta(run)": TARGET, "to_hta(path)": TARGET}
    return [
        row(NAME, f"{name}: hta / {each}", "x", ratios(cpu_s["hta"], cpu_s[each]), targets.get(each, ""))
        for each in cpu_s
        if each != "hta"
    ]
