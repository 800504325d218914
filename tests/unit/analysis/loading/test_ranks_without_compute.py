"""Which ranks ran the operators of the others, and lost the kernels? Times are microseconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.loading.ranks_without_compute import ranks_without_compute
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

RANKS = 4
STEPS = 3
OPERATORS = ("aten::mm", "aten::gelu", "aten::_foreach_add_")


def rank_of(
    folder: Path, rank: int, *, computes_in: Collection[int] = range(STEPS), operators: Sequence[str] = OPERATORS
) -> RankSummary:
    """Return a rank that reduces in each step, and launches a kernel for each operator in some."""
    trace = TraceBuilder(rank, RANKS)
    for k in range(STEPS):
        at = 100 * k
        trace.step(k, at, 100).nccl("all_reduce", at + 70, 20, launched_at=at + 60)
        for place, name in enumerate(operators):
            trace.op(name, at + 2 + 10 * place, 8)
            if k in computes_in:
                trace.kernel("kernel", at + 8 + 10 * place, 6, launched_at=at + 4 + 10 * place)
    return summarize_trace(decode(trace.write(folder / f"rank{rank}.json")), rank, SummaryOptions())


def others(folder: Path, count: int = RANKS - 1) -> list[RankSummary]:
    return [rank_of(folder, rank) for rank in range(1, count + 1)]


def test_a_rank_that_ran_the_operators_of_the_others_without_their_kernels(tmp_path: Path) -> None:
    assert ranks_without_compute([rank_of(tmp_path, 0, computes_in=()), *others(tmp_path)]) == {
        0: "it ran the operators of other ranks, and none of their compute kernels is recorded"
    }


def test_ranks_that_compute(tmp_path: Path) -> None:
    assert ranks_without_compute([rank_of(tmp_path, 0), *others(tmp_path)]) == {}
    assert ranks_without_compute([rank_of(tmp_path, 0, computes_in={1}), *others(tmp_path)]) == {}


@pytest.mark.parametrize(
    "operators",
    [
        ("aten::mm", "aten::gelu"),  # a batch may be empty if no parameter is updated
        ("aten::_foreach_add_",),  # a rank that only keeps parameters on its host
        ("aten::mm", "aten::mm", "aten::gelu", "aten::_foreach_add_"),
        (),
    ],
)
def test_a_rank_with_other_operators_may_compute_nothing(tmp_path: Path, operators: Sequence[str]) -> None:
    assert ranks_without_compute([rank_of(tmp_path, 0, computes_in=(), operators=operators), *others(tmp_path)]) == {}


def test_if_half_of_the_ranks_compute_nothing_it_is_no_loss(tmp_path: Path) -> None:
    lossy = [rank_of(tmp_path, rank, computes_in=()) for rank in (0, 3)]
    assert ranks_without_compute([*lossy, *others(tmp_path, 2)]) == {}


def test_without_the_sums_of_operators_nothing_is_known(tmp_path: Path) -> None:
    summaries = [rank_of(tmp_path, 0, computes_in=()), *others(tmp_path)]
    assert ranks_without_compute([replace(summary, parts={}) for summary in summaries]) == {}
