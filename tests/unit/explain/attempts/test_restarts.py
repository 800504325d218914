"""An elastic job whose world size changes between attempts: each attempt is judged by its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.loading.load import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four ranks in the first attempt; three in the second, of which rank 1 wrote no trace."""
    for attempt, world_size, ranks in ((0, 4, (0, 1, 2, 3)), (1, 3, (0, 2))):
        for rank in ranks:
            trace = TraceBuilder(rank, world_size).step(0, 1000 * attempt, 100).op("aten::mm", 1000 * attempt, 50)
            trace.capture(run_id="job", attempt=attempt).write_capture(tmp_path)
    return tmp_path


def test_the_newest_attempt_is_analysed_with_its_world_size(folder: Path) -> None:
    run = load(folder)

    assert (run.run_id, run.attempt, run.world_size) == ("job", 1, 3)
    assert [summary.rank for summary in run.ranks] == [0, 2]
    assert run.missing_ranks == (1,)
    assert [(other.run_id, other.attempt, other.ranks) for other in run.other_runs] == [("job", 0, 4)]
    assert any("--attempt" in note.text for note in run.notes if note.id == "other-run")


def test_an_earlier_attempt_can_be_selected(folder: Path) -> None:
    run = load(folder, attempt=0)

    assert (run.attempt, run.world_size, run.missing_ranks) == (0, 4, ())
    assert len(run.ranks) == 4
    assert [(other.attempt, other.ranks) for other in run.other_runs] == [(1, 2)]
