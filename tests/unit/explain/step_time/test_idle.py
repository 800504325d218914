"""What is said of idle time: its causes by rank, what hosts did then, and what to do. Times are microseconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tests.places import DATA
from tracekit.findings.finding import Finding
from tracekit.model.metadata import Settings
from tracekit.model.table import rows_of
from tracekit.report.report import Report, analyze


def a_rank(rank: int = 0) -> TraceBuilder:
    """Two steps of 1000, each with a kernel at 10-500 launched at its begin. It waits for the host from 500 on."""
    trace = TraceBuilder(rank, 2)
    for step in range(2):
        trace.step(step, 1000 * step, 1000).kernel("gemm", 1000 * step + 10, 490, launched_at=1000 * step)
        trace.nccl("all_reduce", 1000 * step + 500, 10, launched_at=1000 * step + 1)
    return trace


def idle_finding(report: Report) -> Finding:
    (finding,) = (finding for finding in report.findings if "50% of the step" in finding.text)
    assert len(finding.text) <= 160
    return finding


def report_of(folder: Path, trace: TraceBuilder) -> Report:
    return analyze(write_run(folder, [trace]), only="breakdown")


@pytest.mark.parametrize(
    ("name", "category", "cause", "action"),
    [
        ("MyFunction", "cpu_op", "host_bound", "CUDA graphs"),
        ("aten::linear", "cpu_op", "host_compute", "on the GPU"),
        ("my_logging", "user_annotation", "host_bound", "Python"),
        ("cudaStreamSynchronize", "cuda_runtime", "synchronisation", ".item()"),
        ("cudaMalloc", "cuda_runtime", "allocator", "expandable_segments"),
        ("tracekit.gc", "cpu_op", "garbage_collection", "gc.freeze()"),
    ],
)
def test_the_finding_names_the_main_cause_and_what_to_do(
    tmp_path: Path, name: str, category: str, cause: str, action: str
) -> None:
    """GIVEN ranks whose host is in the same thing while the device has nothing to do, for half of each step."""
    trace = a_rank()
    for step in range(2):
        args = {"correlation": 5000 + step} if category == "cuda_runtime" else {}
        trace.event(name, category, 1000 * step + 510, 490, args=args)
    finding = idle_finding(report_of(tmp_path, trace))
    assert (finding.cause, finding.time_ns) == (cause, 500_000)
    assert finding.action is not None
    assert action in finding.action


def test_a_compiled_model_is_not_advised_to_be_compiled(tmp_path: Path) -> None:
    trace = a_rank()
    for step in range(2):
        trace.op("MyFunction", 1000 * step + 510, 490)
    trace.capture()
    assert trace.metadata is not None
    trace.metadata = replace(trace.metadata, settings=[Settings(component="compile", values={})])
    finding = idle_finding(report_of(tmp_path, trace))
    assert finding.cause == "host_bound"
    assert finding.action is not None
    assert "the rest of the step" in finding.action


def test_loading_data_is_no_idle_time_to_mend(tmp_path: Path) -> None:
    """Another finding is about it."""
    trace = a_rank()
    for step in range(2):
        trace.label("enumerate(DataLoader)#x.__next__", 1000 * step + 510, 490)
    assert not [finding for finding in report_of(tmp_path, trace).findings if finding.cause is not None]


def test_a_replayed_graph_of_which_only_edges_are_recorded_is_not_idle(tmp_path: Path) -> None:
    """GIVEN steps that are one replay each, of which the first and the last kernel are recorded, THEN nothing is said
    to be idle or to save time, and nothing is cleared.
    """
    trace = TraceBuilder(world_size=1)
    for at in range(0, 40_000, 1000):
        trace.step(at // 1000, at, 1000).launch_graph(at, ("a", at + 6, 9, 7), ("z", at + 990, 10, 7))
    report = analyze(write_run(tmp_path, [trace]))

    (finding,) = report.findings
    assert (finding.id, finding.cause, finding.saving_ns) == ("idle-unexplained", None, None)
    assert (finding.evidence["in_graphs"], finding.evidence["unknown_ns"]) == (True, 975_000)


def test_a_queue_that_waits_for_what_is_not_recorded_is_never_the_first_cause(tmp_path: Path) -> None:
    """GIVEN a host that launches the first kernel late, for 300, and a queue that then stands still for 500."""
    trace = TraceBuilder(world_size=1)
    for at in range(0, 4000, 1000):
        trace.step(at // 1000, at, 1000).kernel("a", at + 305, 95, launched_at=at + 300)
        trace.kernel("b", at + 900, 100, launched_at=at + 310)
    report = analyze(write_run(tmp_path, [trace]), only="breakdown")

    assert [finding.id for finding in report.findings] == ["launch-bound", "idle-unexplained"]
    assert report.findings[0].evidence["share"] == pytest.approx(0.305)
    assert report.findings[1].evidence["unknown_share"] == pytest.approx(0.5, abs=0.01)


def assert_exact(report: Report) -> None:
    """The causes of each rank sum to its idle time, and no place takes more than its cause."""
    rows = rows_of(report.breakdown, "idle")
    causes_ns: dict[str, int] = {}
    for rank in rows_of(report.breakdown, "ranks"):
        assert sum(row["total_ns"] for row in rows if row["rank"] == rank["rank"]) == rank["idle_ns"]
    for row in rows:
        causes_ns[row["cause"]] = causes_ns.get(row["cause"], 0) + row["total_ns"]
    for cause, total_ns in causes_ns.items():
        locations = [row for row in rows_of(report.breakdown, "idle_locations") if row["cause"] == cause]
        assert sum(row["total_ns"] for row in locations) <= total_ns
        assert all(row["worst_ns"] <= row["total_ns"] for row in locations)


def test_the_causes_of_recorded_cpu_ranks_sum_to_their_idle_time() -> None:
    assert_exact(analyze(DATA / "ddp_slow_rank", only="breakdown"))


def test_why_the_gpus_of_dlrm_idle(real_traces: Path) -> None:
    """The hosts launch too late. On ranks that wait for others in the first all-to-all, indexing with a mask lets the
    host wait for it, too, and the device gets nothing to do when it is over.
    """
    report = analyze(real_traces / "dlrm_8xV100", only="breakdown")
    assert_exact(report)
    (finding,) = (finding for finding in report.findings if finding.id == "launch-bound")
    assert len(finding.text) <= 160
    assert (finding.cause, finding.action is None) == ("host_bound", False)
    (waits, *_) = [row for row in rows_of(report.breakdown, "idle_locations") if row["cause"] == "synchronisation"]
    assert (waits["operator"], waits["worst_rank"]) == ("aten::index", 3)
