"""Kernels of which it is not known whether they communicate: what is asked of the user. Times are microseconds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.builders import TraceBuilder, write_run
from tracekit.findings.finding import Finding
from tracekit.report.report import Report, analyze

ACME = "void acme::(anonymous namespace)::exchange<float, 8>(float*, int)"


def a_rank(rank: int = 0, *, mystery_us: int = 100, world_size: int = 2, name: str = ACME) -> TraceBuilder:
    """Two steps of 1000: 800 of compute, and a kernel that symmetric memory launches on a stream of its own."""
    trace = TraceBuilder(rank, world_size)
    for step in range(2):
        at = 1000 * step
        trace.step(step, at, 1000).kernel("my_mlp", at + 50, 800, launched_at=at + 1)
        trace.op("symm_mem::exchange", at + 2, 10).kernel(name, at + 860, mystery_us, stream=33, launched_at=at + 5)
    return trace


def report_of(folder: Path, ranks: Sequence[TraceBuilder], *rules: str, only: str | None = None) -> Report:
    return analyze(write_run(folder, ranks), communication_rules=rules, only=only)


def asked(report: Report) -> list[Finding]:
    """Return the findings that ask for a rule."""
    return [finding for finding in report.findings if "--communication-rule" in (finding.action or "")]


def is_all_clear(report: Report) -> bool:
    return any("nothing stands out" in finding.text for finding in report.findings)


@pytest.mark.parametrize("only", [None, "breakdown"])
def test_the_finding_asks_for_a_rule_which_makes_it_go_away(tmp_path: Path, only: str | None) -> None:
    """GIVEN 10 % of the step in kernels that look like communication. THEN they count as communication, kind
    unclassified, and the option that the finding names, as it stands there, says what they are.
    """
    run = [a_rank(0), a_rank(1)]
    report = report_of(tmp_path, run, only=only)
    (finding,) = asked(report)
    assert (finding.severity, finding.cause, finding.time_ns) == ("warning", "unclassified", 100_000)
    assert finding.evidence["unclassified_share"] == pytest.approx(0.1)
    assert not is_all_clear(report)
    (rank, _) = [row for _, row in report.breakdown.ranks.iterrows()]
    assert (rank["compute_ns"], rank["exposed_comm_ns"]) == (2 * 800_000, 2 * 100_000)

    assert finding.action is not None
    words = shlex.split(finding.action.partition("do: ")[2].partition(", with")[0])
    assert words[0] == "--communication-rule"
    named = report_of(tmp_path, run, words[1].replace("=unknown", "=all_to_all"))
    assert asked(named) == []
    assert {row["kind"] for _, row in named.overlap.communication.iterrows()} == {"all_to_all"}
    assert named.run.arguments[-2:] == ["--communication-rule", words[1].replace("=unknown", "=all_to_all")]


def test_a_kernel_that_computes_after_all_is_named_so(tmp_path: Path) -> None:
    """Then the job shows no communication, so there is still no all-clear."""
    report = report_of(tmp_path, [a_rank(0), a_rank(1)], "exchange=compute")
    assert report.breakdown.ranks["compute_ns"].tolist() == [2 * 900_000] * 2
    (finding,) = asked(report)
    assert (finding.id, finding.evidence["ranks"]) == ("no-communication", 2)


def test_a_small_share_is_not_asked_about(tmp_path: Path) -> None:
    assert asked(report_of(tmp_path, [a_rank(mystery_us=9)])) == []
    assert len(asked(report_of(tmp_path, [a_rank(mystery_us=11)]))) == 1


def test_several_functions_are_counted_and_the_longest_named(tmp_path: Path) -> None:
    trace = a_rank()
    trace.op("symm_mem::exchange", 20, 10).kernel("brief_exchange", 965, 20, stream=33, launched_at=25)
    (finding,) = asked(report_of(tmp_path, [trace]))
    assert "exchange=unknown" in str(finding.action)
    assert finding.evidence["others"] == 1


def job_without_communication(world_size: int) -> TraceBuilder:
    trace = TraceBuilder(0, world_size).step(0, 0, 1000)
    trace.kernel("my_mlp", 10, 980, launched_at=1)
    return trace.kernel("void acme::exchange<8>(int)", 20, 900, stream=27, launched_at=2)


def test_a_job_of_several_ranks_without_communication_gets_no_all_clear(tmp_path: Path) -> None:
    report = report_of(tmp_path, [job_without_communication(64)])
    assert not is_all_clear(report)
    assert [finding.id for finding in asked(report)] == ["no-communication"]


@pytest.mark.parametrize(("longer_us", "named"), [(150, [1]), (30, [])])
def test_ranks_without_communication_are_compared_by_what_they_compute(
    tmp_path: Path, longer_us: int, named: list[int]
) -> None:
    """GIVEN steps of one length, as of ranks that meet outside of the recording, and one that computes longer."""
    ranks = []
    for rank in range(3):
        trace = TraceBuilder(rank, 3)
        for step in range(4):
            at = 1000 * step
            trace.step(step, at, 1000).kernel("my_mlp", at + 50, 700 + longer_us * (rank == 1), launched_at=at + 1)
        ranks.append(trace)
    found = [each for each in report_of(tmp_path, ranks).findings if each.id == "longer-compute"]
    assert [each.rank for each in found] == named


def test_a_rank_that_only_copies_is_not_cleared(tmp_path: Path) -> None:
    """GIVEN a benchmark of copies, 90 of 100 us of each step THEN these are the finding, with their share."""
    trace = TraceBuilder(world_size=1)
    for step in range(2):
        trace.step(step, 100 * step, 100).memcpy(100 * step + 10, 90, launched_at=100 * step + 5)
    report = analyze(write_run(tmp_path, [trace]))
    first = report.findings[0]
    assert (report.run.device, first.id, first.evidence["copy_share"]) == ("gpu", "exposed-copies", 0.9)
