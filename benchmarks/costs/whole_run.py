"""What a whole analysis of a run of big ranks costs, cold and from the cache, with one job and with two.

The run has 8 ranks, packed with gzip. A cold analysis starts with an empty cache and fills it. Measured are CPU and
wall seconds, and peak memory: of the largest worker, in bytes and as a multiple of its rank's JSON, and of the parent,
with all ranks and with a quarter of them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measuring.measure import Cost, log_cost, measure, round_order
from benchmarks.measuring.results import Row, row
from benchmarks.measuring.samples import ratios
from benchmarks.measuring.tools import BIG, SMALL, Setup

NAME = "whole run"
RANKS, FEW = 8, 2
TARGETS = {"cold, 1 job": "<= 8", "cached, 1 job": "<= 2"}


def rows(setup: Setup) -> list[Row]:
    run = setup.run(RANKS, SMALL if setup.quick else BIG)
    costs = _measured(setup, run)
    found = []
    for name in ("cold, 1 job", "cold, 2 jobs", "cached, 1 job", "cached, 2 jobs"):
        target = "" if setup.quick else TARGETS.get(name, "")
        found += [
            row(NAME, name, "CPU s", [cost.cpu_s for cost in costs[name]], target),
            row(NAME, f"{name}, wall", "s", [cost.wall_s for cost in costs[name]]),
        ]
    cold, cached = ([cost.cpu_s for cost in costs[name]] for name in ("cold, 1 job", "cached, 1 job"))
    found.append(row(NAME, "cold / cached, 1 job", "x", ratios(cold, cached)))
    size_bytes = unpacked_bytes(run / "rank0.json.gz")
    with_workers = costs["cold, 2 jobs"]
    workers = [cost.worker_peak_bytes for cost in with_workers if cost.worker_peak_bytes is not None]
    wanted = f"<= {(0.6 * size_bytes + 150e6) / 1e6:.0f}"
    found += [
        row(NAME, "peak memory of a worker", "MB", [peak / 1e6 for peak in workers], wanted),
        row(NAME, "peak memory of a worker / JSON of its rank", "x", [peak / size_bytes for peak in workers]),
    ]
    for ranks, of_ranks in ((FEW, costs["few"]), (RANKS, with_workers)):
        parents_mb = [cost.main_peak_bytes / 1e6 for cost in of_ranks if cost.main_peak_bytes is not None]
        found.append(row(NAME, f"peak memory of the parent, {ranks} ranks", "MB", parents_mb))
    return found


def _measured(setup: Setup, run: Path) -> dict[str, list[Cost]]:
    """Return the costs by state of the cache and number of jobs. "few" is cold, with two jobs and few ranks."""
    costs: dict[str, list[Cost]] = {}
    with setup.first_ranks(run, FEW) as few:
        for number in range(setup.runs):
            for name in round_order(["1 job", "2 jobs", "few"], number):
                jobs = "1" if name == "1 job" else "2"
                with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
                    command = setup.analyze(few if name == "few" else run, "--jobs", jobs, cache=Path(folder))
                    for state in ("few",) if name == "few" else (f"cold, {name}", f"cached, {name}"):
                        costs.setdefault(state, []).append(log_cost(f"run {number + 1}: {state}", measure(command)))
    return costs


def unpacked_bytes(path: Path) -> int:
    """Return the size of the unpacked text that the gzip trailer states; right below 4 GiB."""
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(), "little")
