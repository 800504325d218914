"""What a trace says is wrong: each function damages the events of one trace, in place, and returns it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from tests.builders import TraceBuilder
from tests.damaged_runs.good_run import STEP_US, STEPS

Event = dict[str, Any]


# ---- order and place -----------------------------------------------------------------------------------------------


def in_order_of_time(trace: TraceBuilder) -> TraceBuilder:
    """Sort all events by their start, as tools do that merge or convert traces."""
    trace.events.sort(key=lambda event: event["ts"])
    return trace


def in_reverse_order(trace: TraceBuilder) -> TraceBuilder:
    trace.events.reverse()
    return trace


def overlapping_slices(trace: TraceBuilder) -> TraceBuilder:
    """Operators that cross each other on one track."""
    for step in range(len(STEPS)):
        trace.op("aten::crossing", STEP_US * step + 1, 10).op("aten::crossed", STEP_US * step + 6, 10)
    return trace


def with_events_of(trace: TraceBuilder, other: TraceBuilder) -> TraceBuilder:
    """Splice the events of another file into the array."""
    middle = len(trace.events) // 2
    trace.events[middle:middle] = other.events
    return trace


# ---- times ---------------------------------------------------------------------------------------------------------


def durations_times_1000(trace: TraceBuilder) -> TraceBuilder:
    """Lengthen the recording 1000-fold from its first event on, as a wrong unit does that spares the base time."""
    start = min(event["ts"] for event in trace.events)
    for event in trace.events:
        event["ts"] = start + (event["ts"] - start) * 1000
        if "dur" in event:
            event["dur"] *= 1000
    return trace


def durations_of_zero(trace: TraceBuilder) -> TraceBuilder:
    for event in trace.events:
        if "dur" in event:
            event["dur"] = Decimal(0)
    return trace


def with_an_endless_kernel(trace: TraceBuilder) -> TraceBuilder:
    """Let the last matrix product take 10,000 s."""
    [event for event in trace.events if event["name"] == "gemm"][-1]["dur"] = Decimal(10**10)
    return trace


def step_of_the_wall_clock(trace: TraceBuilder, *, at_us: float, by_us: float) -> TraceBuilder:
    """Set the clock of the machine, which runs no other rank, in mid-recording: all that begins later is shifted."""
    trace.host = "node-2"
    at = trace.ts(at_us)
    for event in trace.events:
        if event["ts"] >= at:
            event["ts"] += Decimal(by_us)
    return trace


def step_of_the_host_clock(trace: TraceBuilder, *, at_us: float, by_us: float) -> TraceBuilder:
    """Set the clock of the host alone: from then on its events are shifted, and those of the device are not."""
    at = trace.ts(at_us)
    for event in trace.events:
        if event["ts"] >= at and event.get("pid") == trace.pid:
            event["ts"] += Decimal(by_us)
    return trace


def clock_ahead(trace: TraceBuilder, *, by_us: float) -> TraceBuilder:
    trace.base_ns += round(by_us * 1000)
    return trace


def times_ahead(trace: TraceBuilder, *, by_us: float) -> TraceBuilder:
    """Shift all times, and not the base time."""
    for event in trace.events:
        event["ts"] += Decimal(by_us)
    return trace


def clock_at_rate(trace: TraceBuilder, rate: Decimal) -> TraceBuilder:
    """Let all times, and the time between them, be `rate` times what they are."""
    start = min(event["ts"] for event in trace.events)
    for event in trace.events:
        event["ts"] = start + ((event["ts"] - start) * rate).quantize(Decimal("0.001"))
        if "dur" in event:
            event["dur"] = (event["dur"] * rate).quantize(Decimal("0.001"))
    return trace


def kernels_before_their_launch(trace: TraceBuilder, *, by_us: float) -> TraceBuilder:
    """Shift the clock of the device so that kernels seem to begin before the host launches them (kineto#919)."""
    for event in trace.events:
        if event.get("pid") == 0 and event["ph"] == "X":
            event["ts"] -= Decimal(by_us)
    return trace


def equal_starts(trace: TraceBuilder) -> TraceBuilder:
    """Give all events the start of the first."""
    start = min(event["ts"] for event in trace.events)
    for event in trace.events:
        event["ts"] = start
    return trace


# ---- steps ---------------------------------------------------------------------------------------------------------


def renumbered_steps(trace: TraceBuilder, number: Callable[[int], int | str]) -> TraceBuilder:
    for event in trace.events:
        if event["name"].startswith("ProfilerStep#"):
            event["name"] = f"ProfilerStep#{number(int(event['name'].partition('#')[2]))}"
    return trace


# ---- records of the device -----------------------------------------------------------------------------------------


def without_device_records(trace: TraceBuilder) -> TraceBuilder:
    """The GPU was not recorded: neither kernels nor the calls that launch them."""
    return without(trace, lambda event: event.get("pid") == 0 or event.get("cat") == "cuda_runtime")


def without_kernels_from(trace: TraceBuilder, *, step: int) -> TraceBuilder:
    """Lose all device records from a step on, as a profiler does whose buffers are full (pytorch#192021)."""
    begin = trace.ts(STEP_US * (step - STEPS.start))
    return without(trace, lambda event: event.get("pid") == 0 and event["ts"] >= begin)


def without_kernels_and_launches(trace: TraceBuilder, steps: range) -> TraceBuilder:
    """Lose the kernels of some steps, and the calls that launched them. Their copies and operators are there."""
    begin, end = (trace.ts(STEP_US * (step - STEPS.start)) for step in (steps.start, steps.stop))
    lost = ("kernel", "cuda_runtime")
    return without(trace, lambda event: event.get("cat") in lost and begin <= event["ts"] < end)


def duplicate_correlation_ids(trace: TraceBuilder) -> TraceBuilder:
    """Let the ids of each step be those of the first."""
    ids = sorted({event["args"]["correlation"] for event in trace.events if "correlation" in event.get("args", {})})
    a_step = len(ids) // len(STEPS)
    first = {number: ids[place % a_step] for place, number in enumerate(ids)}
    for event in trace.events:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = first[event["args"]["correlation"]]
    return trace


def without(trace: TraceBuilder, is_lost: Callable[[Event], bool]) -> TraceBuilder:
    trace.events = [event for event in trace.events if not is_lost(event)]
    return trace


def every(trace: TraceBuilder, names: Iterable[str], change: Callable[[Event], object]) -> TraceBuilder:
    """Change all events of these names."""
    wanted = frozenset(names)
    for event in trace.events:
        if event["name"] in wanted:
            change(event)
    return trace


# ---- how events are written ----------------------------------------------------------------------------------------

_TORCH_1_8 = {"cpu_op": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel", "gpu_memcpy": "Memcpy"}


def categories_of_torch_1_8(trace: TraceBuilder) -> TraceBuilder:
    for event in trace.events:
        if event.get("cat") in _TORCH_1_8:
            event["cat"] = _TORCH_1_8[event["cat"]]
    return trace


def begin_and_end_events(trace: TraceBuilder) -> TraceBuilder:
    """Write each step as a pair of events `B` and `E`."""
    pairs = []
    for event in trace.events:
        if not event["name"].startswith("ProfilerStep#"):
            pairs.append(event)
            continue
        duration = event.pop("dur")
        pairs += [event | {"ph": "B"}, event | {"ph": "E", "ts": event["ts"] + duration}]
    trace.events = pairs
    return trace


def with_other_phases(trace: TraceBuilder) -> TraceBuilder:
    """Add counters, flows and asynchronous events, which are no slices."""
    for phase in ("C", "s", "f", "t", "b", "n", "e", "i", "P", "N", "O", "D"):
        trace.raw(
            ph=phase, name="x", cat="async", id=1, pid=trace.pid, tid=trace.main, ts=trace.ts(1), args={"value": 1}
        )
    return trace


def with_pid(trace: TraceBuilder, pid: str) -> TraceBuilder:
    """Give the process a text as pid, as other tools do."""
    for event in trace.events:
        if event.get("pid") == trace.pid:
            event["pid"] = pid
    return trace


def without_pid(trace: TraceBuilder) -> TraceBuilder:
    for event in trace.events:
        if event.get("pid") == trace.pid:
            del event["pid"]
    return trace


def with_outlier(trace: TraceBuilder, *, at_us: float) -> TraceBuilder:
    """Add a kernel whose start is far from all others."""
    return trace.kernel("outlier", at_us, 1)


# ---- header --------------------------------------------------------------------------------------------------------


def without_distributed_info(trace: TraceBuilder) -> TraceBuilder:
    del trace.header["distributedInfo"]
    return trace


def of_impossible_rank(trace: TraceBuilder) -> TraceBuilder:
    trace.header["distributedInfo"]["rank"] = 12
    return trace


def without_signs_of_device(trace: TraceBuilder) -> TraceBuilder:
    """Let the header name neither devices nor a backend of theirs."""
    del trace.header["deviceProperties"], trace.header["distributedInfo"]["backend"]
    return trace


def with_ranks_of_group(trace: TraceBuilder, ranks: list[object]) -> TraceBuilder:
    group = {"pg_name": "default_pg", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "ranks": ranks}
    trace.header["distributedInfo"]["pg_config"] = [group]
    return trace


def with_another_base_time(trace: TraceBuilder) -> TraceBuilder:
    """Count from an hour later, so that `ts` is negative."""
    hour_ns = 3600 * 10**9
    trace.base_ns += hour_ns
    for event in trace.events:
        event["ts"] -= hour_ns // 1000
    return trace
