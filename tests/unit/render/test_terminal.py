"""The report in a terminal: why there are no results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.builders import TraceBuilder, write_run
from tracekit.api import analyze
from tracekit.explain.section import Unavailable
from tracekit.render.terminal import terminal_text


def test_a_section_without_a_result_says_why_unless_its_question_does_not_arise(tmp_path: Path) -> None:
    """GIVEN two ranks that recorded different steps, without a pipeline."""
    traces = [TraceBuilder(rank, 2).step(5 * rank, 0, 100).op("aten::mm", 5, 90) for rank in (0, 1)]
    report = analyze(write_run(tmp_path, traces))

    lines = terminal_text(report, width=120).splitlines()

    assert set(report.unavailable) == {"configuration", "pipeline", "whatif"}
    assert [line for line in lines if line.startswith("· what if n/a: no step that all ranks completed")]
    assert not [line for line in lines if "pipeline" in line]


def test_sections_that_lack_the_same_share_a_line(tmp_path: Path) -> None:
    report = analyze(TraceBuilder().step(0, 0, 100).op("aten::mm", 5, 90).write(tmp_path / "rank0.json.gz"))
    missing = Unavailable(reason="no step is complete")

    text = terminal_text(replace(report, results={"whatif": missing, "roofline": missing}))

    assert "· what if, roofline n/a: no step is complete" in text.splitlines()
