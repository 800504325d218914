"""Two ranks recorded on an H100: figures by an independent calculation, and what is said of kernels in flight."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import Any

import pytest

from benchmarks.gpu_jobs.intervals import length, union
from tests.integration.recorded import notes_of, result_of
from tests.places import DATA

RUN = DATA / "h100_context"
LAUNCHES = ("cuda_runtime", "cuda_driver")
SPANS = ("step_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")

Span = tuple[int, int]


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return result_of(RUN)


def device_spans(trace: dict[str, Any]) -> list[tuple[str, int, Span]]:
    """Return what each device event is, when it was launched (-1: before the recording), and when it ran."""
    base_ns = int(trace["baseTimeNanoseconds"])
    launches = {e["args"].get("correlation"): e for e in trace["traceEvents"] if e.get("cat") in LAUNCHES}
    found = []
    for event in trace["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            start_ns, duration_ns = (round(1000 * event[key]) for key in ("ts", "dur"))
            launch = launches.get(event["args"]["correlation"])
            launched_ns = -1 if launch is None else base_ns + round(1000 * launch["ts"])
            kind = "copy" if event["cat"] != "kernel" else "communication" if "nccl" in event["name"] else "compute"
            found.append((kind, launched_ns, (base_ns + start_ns, base_ns + start_ns + duration_ns)))
    return found


def sums_of_steps(trace: dict[str, Any]) -> list[int]:
    """Return the sums of `SPANS` over all steps, by the definition of a step of a GPU rank in docs/definitions.md."""
    steps, events = trace["tracekit"]["steps"], device_spans(trace)
    edges_ns = []
    for step in steps:
        before = [end for kind, at, (_, end) in events if kind == "compute" and at < step["start_ns"]]
        edges_ns.append(max([step["start_ns"], *before]))
    last = steps[-1]
    edges_ns.append(max([last["end_ns"], *(end for _, at, (_, end) in events if at >= last["start_ns"])]))
    first_ns, end_ns = edges_ns[0], edges_ns[-1]

    def covered_ns(*kinds: str) -> int:
        clipped = [(max(a, first_ns), min(b, end_ns)) for kind, _, (a, b) in events if kind in kinds]
        return length(union((a, b) for a, b in clipped if b > a))

    compute_ns, with_communication_ns = covered_ns("compute"), covered_ns("compute", "communication")
    busy_ns = covered_ns("compute", "communication", "copy")
    exposed = [with_communication_ns - compute_ns, busy_ns - with_communication_ns]
    return [end_ns - first_ns, compute_ns, *exposed, end_ns - first_ns - busy_ns]


@pytest.mark.parametrize("rank", [0, 1])
def test_where_the_time_goes_is_exact(rank: int, result: dict[str, Any]) -> None:
    file = RUN / f"rank-{rank:06d}.json.gz"
    trace = json.loads(gzip.decompress(file.read_bytes()), parse_float=Decimal)
    (row,) = [row for row in result["ranks"] if row["rank"] == rank]

    assert [row[name] for name in SPANS] == sums_of_steps(trace)
    assert row["steps"] == 4


def test_all_collectives_of_the_steps_are_matched(result: dict[str, Any]) -> None:
    """GIVEN a rank whose GPU still runs collectives of the step before the first THEN they lack no counterpart."""
    assert result["run"]["strategies"] == ["cp"]
    assert {row["kind"] for row in result["communication"]} == {"all_gather", "reduce_scatter", "all_reduce"}
    assert notes_of(result, "unlinked") == []
    assert [text.split(":")[0] for text in notes_of(result, "before-recording")] == ["rank 1"]
