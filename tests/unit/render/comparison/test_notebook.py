"""A comparison in Python: from paths, runs or reports, as text, tables, a notebook's screen and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tracekit
from tests.builders import TraceBuilder, write_run
from tests.unit.comparison.compared_runs import STEADY, longer, report_of_steps, run_of_steps
from tracekit.errors import OutputError, UsageError

HOSTILE = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def slower() -> tracekit.Comparison:
    return tracekit.compare(run_of_steps(STEADY, path="main"), run_of_steps(longer(10), path="branch"))


def test_its_repr_is_the_verdict(slower: tracekit.Comparison) -> None:
    assert repr(slower) == "<tracekit.Comparison of 'branch' with 'main': slower, +10.0%>"


def test_of_many_baselines_three_are_named() -> None:
    baselines = [report_of_steps(STEADY, path=f"main-{number}") for number in range(5)]
    comparison = tracekit.compare(baselines, report_of_steps(STEADY, path="branch"))
    expected = "with 'main-0', 'main-1', 'main-2' and 2 more: equivalent, +0.0%>"
    assert repr(comparison).endswith(expected)


def test_runs_are_read_from_their_folders(tmp_path: Path) -> None:
    """GIVEN two folders, whose runs have ten steps of 100 and of 110 us."""

    def folder(name: str, length: int) -> Path:
        trace = TraceBuilder(0, world_size=1)
        for step in range(10):
            trace.step(step + 1, step * length, length).op("aten::mm", step * length + 5, length - 10)
        return write_run(tmp_path / name, [trace])

    comparison = tracekit.compare([folder("main", 100)], str(folder("branch", 110)))
    assert comparison.verdict.judgement == "slower"
    assert (comparison.baseline_ns, comparison.candidate_ns) == (100_000, 110_000)


def test_tables_are_described_frames(slower: tracekit.Comparison) -> None:
    assert list(slower.tables) == list(tracekit.schema.COMPARISON_TABLES)
    causes = slower.tables["cause_changes"]
    assert causes["change_ns"].sum() == slower.candidate_ns - slower.baseline_ns == 10_000_000
    assert causes.attrs["columns"]["change_ns"]["unit"] == "ns"


def test_a_notebook_shows_one_screen(slower: tracekit.Comparison) -> None:
    page = slower._repr_html_()
    assert "<b>slower: a step takes 10.00 ms (10.0%) longer (98% interval" in page
    assert "+10.00" in page
    assert len(page) < 4000


def test_names_of_runs_are_inert_in_a_notebook() -> None:
    comparison = tracekit.compare(report_of_steps(STEADY, path=HOSTILE), report_of_steps(STEADY, path=HOSTILE))
    assert "<script" not in comparison._repr_html_()
    assert "\x1b" not in comparison._repr_html_() + repr(comparison) + comparison.summary()


def test_it_is_written_as_its_name_says(slower: tracekit.Comparison, tmp_path: Path) -> None:
    for name in ("compare.html", "compare.json", "compare.md", "compare.txt"):
        slower.write(tmp_path / name)
    assert json.loads((tmp_path / "compare.json").read_text()) == json.loads(slower.to_json())
    assert (tmp_path / "compare.html").read_text() == slower.to_html()
    assert "Content-Security-Policy" in slower.to_html()
    assert (tmp_path / "compare.txt").read_text().splitlines()[3] == slower.summary().splitlines()[3]
    with pytest.raises(OutputError, match="exists already"):
        slower.write(tmp_path / "compare.md")
    with pytest.raises(UsageError, match=r"compare\.pdf: the name does not end in \.html, \.json, \.md, \.txt"):
        slower.write(tmp_path / "compare.pdf")


def test_shares_and_baselines_that_make_no_sense_are_refused() -> None:
    run = run_of_steps(STEADY)
    with pytest.raises(UsageError, match="margin=3 is not a share"):
        tracekit.compare(run, run, margin=3)
    with pytest.raises(UsageError, match="there is no baseline"):
        tracekit.compare([], run)
