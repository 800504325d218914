"""Write what a rank did as Kineto writes it. Keys are those of real traces; `test_records.py` compares them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

from benchmarks.gpu_jobs.cluster import FinishedJob
from benchmarks.gpu_jobs.engine import Kernel
from benchmarks.gpu_jobs.host import HostRecord
from benchmarks.gpu_jobs.losses import recorded
from benchmarks.gpu_jobs.rank import Rank

BASE_NS = 1_790_857_026_000_000_000
ORIGIN_NS = 4_396_967_000_000
SMS, THREADS_PER_WARP = 108, 32
DEVICE = {
    "id": 0,
    "name": "NVIDIA A100-SXM4-80GB",
    "totalGlobalMem": 85_097_971_712,
    "computeMajor": 8,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": SMS,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 166_912,
    "sharedMemPerMultiprocessor": 167_936,
}
_NOT_COPIED = {
    "Global rank start",
    "Global rank stride",
    "Rank",
}  # by Kineto's output_json.cpp, from operator to kernel

Stamp = Callable[[int], Decimal]


def document(job: FinishedJob, rank: int) -> dict[str, Any]:
    """Return the trace of a rank. Times are its machine's clock in microseconds, as `Decimal` with three decimals."""
    spec, process = job.spec, job.ranks[rank]
    host = spec.host_of(rank)
    pid = 4000 + 10 * rank
    threads = (pid, pid + 1)
    duration_ns = job.duration_ns

    def stamp(true_ns: int) -> Decimal:
        return Decimal(ORIGIN_NS + true_ns + round(spec.clocks.error_ns(host, true_ns, duration_ns))).scaleb(-3)

    left = recorded(job, rank)
    events = [*_names(pid, threads, process, stamp(0))]
    events += [
        _complete(record.name, record.category, pid, threads[record.thread], record, stamp, record.facts)
        for record in left.host
    ]
    for kernel in left.kernels:
        events += _device_events(kernel, pid, threads, stamp)
    events += _annotations_on_device(left.kernels, stamp)
    events += _trace_spans(stamp(0), stamp(duration_ns))
    header: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": [DEVICE],
        "cupti_version": 26,
        "cuda_runtime_version": 12080,
        "cuda_driver_version": 12080,
        "distributedInfo": _distributed_info(job, rank),
    }
    if spec.sequence_numbers:
        header |= {"trace_id": f"{spec.seed:016X}{rank:016X}", "host_name": f"node{host}"}
    header |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": BASE_NS}
    return header | {"traceEvents": events, "traceName": f"rank{rank}.json"}


def renumbered(trace: dict[str, Any], numbers: Sequence[int]) -> dict[str, Any]:
    """Return a trace in which each rank has another number: rank i is `numbers[i]`."""
    known = trace["distributedInfo"]
    groups = [group | {"ranks": sorted(numbers[rank] for rank in group["ranks"])} for group in known["pg_config"]]
    events = []
    for event in trace["traceEvents"]:
        if "Process Group Ranks" in event.get("args", {}):
            ranks = sorted(numbers[rank] for rank in json.loads(event["args"]["Process Group Ranks"]))
            event = event | {"args": event["args"] | {"Process Group Ranks": str(ranks)}}
        events.append(event)
    known = known | {"rank": numbers[known["rank"]], "pg_config": groups}
    return trace | {"distributedInfo": known, "traceEvents": events}


def _distributed_info(job: FinishedJob, rank: int) -> dict[str, Any]:
    groups = {group.uid: group for group in job.groups[rank].values()}
    configured = [
        {
            "pg_name": group.uid,
            "pg_desc": group.description,
            "backend_config": "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in groups.values()
    ]
    known = {"backend": "nccl", "rank": rank, "world_size": job.spec.ranks, "pg_count": len(configured)}
    return known | {"pg_config": configured, "nccl_version": "2.21.5"}


def _complete(
    name: str, category: str, pid: Any, tid: Any, span: HostRecord | Kernel, stamp: Stamp, args: dict[str, Any]
) -> dict[str, Any]:
    start, end = stamp(span.start_ns), stamp(span.end_ns)
    place = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return place | {"ts": start, "dur": max(end - start, Decimal("0.000")), "args": args}


def _device_events(kernel: Kernel, pid: int, threads: tuple[int, int], stamp: Stamp) -> Iterator[dict[str, Any]]:
    """Yield the flow from the launch, and the kernel or copy."""
    launch: HostRecord = kernel.facts["launch"]
    correlation = launch.facts["correlation"]
    stream = kernel.stream.number
    host = {"pid": pid, "tid": threads[launch.thread], "ts": stamp(launch.start_ns)}
    device = {"pid": 0, "tid": stream, "ts": stamp(kernel.start_ns)}
    flow = {"cat": "ac2g", "name": "ac2g"}
    yield {"ph": "s", "id": correlation} | host | flow
    yield {"ph": "f", "id": correlation} | device | flow | {"bp": "e"}
    args = {key: launch.facts[key] for key in ("External id",) if key in launch.facts}
    place = {"device": 0, "context": 1, "stream": stream, "correlation": correlation}
    if kernel.activity == "copy":
        duration_ns = max(kernel.end_ns - kernel.start_ns, 1)
        args |= place | {"bytes": kernel.facts["bytes"]}
        args["memory bandwidth (GB/s)"] = kernel.facts["bytes"] / duration_ns
        yield _complete(kernel.name, "gpu_memcpy", 0, stream, kernel, stamp, args)
        return
    args |= {"queued": 0} | place | _occupancy(kernel)
    args |= {key: value for key, value in kernel.facts.get("comms", {}).items() if key not in _NOT_COPIED}
    yield _complete(kernel.name, "kernel", 0, stream, kernel, stamp, args)


def _occupancy(kernel: Kernel) -> dict[str, Any]:
    blocks, threads = (16, 544) if kernel.activity == "comm" else (SMS * 4, 256)
    return {
        "registers per thread": 96,
        "shared memory": 0,
        "blocks per SM": round(blocks / SMS, 6),
        "warps per SM": round(blocks * threads / THREADS_PER_WARP / SMS, 6),
        "grid": [blocks, 1, 1],
        "block": [threads, 1, 1],
        "est. achieved occupancy %": 0 if kernel.activity == "comm" else 50,
    }


def _annotations_on_device(kernels: list[Kernel], stamp: Stamp) -> Iterator[dict[str, Any]]:
    """Yield a copy of each annotation on each stream, from its first kernel to its last.

    A kernel belongs to the innermost annotation of the thread that launches it. Kineto begins it 1 ns earlier, and
    writes no negative durations (output_json.cpp, `ChromeTraceLogger::handleActivity`).
    """
    covered: dict[tuple[int, int], list[Kernel]] = defaultdict(list)
    labels: dict[int, HostRecord] = {}
    for kernel in kernels:
        if (label := kernel.facts["annotation"]) is not None:
            labels[label.facts["External id"]] = label
            covered[label.facts["External id"], kernel.stream.number].append(kernel)
    for (number, stream), inside in covered.items():
        start = stamp(min(kernel.start_ns for kernel in inside))
        duration = max(stamp(max(kernel.end_ns for kernel in inside)) - start, Decimal("0.000"))
        place = {"ph": "X", "cat": "gpu_user_annotation", "name": labels[number].name, "pid": 0, "tid": stream}
        times = {"ts": start - Decimal("0.001"), "dur": duration + Decimal("0.002")}
        yield place | times | {"args": {"External id": number}}


def _names(pid: int, threads: tuple[int, int], process: Rank, at: Decimal) -> Iterator[dict[str, Any]]:
    def named(kind: str, of: tuple[int, int], **args: Any) -> dict[str, Any]:
        return {"name": kind, "ph": "M", "ts": at, "pid": of[0], "tid": of[1], "args": args}

    for process_id, label, place in ((pid, "CPU", pid), (0, "GPU 0", 16_777_216)):
        yield named("process_name", (process_id, 0), name="python3.12")
        yield named("process_labels", (process_id, 0), labels=label)
        yield named("process_sort_index", (process_id, 0), sort_index=place)
    for stream in (process.compute_stream, *process.streams.values()):
        yield named("thread_name", (0, stream.number), name=f"stream {stream.number} ")
        yield named("thread_sort_index", (0, stream.number), sort_index=stream.number)
    for thread, kind in zip(threads, ("pt_main_thread", "pt_autograd_0"), strict=True):
        yield named("thread_name", (pid, thread), name=f"thread {thread} ({kind})")
        yield named("thread_sort_index", (pid, thread), sort_index=thread)


def _trace_spans(start: Decimal, end: Decimal) -> Iterator[dict[str, Any]]:
    span = {"ph": "X", "cat": "Trace", "ts": start, "dur": end - start, "pid": "Spans", "tid": "PyTorch Profiler"}
    yield span | {"name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
    for name, pid, tid, at in (
        ("Iteration Start: PyTorch Profiler", "Traces", "Trace PyTorch Profiler", start),
        ("Record Window End", "", "", end),
    ):
        yield {"name": name, "ph": "i", "s": "g", "pid": pid, "tid": tid, "ts": at}
