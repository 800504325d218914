"""How much less CPU and memory `tracekit analyze` needs than Holistic Trace Analysis, on the same run.

    python benchmarks/against_hta.py [--hta-python PATH] [--runs 3] [--repeat 27] [--gz]

Comes in: $TRACEKIT_REAL_TRACES, whose A100 trace is repeated to a run of one rank (27 times: 269 MB of JSON).
Goes out: a table on stdout. Each run is a fresh process, the two tools alternate, and the ratios are those of the
medians of one invocation: machines differ, ratios hardly do. CPU is user + system of the process and its children,
memory the highest resident set of any one of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from make_big_run import make_run, read_seed

SEED = "single_rank/a100_ddp_rank0_of_2.json.gz"

# The two questions that both tools answer. HTA draws by default, which would be measured too.
HTA_PROGRAM = """
import sys
from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_dir=sys.argv[1])
print(analysis.get_comm_comp_overlap(visualize=False))
print(analysis.get_temporal_breakdown(visualize=False))
"""


class Cost(NamedTuple):
    cpu_s: float
    peak_bytes: int


def measure(command: list[str]) -> Cost:
    """Run a command in a fresh process; what it and its children used."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            errors.seek(0)
            raise SystemExit(
                f"{' '.join(command[:3])} ...: exit {process.returncode}\n{errors.read().decode()[-2000:]}"
            )
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def compare(commands: dict[str, list[str]], runs: int) -> dict[str, Cost]:
    """The median cost of each command over alternating runs."""
    costs: dict[str, list[Cost]] = {name: [] for name in commands}
    for run in range(runs):
        # Whoever runs first finds a colder machine: take turns.
        for name in list(commands)[:: 1 if run % 2 == 0 else -1]:
            cost = measure(commands[name])
            costs[name].append(cost)
            print(f"run {run + 1}: {name}: {cost.cpu_s:.2f} CPU s", file=sys.stderr)
    return {
        name: Cost(
            statistics.median(cost.cpu_s for cost in found), int(statistics.median(cost.peak_bytes for cost in found))
        )
        for name, found in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hta-python", default=sys.executable, help="an interpreter that has HTA (default: this one)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each tool (default: 3)")
    parser.add_argument("--repeat", type=int, default=27, help="repeats of the seed, 10 MB each (default: 27)")
    parser.add_argument("--gz", action="store_true", help="pack the trace, as most are")
    options = parser.parse_args()
    traces = os.environ.get("TRACEKIT_REAL_TRACES")
    if not traces:
        parser.error("set TRACEKIT_REAL_TRACES to the folder of real traces: the run is made from one of them")
    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
        run = Path(folder) / "run"
        seed = read_seed(Path(traces) / SEED)
        (trace,) = make_run(run, seed, ranks=1, repeats=options.repeat, compressed=options.gz)
        commands = {
            "tracekit": [sys.executable, "-m", "tracekit", "analyze", str(run), "--only", "breakdown,overlap"],
            "HTA": [options.hta_python, "-c", HTA_PROGRAM, str(run)],
        }
        print(f"{trace.stat().st_size / 1e6:.0f} MB, one rank, medians of {options.runs}:")
        costs = compare(commands, options.runs)
    print(f"{'':18}{'CPU s':>10}{'peak MB':>10}")
    for name, cost in costs.items():
        print(f"{name:18}{cost.cpu_s:10.2f}{cost.peak_bytes / 1e6:10.0f}")
    ours, theirs = costs["tracekit"], costs["HTA"]
    print(f"{'HTA / tracekit':18}{theirs.cpu_s / ours.cpu_s:9.1f}x{theirs.peak_bytes / ours.peak_bytes:9.1f}x")


if __name__ == "__main__":
    main()
