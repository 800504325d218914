"""Ranks that ran on one machine have one clock: public recordings of NCCL ranks that shared a GPU in turns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tracekit.explain.pipeline.tables import ACTIONS
from tracekit.explain.step_time.step_lengths import step_lengths
from tracekit.loading.load import load
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.report.report import analyze

MS = 1_000_000
JOBS = ("ddp2_torch_host", "ddp2_torch_sync", "ddp4_torch_data", "ep2_torch", "fsdp2_2_tk_host", "pp_hand4_torch")


def recorded(job: str) -> Path:
    folder = Path(os.environ.get("TRACEKIT_REAL_TRACES", ""), "h200_shared", job)
    if "TRACEKIT_REAL_TRACES" not in os.environ or not folder.exists():
        pytest.skip("TRACEKIT_REAL_TRACES is not set, or lacks the recording")
    return folder


@pytest.mark.parametrize("job", JOBS)
def test_ranks_of_one_machine_have_one_clock(job: str) -> None:
    """THEN each offset is 0, and errors are at most 1 ms and 2 % of a step."""
    run = load(recorded(job))
    shortest_ns = min(step.step_ns for summary in run.ranks for step in summary.steps)
    for clock in run.clocks:
        assert clock.method in ("host", "probe")
        assert (clock.offset_ns, clock.jump_ns) == (0, None)
        assert (clock.error_ns or 0) <= min(MS, 0.02 * shortest_ns)


@pytest.mark.parametrize(
    ("job", "step_ms", "first", "rank", "saved_ms"),
    [
        ("ddp4_torch_data", 445.6, "straggler", 3, (340, 400)),  # it sleeps 400 ms
        ("fsdp2_2_tk_host", 185.0, "straggler", 1, (115, 135)),  # it sleeps 120 ms
        ("ddp2_torch_host", 83.9, "exposed-transfers", None, None),  # communication hides that rank 1 sleeps 20 ms
        ("ddp2_torch_sync", 128.3, "late-at-times", None, None),  # rank 0 reads the loss, which costs nothing
        ("ep2_torch", 160.3, "exposed-transfers", None, None),
        ("single_torch", 75.1, "nothing-notable", None, None),
        ("single_tk", 82.2, "recording-overhead", None, None),
    ],
)
def test_what_is_known_of_ranks_that_share_a_gpu(
    job: str, step_ms: float, first: str, rank: int | None, saved_ms: tuple[float, float] | None
) -> None:
    """THEN the one that sleeps is named once, with what it costs, and nobody where it costs nothing."""
    report = analyze(load(recorded(job)))
    lengths = step_lengths(report.run)
    finding = report.findings[0]
    assert lengths is not None
    assert lengths.median_ns / MS == pytest.approx(step_ms, abs=0.1)
    assert (finding.id, finding.rank) == (first, rank)
    assert [each.id for each in report.findings].count("straggler") == (first == "straggler")
    if saved_ms is not None:
        assert saved_ms[0] <= (finding.saving_ns or 0) / MS <= saved_ms[1]


def test_a_pipeline_by_hand_whose_losses_come_late() -> None:
    """GIVEN 4 stages, all 8 forwards first, losses before backwards THEN schedule and bubble are known."""
    report = analyze(load(recorded("pp_hand4_torch")))
    layouts = [summary.pipeline.layout for summary in report.run.ranks if summary.pipeline is not None]
    assert [(layout.schedule, layout.stages, layout.microbatches) for layout in layouts] == [("gpipe", 4, 8)] * 4
    assert [layout.stage_ids for layout in layouts] == [[0], [1], [2], [3]]
    first, second = report.findings[:2]
    assert (first.rank, first.cause) == (3, "imbalance")
    assert report.pipeline is not None
    assert report.pipeline.bubble_ratio is not None
    assert report.pipeline.bubble_ratio == pytest.approx(_bubble_of_actions(report.run), abs=0.03)
    assert second.evidence["bubble_ratio"] < report.pipeline.bubble_ratio  # without those behind the stage


def _bubble_of_actions(run: Run) -> float:
    """Return the bubble by hand, from the actions as they are on the one clock."""
    bubble_ns = whole_ns = 0
    for step in sorted({step.step for step in run.ranks[0].steps}):
        of_ranks = [summary[ACTIONS].rows(summary[ACTIONS].step == step) for summary in run.ranks]
        first_ns, last_ns = min(a.start_ns.min() for a in of_ranks), max(a.end_ns.max() for a in of_ranks)
        whole_ns += len(of_ranks) * int(last_ns - first_ns)
        bubble_ns += sum(int(last_ns - first_ns) - Intervals.union_of(a.start_ns, a.end_ns).len_ns for a in of_ranks)
    return bubble_ns / whole_ns
