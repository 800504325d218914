"""Findings on the causes of the step that no other section reports on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.simulated import Cluster
from tests.builders import TraceBuilder
from tracekit.explain.diagnosis.critical_path import critical_path
from tracekit.explain.diagnosis.diagnosis import diagnose
from tracekit.explain.stragglers.arrivals import arrivals_of
from tracekit.explain.stragglers.verdict import Verdict
from tracekit.findings.finding import Finding, held
from tracekit.model.run import Run
from tracekit.report.report import analyze


def findings(run: Run) -> dict[str | None, Finding]:
    """Return the findings of the diagnosis by cause."""
    arrivals = arrivals_of(run, run.common_steps())
    result = diagnose(run, arrivals, critical_path(run, arrivals), Verdict(), None)
    return {finding.cause: finding for finding in held(result.findings)}


def cluster(*, transfer: int, late: int = 0, steps: int = 4, who: Sequence[int] = (0, 1)) -> Run:
    """Steps of 1,000 ns of compute, after which ranks take turns at being late, and one reduction.

    who: is late in each step, over and over; -1: nobody.
    """
    built = Cluster(2)
    for step in built.steps(steps):
        for rank in range(2):
            built.work(rank, compute=1000 + late * (who[step % len(who)] == rank))
        built.collective((0, 1), transfer=transfer)
    return built.run()


def test_transfers_are_a_finding_with_their_time_and_what_most_of_it_is() -> None:
    found = findings(cluster(transfer=250))["transfer"]
    assert found.time_ns == 250
    assert found.evidence["kind"] == "all_reduce"
    assert found.remedy == "communication"
    assert "20% of the step" in found.text


def test_waiting_is_no_transfer() -> None:
    """GIVEN ranks that wait 400 ns for each other and transfer for 20 ns THEN only the waiting is a finding."""
    found = findings(cluster(transfer=20, late=400))
    assert set(found) == {"variation"}
    assert found["variation"].time_ns == 400


@pytest.mark.parametrize(
    ("who", "steps", "expected", "last"),
    [
        pytest.param((0, 1), 4, "late-by-turns", (0, 2), id="one after the other"),
        pytest.param((0, 1, -1), 3, "late-by-turns", (0, 1), id="each once"),
        pytest.param((1,), 1, "late-at-times", (1, 1), id="only one step"),
        pytest.param((1, -1, -1), 3, "late-at-times", (1, 1), id="one rank once"),
        pytest.param((1, 1, 1, 0), 4, "late-at-times", (1, 3), id="one rank in most steps"),
    ],
)
def test_taking_turns_takes_several_ranks_and_steps(
    who: Sequence[int], steps: int, expected: str, last: tuple[int, int]
) -> None:
    found = findings(cluster(transfer=20, late=400, steps=steps, who=who))["variation"]
    assert (found.id, (found.evidence["last_rank"], found.evidence["last_in"])) == (expected, last)


def test_a_small_share_is_no_finding() -> None:
    assert findings(cluster(transfer=20, late=20)) == {}


def test_a_rank_alone_cannot_tell_waiting_from_transfer(tmp_path: Path) -> None:
    """GIVEN one of two ranks, which computes for 60 us and is in a reduction for 40 us that nothing hides."""
    trace = TraceBuilder().step(0, 0, 100).kernel("gemm", 0, 60, launched_at=0)
    trace.nccl("all_reduce", 60, 40, launched_at=1)
    report = analyze(trace.write(tmp_path / "rank0.json"))
    assert report.diagnosis is not None
    (finding,) = report.diagnosis.findings
    assert (finding.cause, finding.time_ns) == ("communication", 40_000)
    assert (finding.id, finding.evidence["all_ranks"]) == ("exposed-communication", False)
