"""When is all said to be clear, and what is said otherwise where no analysis has a finding? Times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.explain.stragglers.verdict import Verdict
from tracekit.findings.finding import Finding
from tracekit.report.all_clear import unsaid_cause, without_findings
from tracekit.report.report import analyze


def cpu_rank(rank: int, compute_ms: Sequence[float], step_ms: Sequence[float], ranks: int = 2) -> TraceBuilder:
    """Return a rank that computes first in each step and communicates nothing."""
    trace, now = TraceBuilder(rank, ranks), 0.0
    for step, (compute, length) in enumerate(zip(compute_ms, step_ms, strict=True)):
        trace.step(step, 1000 * now, 1000 * length).op("aten::mm", 1000 * now, 1000 * compute)
        now += length
    return trace


def only_finding(folder: Path, traces: Sequence[TraceBuilder]) -> Finding:
    (finding,) = analyze(write_run(folder, traces)).findings
    return finding


@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_of_mostly_compute_are_an_all_clear(tmp_path: Path, ranks: int) -> None:
    finding = only_finding(tmp_path, [cpu_rank(rank, [29] * 4, [30] * 4, ranks) for rank in range(ranks)])
    assert (finding.id, finding.evidence["compute_share"]) == ("nothing-notable", pytest.approx(29 / 30, rel=1e-3))


def test_a_rank_that_mostly_waits_is_no_all_clear_beside_one_that_computes(tmp_path: Path) -> None:
    """GIVEN a rank that receives for 28 of its 30 ms, as a server does, from one whose messages are not seen."""
    waiting = cpu_rank(0, [2] * 3, [30] * 3)
    for step in range(3):
        waiting.event("gloo:recv", "user_annotation", 1000 * (30 * step + 2), 28e3)
    finding = only_finding(tmp_path, [waiting, cpu_rank(1, [29] * 3, [30] * 3)])
    evidence = finding.evidence
    assert (finding.id, evidence["part"], evidence["of_ranks"]) == ("unexplained-part", "exposed_comm", [0])
    assert (finding.rank, finding.time_ns, evidence["share"]) == (None, 28_000_000, pytest.approx(28 / 30))


@pytest.mark.parametrize(
    ("step_ms", "clear"),
    [
        pytest.param([33, 33, 33], False, id="10 % longer"),
        pytest.param([30.9, 30.9, 30.9], True, id="3 % longer"),
        pytest.param([25, 31, 42], True, id="within the noise"),
    ],
)
def test_ranks_whose_steps_are_not_equally_long_are_no_all_clear(
    tmp_path: Path, step_ms: list[float], clear: bool
) -> None:
    finding = only_finding(tmp_path, [cpu_rank(0, [29] * 3, [30] * 3), cpu_rank(1, [x - 1 for x in step_ms], step_ms)])
    if clear:
        assert finding.id == "nothing-notable"
    else:
        assert (finding.id, finding.evidence["part"]) == ("unexplained-part", "longer_steps")
        assert (finding.rank, finding.time_ns) == (None, 3_000_000)


def test_a_rank_that_the_verdict_names_is_told_although_nobody_is_seen_to_wait(tmp_path: Path) -> None:
    """GIVEN micro-batches as steps, in a window without a reduction, and a verdict on rank 1."""
    report = analyze(write_run(tmp_path, [cpu_rank(rank, [29] * 3, [30] * 3) for rank in range(2)]))
    assert report.stragglers is not None
    verdict = Verdict(rank=1, cause="compute", caused_delay_ns=6_000_000, share_of_step=0.2, certainty="likely")
    finding = without_findings(report.run, {"stragglers": replace(report.stragglers, verdict=verdict)})
    assert (finding.evidence["part"], finding.evidence["late_by"]) == ("late", "compute")
    assert (finding.rank, finding.time_ns, finding.certainty) == (1, 6_000_000, "likely")


def test_a_large_cause_is_told_beside_a_finding_that_does_not_explain_it(tmp_path: Path) -> None:
    """GIVEN an idle host for 9 of 50 ms, and a finding about something else, or about that."""
    report = analyze(write_run(tmp_path, [cpu_rank(0, [41] * 3, [50] * 3, 1)]))
    other = Finding(id="float32-products", severity="info", text="smaller", time_ns=3_000_000)

    (told,) = unsaid_cause(report.run, report.results, [other])
    assert (told.id, told.evidence["part"], told.time_ns) == ("unexplained-part", "host_bound", 9_000_000)
    assert unsaid_cause(report.run, report.results, [replace(other, cause="host_bound")]) == []


def test_a_notable_cause_is_told_before_the_part_of_the_rank_that_has_it(tmp_path: Path) -> None:
    """GIVEN an idle host for 9 of 50 ms that no replay saves beyond its error."""
    report = analyze(write_run(tmp_path, [cpu_rank(0, [41] * 3, [50] * 3, 1)]))
    finding = without_findings(report.run, report.results)
    assert (finding.evidence["part"], finding.evidence["share"]) == ("host_bound", pytest.approx(0.18))
