"""The CPU time that the probe adds to a training step, compared with bare torch.profiler with the same flags.

    python -m benchmarks.studies.capture_overhead [--rounds 100] [--workload transformer] [--steps 10] [--json FILE]

A round is a process with one thread that trains three times in random order: without a profiler, recorded by bare
torch.profiler, and by the probe. The CPU time (user + system, all threads) of the recorded steps is compared. The time
from the warm-up to the first recorded step is reported apart, as is the work at the edges of the window, once a job.

The workload `transformer` is a plain training. `gpt` has 12 layers of tiny tensors: nearly all of its time is spent in
the host's calls of operators, as in a job that keeps a fast GPU busy. `parallel` is the plain training as rank 0 of 4,
data and tensor parallel by hand, over torch's fake process group, which communicates with nobody. It shows what the
probe's observers of parallel jobs cost.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.studies.capture_overhead_job import FLAGS, SIZES, Job

ARMS = ("none", "bare", "probe")
CALLS = 2000  # of the decorated function, a batch
MOST_RATIO = 1.05
MOST_IDLE_NS = 1000

# What the probe does at the edges of a window. The CPU time of each excludes that of others that run within it.
EDGES = {
    "pass over the program's objects": ("tracekit.capture.hooks.live_objects:_of_types",),
    "profiler starts": (
        "tracekit.capture.profiler_session:ProfilerSession.prepare",
        "tracekit.capture.profiler_session:ProfilerSession.start",
    ),
    "profiler stops": ("tracekit.capture.profiler_session:ProfilerSession.stop",),
    "observers and groups": (
        "tracekit.capture.recording:Recording.open",
        "tracekit.capture.recording:Recording.close",
        "tracekit.capture.recording:Recording._metadata",
    ),
    "measurement of the cost": tuple(
        f"tracekit.capture.overhead:OverheadMeter.{part}" for part in ("while_recording", "after_recording", "count")
    ),
    "clock pings": ("tracekit.capture.job.clock:HostClock.measure",),
    "export": ("tracekit.capture.profiler_session:ProfilerSession.export",),
    "verification": ("tracekit.capture.output.packing:read_verified",),
    "gzip": ("tracekit.capture.output.packing:_write",),
    "the rest of writing": ("tracekit.capture.windows:Windows._write",),
}
BARE_EDGES = {
    "profiler starts": ("torch.profiler:profile.prepare_trace", "torch.profiler:profile.start_trace"),
    "profiler stops": ("torch.profiler:profile.stop_trace",),
    "export": ("torch.profiler:profile.export_chrome_trace",),
}


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """One run.

    Attributes:
        steps_ns: each recorded step.
        opening_ns: from the end of the warm-up to the first recorded step.
        stated_ns: the recording cost a step that the trace states.
    """

    steps_ns: list[int]
    opening_ns: int
    edges_ns: dict[str, int] = field(default_factory=dict)
    events: int = 0
    stated_ns: int | None = None

    @property
    def step_ns(self) -> float:
        return statistics.fmean(self.steps_ns)


class Stopwatch:
    """CPU time by name. Nested measurements are not counted twice."""

    def __init__(self) -> None:
        self.spent_ns: Counter[str] = Counter()
        self._within_ns = [0]

    def patch(self, edges: dict[str, tuple[str, ...]]) -> None:
        for name, places in edges.items():
            for place in places:
                module, _, path = place.partition(":")
                *owners, function = path.split(".")
                owner = functools.reduce(getattr, owners, importlib.import_module(module))
                original = getattr(owner, function)
                replacement = self._timed(name, original)
                setattr(owner, function, replacement)
                for other in sys.modules.values():  # where it was imported by name
                    if not owners and vars(other).get(function) is original:
                        setattr(other, function, replacement)

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin_ns = time.process_time_ns()
            self._within_ns.append(0)
            try:
                return function(*args, **kwargs)
            finally:
                whole_ns = time.process_time_ns() - begin_ns
                self.spent_ns[name] += whole_ns - self._within_ns.pop()
                self._within_ns[-1] += whole_ns

        return timed


def run(arms: Sequence[str], workload: str, steps: int) -> dict[str, TrainingCost]:
    """Train in this process, recorded as each of `arms` says, one after the other; return what was measured."""
    job, stopwatch = Job(workload), Stopwatch()
    job.run_alone(steps)
    stopwatch.patch(EDGES)
    stopwatch.patch(BARE_EDGES)
    costs = {}
    for arm in arms:
        stopwatch.spent_ns.clear()
        with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder, quiet():
            if arm == "probe":
                job.run_with_probe(Path(folder), steps)
            elif arm == "bare":
                job.run_with_profiler(Path(folder), steps)
            else:
                job.run_alone(steps)
            events, stated_ns = job.read(Path(folder)) if arm == "probe" else (0, None)
        opening_ns, *steps_ns = job.step_ns(steps)
        costs[arm] = TrainingCost(
            steps_ns=steps_ns,
            opening_ns=opening_ns,
            edges_ns=dict(stopwatch.spent_ns),
            events=events,
            stated_ns=stated_ns,
        )
    return costs


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Discard stderr, to which torch's profiler writes lines that cannot be switched off."""
    saved = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def idle_cost(calls: int = CALLS) -> dict[str, float]:
    """Return what a call costs outside of windows, in ns: what the decorator adds to a function, and `.step()`."""
    import tracekit

    warnings.simplefilter("ignore")  # that the loop is shorter than `skip`

    def train_step() -> None:
        pass

    with tempfile.TemporaryDirectory(prefix="tracekit-bench-") as folder, quiet():
        decorated = tracekit.probe(path=folder, skip=10**9)(train_step)
        with tracekit.probe(path=folder, skip=10**9) as loop:
            for _ in range(4):  # past the first calls
                loop.step()
            for _ in range(4):
                decorated()
            batches: dict[str, list[float]] = {"plain": [], "decorated": [], "step": []}
            functions = {"plain": train_step, "decorated": decorated, "step": loop.step}
            for _ in range(50):
                for name in random.sample(list(functions), len(functions)):
                    function, repeats = functions[name], range(calls)
                    begin_ns = time.thread_time_ns()
                    for _ in repeats:
                        function()
                    batches[name].append((time.thread_time_ns() - begin_ns) / calls)
    plain, recorded, step = (statistics.median(batches[name]) for name in ("plain", "decorated", "step"))
    return {"decorated_call_ns": recorded - plain, "step_call_ns": step}


def median_interval(values: list[float]) -> tuple[float, float]:
    """Return an interval for the median with at least 95 % confidence, from order statistics (the sign test)."""
    n, ordered = len(values), sorted(values)
    tail, low = 0.0, 0
    while low < n // 2 and tail + math.comb(n, low) / 2**n <= 0.025:
        tail += math.comb(n, low) / 2**n
        low += 1
    low = max(low - 1, 0)
    return ordered[low], ordered[n - 1 - low]


def _lower_quartile(values: Iterable[float]) -> float:
    """Return what a run takes that little disturbs: other programs only add time."""
    ordered = sorted(values)
    return ordered[len(ordered) // 4]


def measure(rounds: int, workload: str, steps: int) -> dict[str, Any]:
    order = random.Random(0)
    runs: dict[str, list[TrainingCost]] = {arm: [] for arm in ARMS}
    context = multiprocessing.get_context("forkserver")  # fresh processes that need not import torch each
    context.set_forkserver_preload(["torch", "torch.distributed", "torch._dynamo"])
    load = []
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        for number in range(rounds + 1):
            measured = pool.submit(run, order.sample(ARMS, len(ARMS)), workload, steps).result()
            for arm in ARMS if number else ():  # the first round warms the machine up
                runs[arm].append(measured[arm])
            load.append(os.getloadavg()[0])
        idle = pool.submit(idle_cost).result()
    pairs = list(zip(runs["probe"], runs["bare"], strict=True))
    ratios = [probe.step_ns / bare.step_ns for probe, bare in pairs]
    low, high = median_interval(ratios)
    cost = {arm: statistics.median(each.step_ns for each in runs[arm]) for arm in ARMS}
    over = [probe.step_ns - none.step_ns for probe, none in zip(runs["probe"], runs["none"], strict=True)]
    undisturbed = {arm: [_lower_quartile(each.steps_ns[k] for each in runs[arm]) for k in range(steps)] for arm in ARMS}
    stated = [each.stated_ns for each in runs["probe"] if each.stated_ns is not None]
    return {
        "workload": workload,
        "rounds": rounds,
        "steps": steps,
        "flags": FLAGS,
        "events_per_step": statistics.median(each.events for each in runs["probe"]) / steps,
        "step_cpu_ns": cost,
        "undisturbed_ns": undisturbed,
        "opening_cpu_ns": {arm: _lower_quartile(each.opening_ns for each in runs[arm]) for arm in ARMS},
        "ratio_median": statistics.median(ratios),
        "ratio_interval": [low, high],
        "ratio_interval_method": "order statistics, 95 %",
        "recording_cost_ns": statistics.median(over),
        "recording_cost_stated_ns": statistics.median(stated) if stated else None,
        "edges_ns": {
            arm: {name: statistics.median(each.edges_ns.get(name, 0) for each in runs[arm]) for name in names}
            for arm, names in (("bare", BARE_EDGES), ("probe", EDGES))
        },
        **idle,
        "load_average": [min(load), max(load)],
        "runs": {arm: [asdict(each) for each in found] for arm, found in runs.items()},
    }


def show(result: dict[str, Any]) -> None:
    low, high = result["ratio_interval"]
    cost, edges = result["step_cpu_ns"], result["edges_ns"]
    print(
        f"{result['workload']}: {result['rounds']} rounds, {result['steps']} recorded steps of "
        f"{result['events_per_step']:,.0f} events, {', '.join(sorted(result['flags']))}; load "
        f"{result['load_average'][0]:.1f} to {result['load_average'][1]:.1f}"
    )
    print(f"\n{'CPU time of a recorded step':38}{'ms':>10}")
    for arm, label in zip(ARMS, ("not recorded", "bare torch.profiler", "tracekit.probe"), strict=True):
        print(f"  {label:36}{cost[arm] / 1e6:10.3f}")
    print(f"\n{'Lower quartiles, ms':38}" + "".join(f"{arm:>10}" for arm in ARMS))
    quartiles = result["undisturbed_ns"]
    later = {arm: statistics.fmean(quartiles[arm][1:] or quartiles[arm]) for arm in ARMS}
    for label, times_ns in (
        ("from the warm-up to the first step", result["opening_cpu_ns"]),
        ("the first recorded step", {arm: quartiles[arm][0] for arm in ARMS}),
        ("a later one", later),
    ):
        print(f"  {label:36}" + "".join(f"{times_ns[arm] / 1e6:10.3f}" for arm in ARMS))
    probe_ns, bare_ns, plain_ns = (sum(quartiles[arm]) for arm in ("probe", "bare", "none"))
    print(f"  {'a step, probe / bare':36}{probe_ns / bare_ns:10.4f}")
    print(f"  {'a step, probe over not recorded':36}{(probe_ns - plain_ns) / result['steps'] / 1e6:10.3f}\n")
    print(f"  probe / bare, median of the ratios  {result['ratio_median']:10.4f}   95 % [{low:.4f}, {high:.4f}]")
    stated = result["recording_cost_stated_ns"]
    print(f"  recording cost, measured here       {result['recording_cost_ns'] / 1e6:10.3f}")
    print(f"  recording cost, as the trace says   {'n/a' if stated is None else f'{stated / 1e6:.3f}':>10}")
    print(f"\n{'Outside of the window':38}{'ns a call':>10}")
    print(f"  {'decorated function, over plain':36}{result['decorated_call_ns']:10.0f}")
    print(f"  {'.step()':36}{result['step_call_ns']:10.0f}")
    print(f"\n{'Edges of the window, CPU time once a job':38}{'ms':>10}{'bare':>10}")
    for name, spent_ns in edges["probe"].items():
        bare = f"{edges['bare'][name] / 1e6:10.2f}" if name in edges["bare"] else ""
        print(f"  {name:36}{spent_ns / 1e6:12.2f}{bare}")
    print(f"\nWanted: at most {MOST_RATIO} times the bare profiler, and {MOST_IDLE_NS} ns a call outside of the window")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="pairs of probe and bare profiler (default: 100)")
    parser.add_argument("--workload", choices=tuple(SIZES), default="transformer")
    parser.add_argument("--steps", type=int, default=10, help="recorded steps of each run (default: 10)")
    parser.add_argument("--json", type=Path, help="write everything that was measured to this file")
    options = parser.parse_args()
    result = measure(options.rounds, options.workload, options.steps)
    show(result)
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
