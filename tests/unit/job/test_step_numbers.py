"""Ranks that began to record at different moments have the same numbers for the same steps. Times are us."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.loading.load import load
from tracekit.model.run import Run

PERIOD = 100


def recorded(folder: Path, windows: list[range], *, with_ids: bool, ahead_us: tuple[int, ...] = (0, 0)) -> Run:
    """Record the iterations of each rank's window; its clock is ahead by `ahead_us`."""
    for rank, iterations in enumerate(windows):
        trace = TraceBuilder(rank, len(windows))
        for k in iterations:
            at = k * PERIOD + ahead_us[rank]
            trace.op("aten::mm", at, 5).backward("MmBackward0", at + 20, 5).kernel("gemm", at, 30, launched_at=at)
            ids = {"Seq": 7 + k} if with_ids else {}
            trace.nccl("all_reduce", at + 40, 20, launched_at=at + 22, **ids)
            trace.label("Optimizer.step#SGD.step", at + 70, 10).kernel("sgd", at + 75, 5, launched_at=at + 72)
        trace.write(folder / f"rank{rank}.json")
    return load(folder)


@pytest.mark.parametrize(("with_ids", "ahead_us"), [(True, (0, 1040)), (False, (0, 30)), (False, (0, -30))])
def test_the_same_step_has_the_same_number(tmp_path: Path, with_ids: bool, ahead_us: tuple[int, int]) -> None:
    run = recorded(tmp_path, [range(3, 9), range(1, 10)], with_ids=with_ids, ahead_us=ahead_us)

    assert run.steps_from == ("optimizer",)
    assert [summary.first_step for summary in run.ranks] == [2, 0]
    assert sorted(run.common_steps()) == [2, 3, 4, 5, 6]
    first, second = (
        [part.start_ns // 1000 - ahead for part in summary.steps if part.step in run.common_steps()]
        for summary, ahead in zip(run.ranks, ahead_us, strict=True)
    )
    assert first == second
    (matched,) = run.collectives
    assert (matched.row[:, matched.step >= 0] >= 0).all(axis=0).sum() >= len(run.common_steps())


def test_a_rank_in_which_no_step_was_found_joins_no_comparison(tmp_path: Path) -> None:
    run = recorded(tmp_path, [range(6), range(1), range(6)], with_ids=False, ahead_us=(0, 0, 0))

    assert [summary.is_measured for summary in run.ranks] == [True, False, True]
    assert len(run.common_steps()) == 5
