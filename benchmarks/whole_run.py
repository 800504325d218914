"""What a whole analysis of a run of big ranks costs, cold and from the cache, with one job and with two.

Comes in: a run of 8 ranks, packed with gzip. Goes out: CPU and wall seconds; memory of the largest worker, also against
the JSON of its rank, and of the parent, also with a quarter of the ranks. A cold run has an empty cache and fills it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.measure import Cost, measure, said, turns
from benchmarks.results import Row
from benchmarks.samples import ratios
from benchmarks.tools import BIG, SMALL, Setup

NAME = "whole run"
RANKS, FEW = 8, 2
TARGETS = {"cold, 1 job": "<= 8", "cached, 1 job": "<= 2"}


def rows(setup: Setup) -> list[Row]:
    repeats = SMALL if setup.quick else BIG
    run = setup.run(RANKS, repeats)
    costs: dict[str, list[Cost]] = {}
    for number in range(setup.runs):
        for jobs in turns(["1", "2"], number):
            plural = "job" if jobs == "1" else "jobs"
            with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder:
                command = setup.analyze(run, "--jobs", jobs, cache=Path(folder))
                for state in ("cold", "cached"):
                    name = f"{state}, {jobs} {plural}"
                    cost = said(f"run {number + 1}: {name}", measure(command))
                    costs.setdefault(name, []).append(cost)
        few = setup.analyze(run, "--jobs", "2", "--ranks", f"0-{FEW - 1}")
        costs.setdefault("few", []).append(said(f"run {number + 1}: {FEW} ranks", measure(few)))
    few_ranks = costs.pop("few")
    size_bytes = unpacked_bytes(run / "rank0.json.gz")
    found = []
    for name in sorted(costs):
        for what, unit, values in (
            ("", "CPU s", [cost.cpu_s for cost in costs[name]]),
            (", wall", "s", [cost.wall_s for cost in costs[name]]),
        ):
            target = TARGETS.get(name, "") if unit == "CPU s" and not setup.quick else ""
            found.append(Row(benchmark=NAME, what=name + what, unit=unit, values=tuple(values), target=target))
    cold = costs["cold, 2 jobs"]
    cached = ratios([cost.cpu_s for cost in costs["cold, 1 job"]], [cost.cpu_s for cost in costs["cached, 1 job"]])
    found.append(Row(benchmark=NAME, what="cold / cached, 1 job", unit="x", values=tuple(cached)))
    workers = [cost.worker_peak_bytes for cost in cold if cost.worker_peak_bytes is not None]
    least = (0.6 * size_bytes + 150e6) / 1e6
    found += [
        _memory("peak memory of a worker", workers, f"<= {least:.0f}"),
        _memory(f"peak memory of the parent, {RANKS} ranks", [cost.main_peak_bytes for cost in cold]),
        _memory(f"peak memory of the parent, {FEW} ranks", [cost.main_peak_bytes for cost in few_ranks]),
    ]
    against_json = tuple(peak / size_bytes for peak in workers)
    found.append(Row(benchmark=NAME, what="peak memory of a worker / JSON of its rank", unit="x", values=against_json))
    return found


def unpacked_bytes(path: Path) -> int:
    """What gzip says of the size of its text, which is right below 4 GiB."""
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(), "little")


def _memory(what: str, peaks_bytes: list[int | None] | list[int], target: str = "") -> Row:
    known = tuple(peak / 1e6 for peak in peaks_bytes if peak is not None)
    reason = "" if known else "this system does not tell the memory of processes apart"
    return Row(benchmark=NAME, what=what, unit="MB", values=known, target=target, reason=reason)
