"""The attempts of a job as a sentence and as tables, from a run folder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tests.unit.explain.attempts.planted import PlantedAttempt
from tests.unit.explain.attempts.test_attempts import FINISHED, KILLED, RESUMED, Rank
from tracekit.api import analyze
from tracekit.render.json_result import result_dict
from tracekit.render.run_info import run_text
from tracekit.render.terminal import terminal_text

ALONE = PlantedAttempt(ranks=(FINISHED,), start_s=28.5, joined_s=30.5, first_call_s=32.0, first_step=10, step_s=0.4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job of two ranks one of which is killed, and only the second attempt has a window."""
    KILLED.write(tmp_path, 0)
    RESUMED.write(tmp_path, 1)
    for rank in range(2):
        trace = TraceBuilder(rank, 2).step(14, 0, 100).op("aten::mm", 0, 50)
        trace.capture(run_id="run-1", attempt=1).write_capture(tmp_path)
    return tmp_path


def answer(folder: Path) -> list[str]:
    return terminal_text(analyze(folder), width=80, extent="answer").splitlines()


def test_world_sizes_that_change_are_said(folder: Path) -> None:
    replace(KILLED, ranks=(*KILLED.ranks, Rank(calls=15))).write(folder, 0)
    ALONE.write(folder, 2)

    assert answer(folder)[3].startswith("3 attempts, 3 -> 2 -> 1 ranks; ")


def test_a_run_of_one_attempt_says_nothing_of_attempts(tmp_path: Path) -> None:
    TraceBuilder(0, 1).step(4, 0, 100).op("aten::mm", 0, 50).capture(run_id="run-1").write_capture(tmp_path)

    assert not any(re.search(r"\d attempts|restart", line) for line in answer(tmp_path))
    assert result_dict(analyze(tmp_path))["attempts"] == []


def test_info_and_the_section_show_the_attempts_side_by_side(folder: Path) -> None:
    report = analyze(folder, only="attempts")

    for text in (run_text(report.run), terminal_text(report, extent="sections")):
        lines = [" ".join(line.split()) for line in text.splitlines()]
        assert "0 (not recorded) 2 09-21 14:13:25 15.5 0-14 500.0 rank 1 killed" in lines
        assert "1 2 09-21 14:13:48 31.5 10-39 400.0 finished" in lines
        assert "1 17.10 4.00 8.00 2.00 1.50 1.60 4" in lines


def test_the_json_result_has_the_table(folder: Path) -> None:
    first, second = result_dict(analyze(folder))["attempts"]

    assert (first["recorded"], first["ended_ranks"], first["lost_ns"]) == (False, [1], None)
    assert second["lost_ns"] == 17_099_000_000
