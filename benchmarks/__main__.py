"""What tracekit's analyses cost: against HTA and TraceLens, against the limit, and how it grows.

    python -m benchmarks [NAME...] [--quick] [--runs 3] [--json FILE] [--tracelens DIR]

The inputs are made of the A100 trace in $TRACEKIT_REAL_TRACES and kept in build/benchmarks (2 GB). A Markdown table
goes to stdout, progress to stderr, and JSON for `python -m benchmarks.compare` to a file on request.

Every run is a fresh process. The commands of a comparison alternate in rounds. A ratio is computed in each round, and
the median over the rounds is stated. No time makes the command fail.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from benchmarks.costs import growth, hta_bridge, limits, many_ranks, merging, one_more_rank, start, whole_run
from benchmarks.measuring import machine
from benchmarks.measuring.results import Row, markdown, write_json
from benchmarks.measuring.tools import BIG, SMALL, Setup

BENCHMARKS = {
    "start": start.rows,
    "one_more_rank": one_more_rank.rows,
    "whole_run": whole_run.rows,
    "limits": limits.rows,
    "growth": growth.rows,
    "many_ranks": many_ranks.rows,
    "merging": merging.rows,
    "hta_bridge": hta_bridge.rows,
}
SEED = "single_rank/a100_ddp_rank0_of_2.json.gz"
INPUTS = machine.ROOT / "build" / "benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="small inputs: about three minutes in all")
    parser.add_argument("--runs", type=int, default=3, help="rounds of each comparison (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value to this file")
    parser.add_argument("--inputs", type=Path, default=INPUTS, help="folder of the inputs, kept")
    growth_help = f"10 MB each of growth's ranks (default: {SMALL}; big: {BIG})"
    parser.add_argument("--growth-repeats", type=int, help=growth_help)
    parser.add_argument("--hta-python", default=sys.executable, help="an interpreter that has HTA (default: this one)")
    parser.add_argument("--tracelens", type=Path, metavar="DIR", help="a checkout of TraceLens")
    parser.add_argument("--tracelens-python", default=sys.executable, help="an interpreter that has what it imports")
    options = parser.parse_args()
    if unknown := set(options.names) - BENCHMARKS.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    traces = os.environ.get("TRACEKIT_REAL_TRACES")
    if not traces:
        parser.error("set TRACEKIT_REAL_TRACES to the folder of real traces: the inputs are made from one of them")
    facts = machine.facts(options.hta_python, options.tracelens)
    repeats = options.growth_repeats or (1 if options.quick else SMALL)
    facts["inputs"] = f"{'small' if options.quick else 'big'}, growth's ranks of {10 * repeats} MB"
    setup = Setup(
        runs=options.runs,
        quick=options.quick,
        seed=Path(traces) / SEED,
        inputs=options.inputs,
        growth_repeats=repeats,
        hta_python=options.hta_python if facts["hta"] else None,
        tracelens=options.tracelens,
        tracelens_python=options.tracelens_python,
    )
    begun_s = time.monotonic()
    rows: list[Row] = []
    for name in options.names or BENCHMARKS:
        print(f"{name}:", file=sys.stderr, flush=True)
        rows += BENCHMARKS[name](setup)
        if options.json is not None:  # a later failure then loses no result
            write_json(options.json, rows, facts)
    print(markdown(rows))
    print(f"\n{machine.in_words(facts)}; {(time.monotonic() - begun_s) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
