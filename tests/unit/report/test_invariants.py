"""The invariants of every result, on generated traces, from the file to the JSON.

These are numbers 1 to 6 of the definitions. Number 9 is in test_load.py; shifted clocks (7) and merges (8) have their
own tests.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import TraceBuilder
from tracekit.loading.load import load
from tracekit.loading.options import StepSelection, SummaryOptions
from tracekit.render.json_result import result_json
from tracekit.report.report import analyze

PARTS = ("step_ns", "compute_ns", "comm_ns", "overlapped_comm_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
quick = settings(max_examples=20, deadline=None)

Times = tuple[int, int]  # start and duration in ns
TIMES = st.tuples(st.integers(0, 400), st.integers(0, 120))
STEPS = st.lists(st.integers(20, 150), min_size=0, max_size=4)  # durations


def _add_steps(trace: TraceBuilder, steps: list[int]) -> None:
    begin = 0
    for number, duration in enumerate(steps, start=3):
        trace.step(number, begin / 1000, duration / 1000)
        begin += duration


@st.composite
def gpu_traces(draw: st.DrawFn) -> TraceBuilder:
    """Kernels, collectives and copies on several streams, launched any time before they start, or without known
    launch.
    """
    trace = TraceBuilder(rank=0, world_size=1)
    _add_steps(trace, draw(STEPS))
    for at, duration in draw(st.lists(TIMES, min_size=1, max_size=8)):
        launched = draw(st.one_of(st.none(), st.integers(0, at)))
        launched_at = None if launched is None else launched / 1000
        where = {"stream": draw(st.sampled_from([7, 20])), "launched_at": launched_at}
        match draw(st.sampled_from(["kernel", "nccl", "memcpy"])):
            case "kernel":
                trace.kernel("gemm", at / 1000, duration / 1000, **where)
            case "nccl":
                kind = draw(st.sampled_from(["all_reduce", "all_gather"]))
                trace.nccl(kind, at / 1000, duration / 1000, elements=draw(st.integers(0, 9)), **where)
            case _:
                trace.memcpy(at / 1000, duration / 1000, **where)
    return trace


@st.composite
def cpu_traces(draw: st.DrawFn) -> TraceBuilder:
    """Operators and waits on the step's and autograd's threads, and collectives of Gloo."""
    trace = TraceBuilder(rank=0, world_size=1)
    _add_steps(trace, draw(STEPS))
    thread = st.sampled_from([trace.main, trace.autograd])
    for at, duration in draw(st.lists(TIMES, min_size=1, max_size=8)):
        match draw(st.sampled_from(["op", "backward", "gloo", "gloo", "send", "label"])):
            case "op":
                trace.op("aten::mm", at / 1000, duration / 1000)
            case "backward":
                trace.backward("MmBackward0", at / 1000, duration / 1000, thread=draw(thread))
            case "gloo":
                kind = draw(st.sampled_from(["all_reduce", "broadcast"]))
                issued = draw(st.integers(0, at)) / 1000
                how = {"issued_at": issued, "issued_for": draw(st.integers(0, 9)) / 1000, "thread": draw(thread)}
                size, runloop = draw(st.integers(1, 3)), draw(st.integers(0, 1))
                trace.gloo(kind, at / 1000, duration / 1000, elements=size, runloop=runloop, **how)
            case "send":
                trace.gloo("send", at / 1000, duration / 1000)
            case _:
                trace.label("phase", at / 1000, duration / 1000)
    for at, duration in draw(st.lists(TIMES, max_size=2)):
        trace.wait(at / 1000, duration / 1000, thread=draw(thread))
    return trace


TRACES = st.one_of(gpu_traces(), cpu_traces())


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def result(scratch: Path) -> Callable[..., dict[str, Any]]:
    def run(trace: TraceBuilder, **options: Any) -> dict[str, Any]:
        path = trace.write(scratch / "rank0.json", "compact")
        run = load(path, options=SummaryOptions(**options))
        return json.loads(result_json(analyze(run)))

    return run


Result = Callable[..., dict[str, Any]]


def numbers(actual: dict[str, Any]) -> Any:
    """What the data determines: everything but notes, names of files, and the rank."""
    tables = {name: actual[name] for name in ("ranks", "steps", "idle_causes", "communication", "groups")}
    return json.loads(json.dumps(tables))


def without(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in columns} for row in rows]


@quick
@given(trace=TRACES)
def test_parts_of_a_step_add_up(result: Result, trace: TraceBuilder) -> None:
    """Invariants 1, 2, 3 and 5."""
    actual = result(trace)
    for row in [*actual["steps"], *actual["ranks"]]:
        assert row["exposed_comm_ns"] + row["overlapped_comm_ns"] == row["comm_ns"]
        assert row["compute_ns"] + row["exposed_comm_ns"] + row["exposed_copy_ns"] + row["idle_ns"] == row["step_ns"]
        assert 0 <= row["overlapped_comm_ns"] <= min(row["compute_ns"], row["comm_ns"])
        assert all(row[part] >= 0 for part in PARTS)
        assert row["overlap_ratio"] == (row["overlapped_comm_ns"] / row["comm_ns"] if row["comm_ns"] else None)
    (rank,) = actual["ranks"]
    complete = [step for step in actual["steps"] if step["complete"]]
    assert rank["steps"] == len(complete)
    for part in PARTS:
        assert rank[part] == sum(step[part] for step in complete)
    assert rank["idle_ns"] == sum(row["total_ns"] for row in actual["idle_causes"])
    ends = [step["start_ns"] + step["step_ns"] for step in actual["steps"]]
    assert [step["start_ns"] for step in actual["steps"]][1:] == ends[:-1]
    for row in actual["communication"]:
        assert 0 <= row["exposed_ns"] <= row["total_ns"] <= rank["comm_ns"]
        assert row["exposed_ns"] <= rank["exposed_comm_ns"]
    assert sum(row["total_ns"] for row in actual["communication"]) >= rank["comm_ns"]


@quick
@given(trace=TRACES)
def test_results_of_single_steps_add_up_to_the_whole(result: Result, trace: TraceBuilder) -> None:
    """Invariant 5."""
    actual = result(trace)
    alone = [result(trace, steps=StepSelection(first=row["step"], stop=row["step"] + 1)) for row in actual["steps"]]
    assert [row["steps"] for row in alone] == [[row] for row in actual["steps"]]
    for part in ("count", "total_ns", "exposed_ns"):
        whole = {(row["kind"], row["phase"]): row[part] for row in actual["communication"]}
        added: dict[Any, int] = dict.fromkeys(whole, 0)
        for one in alone:
            for row in one["communication"]:
                added[row["kind"], row["phase"]] += row[part]
        assert added == whole


@quick
@given(trace=TRACES, data=st.data())
def test_order_of_events_does_not_matter(result: Result, trace: TraceBuilder, data: st.DataObject) -> None:
    """Invariant 4."""
    before = numbers(result(trace))
    trace.events = data.draw(st.permutations(trace.events))
    assert numbers(result(trace)) == before


@quick
@given(trace=TRACES, data=st.data())
def test_duplicated_events_do_not_matter(result: Result, trace: TraceBuilder, data: st.DataObject) -> None:
    """Invariant 4."""
    before = numbers(result(trace))
    trace.events += data.draw(st.lists(st.sampled_from(trace.events), max_size=6))
    assert numbers(result(trace)) == before


@quick
@given(trace=TRACES, shift_ns=st.integers(-(10**9), 10**15))
def test_time_may_be_shifted(result: Result, trace: TraceBuilder, shift_ns: int) -> None:
    """Invariant 4."""
    before = numbers(result(trace))
    trace.base_ns += shift_ns
    after = numbers(result(trace))
    for row in before["steps"]:
        row["start_ns"] += shift_ns
    assert after == before


@quick
@given(trace=TRACES, factor=st.integers(2, 1000))
def test_results_scale_with_time(result: Result, trace: TraceBuilder, factor: int) -> None:
    """Invariant 4."""
    before = result(trace)
    origin = trace.ts(0)
    for event in trace.events:
        event["ts"] = origin + (event["ts"] - origin) * factor
        event["dur"] *= factor
    after = result(trace)
    times = {*PARTS, "total_ns", "exposed_ns"}
    for table in ("ranks", "steps", "communication"):
        scaled = [{k: v * factor if k in times else v for k, v in row.items()} for row in before[table]]
        assert without(after[table], "start_ns") == without(scaled, "start_ns")


@quick
@given(trace=TRACES, rank=st.integers(1, 500))
def test_ranks_may_be_renamed(result: Result, trace: TraceBuilder, rank: int) -> None:
    """Invariant 4."""
    before = numbers(result(trace))
    trace.header["distributedInfo"] = {"rank": rank}
    after = numbers(result(trace))
    for table in ("ranks", "steps", "communication"):
        assert {row["rank"] for row in after[table]} <= {rank}
        assert without(after[table], "rank") == without(before[table], "rank")


@quick
@given(trace=gpu_traces(), data=st.data())
def test_removing_events_never_lengthens_a_union(result: Result, trace: TraceBuilder, data: st.DataObject) -> None:
    """Invariant 6, over windows that the removal does not move: the whole recording, bounded by two events of no
    lane.
    """
    trace.label("open", 0, 1).label("close", 1, 1)
    before = result(trace, steps=StepSelection(whole=True))["ranks"][0]
    kernels = [event for event in trace.events if event["cat"] in {"kernel", "gpu_memcpy"}]
    gone = data.draw(st.lists(st.sampled_from(kernels), max_size=len(kernels) - 1, unique_by=id))
    trace.events = [event for event in trace.events if not any(event is one for one in gone)]
    if not any(event["cat"] == "kernel" for event in trace.events):
        return
    after = result(trace, steps=StepSelection(whole=True))["ranks"][0]
    for part in ("compute_ns", "comm_ns", "overlapped_comm_ns"):
        assert after[part] <= before[part]
