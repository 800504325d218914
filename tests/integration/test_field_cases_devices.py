"""Recordings of users: options of the profiler, overlapping kernels, and queues that wait for what is not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.comparison.comparison import compare
from tracekit.model.table import rows_of
from tracekit.render.comparison.outputs import comparison_text
from tracekit.report.report import analyze


def test_runs_recorded_with_other_options_are_no_proof(cases: Path) -> None:
    folder = cases / "compare-options-of-profiler"
    comparison = compare(folder / "plain", folder / "stacks")
    differences = {row["what"]: row["candidate"] for row in rows_of(comparison, "differences")}
    assert differences == dict.fromkeys(("with_stack", "record_shapes", "profile_memory"), "True")
    assert comparison.verdict.judgement == "slower"
    assert "no proof" in " ".join(comparison_text(comparison, width=200, color=False).split())


@pytest.mark.parametrize(("run", "ranks", "median_us"), [("run", {2}, 21_500), ("clean", set(), 17_800)])
def test_kernels_that_overlap_on_a_stream_blame_nobody_else(
    cases: Path, run: str, ranks: set[int], median_us: int
) -> None:
    report = analyze(cases / "kernels-that-overlap-on-a-stream" / run)
    assert {rank for finding in report.findings for rank in finding.concerned} == ranks
    (median_ns, *_) = sorted(report.run.step_lengths_ns.values())[len(report.run.step_lengths_ns) // 2 :]
    assert median_ns / 1000 == pytest.approx(median_us, rel=0.01)
    assert any(note.id == "overlapping" for note in report.run.notes)


def test_what_is_not_recorded_is_no_cause_of_idle_time(cases: Path) -> None:
    report = analyze(cases / "gpu-ranks-without-communication" / "run")
    (unexplained,) = [finding for finding in report.findings if finding.id == "idle-unexplained"]
    assert (unexplained.severity, unexplained.saving_ns) == ("info", None)


def test_a_gpu_that_two_processes_share_is_not_said_to_idle(real_traces: Path) -> None:
    report = analyze(real_traces / "h200_shared" / "ddp2_torch_sync")
    ids = [finding.id for finding in report.findings]
    assert ids.index("idle-unexplained") > 0
    assert not {"launch-bound", "kernel-gaps", "host-synchronisation"} & set(ids)
