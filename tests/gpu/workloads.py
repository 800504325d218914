"""Programs that do on one device what the tests look for, recorded by the probe.

    workloads.py NAME FOLDER

The last line of what they print is JSON: what the program itself knows of what it did. Every step ends with the device,
so that each kernel of a recorded step is recorded, and none of another.
"""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))

import torch

import tracekit
from benchmarks.studies import capture_overhead_job
from sleeping import cycles_per_ms, take_time
from tracekit.capture.hooks.patching import CaptureWarning
from tracekit.capture.profiler_session import ProfilerSession

SKIP, WARMUP, STEPS = 2, 1, 3
FIRST = SKIP + WARMUP  # the first recorded call
CALLS = FIRST + STEPS + 1
SPIN_S = 0.01
SPINS_OF_GRAPH_S = 0.002
ADDITIONS_OF_GRAPH = 4
ADDITIONS_OF_STEP = 100
DEVICE = torch.device("cuda", 0)


def train(out: Path, step: Callable[[], None], calls: int = CALLS, steps: int = STEPS) -> None:
    recorded = tracekit.probe(path=out, skip=SKIP, warmup=WARMUP, steps=steps)(step)
    for _ in range(calls):
        recorded()


def spin(seconds: float = SPIN_S) -> None:
    take_time(seconds, on_gpu=True)


def compute_on_host() -> None:
    """Keep the host at operators of the CPU, which are recorded, for about a millisecond."""
    x = torch.zeros(64)
    for _ in range(200):
        x = x + 1


def classification(out: Path) -> dict[str, Any]:
    """A matrix product, kernels elementwise and of reduction, a spinning kernel, and three kinds of copies."""
    x, z = torch.randn(512, 512, device=DEVICE), torch.empty(512, 512, device=DEVICE)
    pinned = torch.randn(512, 512).pin_memory()

    def step() -> None:
        x.copy_(pinned, non_blocking=True)
        y = torch.relu(x @ x)
        z.copy_(y)
        spin()
        z.sum().cpu()
        torch.cuda.synchronize()

    train(out, step)
    # On ROCm a copy within the device may be a kernel.
    return {"copies_of_step": 3, "least_kernels_of_step": 4, "copies_may_be_kernels": torch.version.hip is not None}


def streams(out: Path) -> dict[str, Any]:
    """On a second stream a copy and a kernel, both while the first stream computes."""
    side = torch.cuda.Stream()
    pinned = torch.zeros(2**25, dtype=torch.uint8).pin_memory()
    target = torch.empty(2**25, dtype=torch.uint8, device=DEVICE)

    def step() -> None:
        side.wait_stream(torch.cuda.current_stream())
        spin(2 * SPIN_S)
        with torch.cuda.stream(side):
            target.copy_(pinned, non_blocking=True)
            spin(SPIN_S)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    train(out, step)
    return {"spins_of_step": 2}


def synchronisation(out: Path) -> dict[str, Any]:
    """The host waits for the device, and only then does what it could have done meanwhile."""
    done = torch.cuda.Event()

    def step() -> None:
        spin()
        torch.cuda.synchronize()
        compute_on_host()
        spin()
        done.record()
        done.synchronize()
        compute_on_host()
        spin()
        torch.cuda.synchronize()

    train(out, step)
    return {"spins_of_step": 3}


class Graph:
    """A CUDA graph of one spinning kernel and four additions to `total`."""

    def __init__(self) -> None:
        self.total = torch.zeros(1024, device=DEVICE)
        self.graph = torch.cuda.CUDAGraph()

    def capture(self) -> None:
        with torch.cuda.graph(self.graph):
            self.compute()

    def compute(self) -> None:
        spin(SPINS_OF_GRAPH_S)
        for _ in range(ADDITIONS_OF_GRAPH):
            self.total.add_(1)

    def warm_up(self) -> None:
        """Run once outside of the graph, on another stream, as torch asks for."""
        cycles_per_ms()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.compute()
        torch.cuda.current_stream().wait_stream(side)
        self.total.zero_()
        torch.cuda.synchronize()


def graphs(out: Path) -> dict[str, Any]:
    """A graph that was captured before is replayed twice a step."""
    captured = Graph()
    captured.warm_up()
    captured.capture()

    def step() -> None:
        captured.graph.replay()
        captured.graph.replay()
        torch.cuda.synchronize()

    train(out, step)
    return {
        "replays_of_step": 2,
        "kernels_of_graph": 1 + ADDITIONS_OF_GRAPH,
        "total": captured.total.max().item(),
        "expected_total": 2.0 * CALLS * ADDITIONS_OF_GRAPH,
    }


def capture_in_window(out: Path) -> dict[str, Any]:
    """A graph is captured in the second recorded step; every other step replays one."""
    first, second = Graph(), Graph()
    first.warm_up()
    second.warm_up()
    first.capture()
    calls = 0

    def step() -> None:
        nonlocal calls
        if calls == FIRST + 1:
            second.capture()
        (first if calls <= FIRST else second).graph.replay()
        torch.cuda.synchronize()
        calls += 1

    train(out, step)
    return {
        "replays": STEPS,
        "totals": [first.total.max().item(), second.total.max().item()],
        "expected_totals": [4.0 * (FIRST + 1), 4.0 * (CALLS - FIRST - 1)],
    }


def window_edges(out: Path) -> dict[str, Any]:
    """The program captures whole steps, those too in which windows would be prepared, opened and closed."""
    edges: list[tuple[str, bool]] = []

    def note_edge(name: str) -> None:
        begin = getattr(ProfilerSession, name)

        def edge(session: ProfilerSession) -> None:
            edges.append((name, torch.cuda.is_current_stream_capturing()))
            begin(session)

        setattr(ProfilerSession, name, edge)

    for name in ("prepare", "start", "stop"):
        note_edge(name)
    total = torch.zeros(1024, device=DEVICE)
    captured_calls = {FIRST - 1, FIRST, FIRST + STEPS}

    def step() -> None:
        total.add_(1)

    recorded = tracekit.probe(path=out, skip=SKIP, warmup=WARMUP, steps=STEPS)(step)
    calls = 2 * CALLS
    with warnings.catch_warnings(record=True, action="always") as warned:
        for call in range(calls):
            if call in captured_calls:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    recorded()
                graph.replay()
            else:
                recorded()
            torch.cuda.synchronize()
    return {
        "edges": edges,
        "total": total.max().item(),
        "expected_total": float(calls),
        "warnings": [str(warning.message) for warning in warned if issubclass(warning.category, CaptureWarning)],
    }


def overhead(out: Path) -> dict[str, Any]:
    """Steps of many small kernels, timed by events of the device: the recorded ones, and as many that are not."""
    x = torch.zeros(1024, device=DEVICE)
    steps = 20
    times: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def step() -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(ADDITIONS_OF_STEP):
            x.add_(1)
        end.record()
        torch.cuda.synchronize()
        times.append((begin, end))

    for _ in range(steps):
        step()
    train(out, step, calls=FIRST + steps + 1, steps=steps)
    spans_ms = [begin.elapsed_time(end) for begin, end in times]
    plain_ms, recorded_ms = spans_ms[:steps], spans_ms[steps + FIRST : 2 * steps + FIRST]
    return {
        "kernels": ADDITIONS_OF_STEP * steps,
        "steps": len(recorded_ms),
        "plain_ms": statistics.median(plain_ms),
        "recorded_ms": statistics.median(recorded_ms),
    }


class TimedJob(capture_overhead_job.Job):
    """The training of the benchmark, on the device, whose events time each step."""

    def __init__(self) -> None:
        with DEVICE:
            super().__init__("gpt")
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def _step(self) -> None:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        super()._step()
        end.record()
        self.events.append((begin, end))

    def recorded_ms(self, run: Callable[[], None]) -> float:
        """Return the median time of a recorded step of `run`, but for the first, which the warm-up precedes."""
        first = capture_overhead_job.SKIP + capture_overhead_job.WARMUP
        self.events.clear()
        run()
        torch.cuda.synchronize()
        recorded = self.events[first + 1 : -1]
        return statistics.median(begin.elapsed_time(end) for begin, end in recorded)


def beside_the_profiler(out: Path) -> dict[str, Any]:
    """A GPT of many small kernels, alone, recorded by torch.profiler, and by the probe, in turns."""
    steps, rounds = 10, 7
    job = TimedJob()
    arms: dict[str, Callable[[], None]] = {
        "plain_ms": lambda: job.run_alone(steps),
        "profiler_ms": lambda: job.run_with_profiler(out, steps),
        "probe_ms": lambda: job.run_with_probe(out / "run", steps),
    }
    out.mkdir(parents=True)
    times_ms = [{arm: job.recorded_ms(run) for arm, run in arms.items()} for _ in range(rounds)]
    ratio = statistics.median(each["probe_ms"] / each["profiler_ms"] for each in times_ms)
    return {arm: statistics.median(each[arm] for each in times_ms) for arm in arms} | {"ratio": ratio}


WORKLOADS = {
    workload.__name__: workload
    for workload in (
        *(classification, streams, synchronisation, graphs, capture_in_window, window_edges),
        *(overhead, beside_the_profiler),
    )
}

if __name__ == "__main__":
    torch.cuda.set_device(DEVICE)
    cycles_per_ms()
    facts = WORKLOADS[sys.argv[1]](Path(sys.argv[2]))
    print(json.dumps(facts))
