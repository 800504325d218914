"""The comparison in the terminal: one screen, whatever the runs are called and however much differs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps
from tracekit.api import Comparison, Report, compare
from tracekit.explain.configuration import CONFIGURATION
from tracekit.model.metadata import Settings
from tracekit.model.notes import Note
from tracekit.render.answer import LINES
from tracekit.render.comparison.outputs import comparison_text

HOSTILE = "runs/\x1b[31m\u202e" + "very-long-name-" * 12


def shown(comparison: Comparison, width: int = 80) -> list[str]:
    return comparison_text(comparison, width=width, color=False).splitlines()


def configured(report: Report, value: str) -> Report:
    """Return a report on a run with many settings, all of this value."""
    settings = (Settings(component="ddp", values={f"setting_{i}": value for i in range(30)}),)
    ranks = tuple(summary.with_part(CONFIGURATION, settings) for summary in report.run.ranks)
    return replace(report, run=replace(report.run, ranks=ranks))


def test_a_slower_run() -> None:
    comparison = compare([report_of_steps(STEADY, path="main")], report_of_steps(longer(10), path="branch"))
    lines = shown(comparison)
    assert lines[0] == "baseline   10 steps of 100.00 ms (99.00 to 101.00): main, run run-1"
    assert lines[1] == "candidate  10 steps of 110.00 ms (109.00 to 111.00): branch, run run-1"
    assert lines[3].startswith("slower: a step takes 10.00 ms (10.0%) longer (98% interval +")
    assert "noise: " in lines[4]
    (compute,) = [line for line in lines if line.startswith("compute ")]
    assert compute.split() == ["compute", "90.00", "100.00", "+10.00"]
    assert any(line.startswith("look at    (exploratory) phase other +10.00 ms · rank 0 +10.00 ms") for line in lines)
    assert lines[-1] == "Next: tracekit analyze branch"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (report_of_steps(longer(-10)), "faster: a step takes 10.00 ms (10.0%) shorter"),
        (report_of_steps(longer(0.1)), "equivalent: a step takes as long, within 3.0% (+0.1%;"),
        (report_of_steps(longer(1.5)), "inconclusive: a step takes 1.50 ms (1.5%) longer, but noise leaves open"),
        (
            report_of_steps(STEADY[:1]),
            "inconclusive: a step takes as long, and few steps do not show how",
        ),
    ],
)
def test_the_verdict_comes_first(candidate: Report, expected: str) -> None:
    lines = shown(compare([report_of_steps(STEADY)], candidate))
    assert lines[3].startswith(expected), lines[3]


def test_an_inconclusive_comparison_says_what_would_decide() -> None:
    few = " ".join(shown(compare([report_of_steps(STEADY[:5])], report_of_steps(longer(4)))))
    assert "steps in each run would decide; with fewer than 8, only changes of 10% show" in few
    near = " ".join(shown(compare([report_of_steps(STEADY)], report_of_steps(longer(1.5)))))
    assert "more steps cannot decide: runs may differ by as much though nothing is changed" in near


def test_what_was_repaired_is_said_once() -> None:
    note = Note(id="truncated", severity="warning", rank=1, file="r1", text="rank 1: r1: cut off at byte 1500" * 9)
    lines = shown(compare([report_of_steps(STEADY)], report_of_steps(STEADY, path="branch", notes=(note, note))))
    assert [line[:42] for line in lines if line.startswith("! ")] == ["! branch: rank 1: r1: cut off at byte 1500"]
    assert lines[0].startswith("baseline")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_it_fits_one_screen_whatever_the_runs_are(width: int) -> None:
    """GIVEN hostile names, all settings different, ranks that became slow, few steps, and a damaged file."""
    note = Note(id="truncated", severity="warning", rank=1, file=HOSTILE, text=f"rank 1: {HOSTILE}: cut off")
    baseline = configured(report_of_steps(STEADY, ranks=8, path=HOSTILE, notes=(note,)), "before " * 9)
    candidate = report_of_steps(longer(9), ranks=8, slower_ms={3: 30, 5: 30}, data_ms=3, transfer_ms=30, path=HOSTILE)
    for steps in (slice(None), slice(4)):
        part = report_of_steps(longer(9)[steps], ranks=8, slower_ms={3: 40}, data_ms=3, transfer_ms=30, path=HOSTILE)
        for other in (candidate, part):
            lines = shown(compare([baseline], configured(other, "after")), width)
            *above, command = lines
            assert len(above) + -(-len(command) // width) <= LINES
            assert max(map(len, above)) <= width
            assert "\x1b" not in "".join(lines)
            assert "\u202e" not in "".join(lines)


def test_several_baselines_take_one_line() -> None:
    baselines = [report_of_steps(longer(by), path=f"main-{by}") for by in (0, 1, 2)]
    lines = shown(compare(baselines, report_of_steps(longer(9))))
    assert lines[0].startswith("baseline   3 runs, 30 steps of 100.00 to 102.00 ms: main-0, main-1")
    assert any("as 3 baseline runs show" in " ".join(pair) for pair in itertools.pairwise(lines))
