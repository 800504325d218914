"""What a run of very many small ranks costs, end to end, and whether the cost grows faster than the number of ranks.

The runs have 256, 512 and 1024 ranks of 10 MB of JSON each. Measured are CPU and wall seconds with one job a processor,
the parent's peak memory, the size of the JSON result, and the ratio of the costs when the ranks double. Each run is
analysed twice: with an empty cache, then from the cache.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measuring.empty_run import nearly_empty_run
from benchmarks.measuring.measure import Cost, alternate, log_cost, measure, round_order
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import doublings
from benchmarks.measuring.tools import Setup
from tracekit.loading.workers import processors

NAME = "many ranks"
RANKS, FEW_RANKS = (256, 512, 1024), (16, 32, 64)


def rows(setup: Setup) -> list[Row]:
    sizes = FEW_RANKS if setup.quick else RANKS
    runs = {ranks: setup.run(ranks, 1) for ranks in sizes}
    costs: dict[str, list[Cost]] = {}
    sizes_bytes: dict[int, float] = {}
    for number in range(setup.runs):
        for ranks in round_order(map(str, sizes), number):
            with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
                result = Path(folder) / "result.json"
                command = setup.analyze(runs[int(ranks)], "-o", str(result), "--force", cache=Path(folder) / "cache")
                for state in ("cold", "cached"):
                    cost = log_cost(f"run {number + 1}: {ranks} ranks, {state}", measure(command))
                    costs.setdefault(f"{ranks} ranks, {state}", []).append(cost)
                sizes_bytes[int(ranks)] = result.stat().st_size
    # With as many workers as the other runs, whose start is then taken off their cost.
    with nearly_empty_run(processors()) as run:
        empty = alternate({"empty": setup.analyze(run, "--jobs", str(processors()))}, setup.runs)["empty"]
    most = max(sizes)
    cold = {ranks: costs[f"{ranks} ranks, cold"] for ranks in sizes}
    parents = {ranks: [cost.main_peak_bytes for cost in cold[ranks] if cost.main_peak_bytes] for ranks in sizes}
    spent_s = {ranks: [cost.cpu_s for cost in cold[ranks]] for ranks in sizes}
    found = [
        row(NAME, f"{most} ranks, cold", "CPU s", spent_s[most]),
        row(NAME, f"{most} ranks, cold, wall", "s", [cost.wall_s for cost in cold[most]]),
        row(NAME, f"{most} ranks, cached", "CPU s", [cost.cpu_s for cost in costs[f"{most} ranks, cached"]]),
        row(NAME, f"JSON of {most} ranks", "MB", [sizes_bytes[most] / 1e6], "" if setup.quick else "<= 20"),
    ]
    found += [
        row(
            NAME,
            f"peak memory of the parent, {ranks} ranks",
            "MB",
            [peak / 1e6 for peak in parents[ranks]],
            "<= 1000" if ranks == max(RANKS) else "",
        )
        for ranks in sizes
    ]
    empty_s = [cost.cpu_s for cost in empty]
    found += [
        row(NAME, f"CPU, {ranks // 2} to {ranks} ranks", "x", values, "1.9 - 2.1")
        for ranks, values in doublings(spent_s, empty_s).items()
    ]
    return found
