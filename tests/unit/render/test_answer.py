"""The answer in one screen: at most 30 lines at 80 columns, whatever was recorded, and nothing in it contradicts the
JSON result.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu_jobs import simulate
from benchmarks.simulated import Cluster
from benchmarks.studies.gpu_jobs.cases import GROUPS, Case
from tracekit.api import Report, analyze
from tracekit.findings.finding import Finding
from tracekit.render.answer import LINES, saving_share_text
from tracekit.render.json_result import result_dict
from tracekit.render.terminal import Extent, terminal_text

WIDTH = 80


def lines_of(report: Report, width: int = WIDTH) -> list[str]:
    return terminal_text(report, width=width, extent="answer").splitlines()


def job(ranks: int, slow: int) -> Report:
    """A run of ranks that compute for 1 ms, but one for 2 ms, and meet in an all-reduce, over five steps."""
    cluster = Cluster(ranks)
    for _ in cluster.steps(5):
        for rank in range(ranks):
            cluster.work(rank, compute=1_000_000 * (1 + (rank == slow)))
        cluster.collective(range(ranks), transfer=50_000)
    return analyze(cluster.run(), only=("breakdown", "stragglers", "critical_path", "diagnosis"))


def with_findings(report: Report, *findings: Finding) -> Report:
    return replace(report, findings=findings)


LONG = Finding(
    id="straggler",
    severity="warning",
    text="a very long statement about the run, " * 12,
    action="do all of this, and more, " * 12,
    saving_ns=10_000,
    saving_error_ns=1_000,
)


@pytest.mark.parametrize(
    ("saving_ns", "error_ns", "time_ns", "text"),
    [
        (40_000, 1_000, 30_000, "40%, with the others' waiting"),
        (40_000, 8_000, 30_000, "40%"),  # not surely more than the time that it is about
        (30_000, 1_000, 30_000, "30%"),
        (30_000, 1_000, None, "30%"),
    ],
)
def test_a_saving_beyond_what_it_is_about_says_why(
    saving_ns: int, error_ns: int, time_ns: int | None, text: str
) -> None:
    found = replace(LONG, saving_ns=saving_ns, saving_error_ns=error_ns, time_ns=time_ns, evidence={"behind_ns": 1})
    assert saving_share_text(found, 100_000) == text
    assert saving_share_text(replace(found, evidence={}), 100_000) == text[:3]  # nobody waits for it
    assert saving_share_text(replace(found, remedy="data"), 100_000) == f"at most {text}"


def assert_fits(report: Report, width: int = WIDTH) -> None:
    lines = lines_of(report, width)
    assert len(lines) <= LINES, "\n".join(lines)
    assert [line for line in lines[:-1] if len(line) > width] == []
    assert lines[-1].startswith("Next: tracekit report ")


@pytest.mark.parametrize("ranks", [2, 8, 1024])
def test_it_fits_one_screen_with_any_number_of_ranks(ranks: int) -> None:
    report = job(ranks, slow=1)
    assert_fits(report)
    assert_fits(with_findings(report, *[LONG] * 7))


@pytest.mark.parametrize("group", GROUPS)
def test_it_fits_one_screen_for_every_strategy(group: str) -> None:
    assert_fits(simulate(Case(group, 3).spec()).report())


@pytest.mark.parametrize("name", ["dlrm_8xV100", "two_of_128", "gloo_rank34_of_300"])
def test_it_fits_one_screen_on_public_traces(real_traces: Path, name: str) -> None:
    report = analyze(str(real_traces / name))
    for width in (60, WIDTH, 120):
        assert_fits(report, width)


def test_a_legend_of_several_lines_leaves_fewer_rows() -> None:
    """GIVEN a narrow terminal and eight ranks that look different, below a finding of any length."""
    report = simulate(Case("fsdp", 3).spec()).report()
    for count in range(8, 60, 4):
        finding = replace(LONG, text="claim " * count, action=None)
        assert_fits(with_findings(report, finding), 36)


def test_the_blamed_rank_has_a_bar_even_of_many() -> None:
    report = job(64, slow=41)
    labels = [line.split()[1] for line in lines_of(report) if re.match(r"rank \d", line)]
    assert "41" in labels
    assert len(labels) <= 8


@pytest.mark.parametrize("group", [group for group in GROUPS if not group.startswith("lost")])
def test_every_saving_that_is_printed_is_that_of_the_what_if(group: str) -> None:
    """GIVEN a job with a defect THEN text, findings and the table of changes have one number for one thing."""
    report = simulate(Case(group, 3).spec()).report()
    result = result_dict(report)
    expected = [f"{finding['saving_ns'] / 1e6:.1f}" for finding in result["findings"][:3] if finding["saving_ns"]]
    printed = re.findall(r"Saves ([\d.]+)(?: ± [\d.]+)? ms", " ".join(lines_of(report)))
    assert printed != []
    assert printed == expected[: len(printed)]
    changes = {row["what"]: row["saves_ns_per_step"] for row in result["whatif"]["fix"]}
    savings = [f for f in result["findings"] if f["saving_ns"]]
    if "change" in savings[0]["evidence"]:
        assert savings[0]["saving_ns"] == changes[savings[0]["evidence"]["change"]]
    assert sum(f["saving_ns"] for f in savings) <= 1.01 * result["whatif"]["measured_step_ns"]
    claimed_ns = sum((f["time_ns"] or 0) + f["evidence"].get("behind_ns", 0) for f in result["findings"])
    assert claimed_ns <= result["diagnosis"]["step_ns"]


def test_what_is_likely_is_said_to_be() -> None:
    report = with_findings(
        job(2, slow=1), Finding(id="straggler", severity="warning", text="it is slow", certainty="likely")
    )
    assert "Likely, not sure" in " ".join(lines_of(report))


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("extent", ["answer", "verdict", "full"])
def test_no_claim_is_cut(width: int, extent: Extent) -> None:
    text = terminal_text(with_findings(job(2, slow=1), LONG), width=width, extent=extent)
    assert max(map(len, text.splitlines()[:-1])) <= width
    words = " ".join(text.split()).lower()
    assert LONG.action is not None
    assert LONG.text.strip() in words
    assert LONG.action.strip() in words
