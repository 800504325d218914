"""Which ranks share no collective with the others of their groups? Times are microseconds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tracekit.analysis.loading.unshared_collectives import ranks_that_share_no_collective
from tracekit.analysis.per_rank.options import SummaryOptions
from tracekit.analysis.per_rank.summarize import summarize_trace
from tracekit.model.summary import RankSummary
from tracekit.read.decode.portable import decode

RANKS = 6
STEPS = (3, 4, 5, 6)


def rank_of(
    folder: Path,
    rank: int,
    *,
    steps: Sequence[int] = STEPS,
    reduces_in: Collection[int] = STEPS,
    kind: str = "all_reduce",
    ids: Mapping[str, Any] | None = None,
    numbered: bool = True,
    on_gpu: bool = True,
) -> RankSummary:
    """Return a rank that computes and reduces with all others, and with its pair. `ids` replace what names these."""
    trace = TraceBuilder(rank, RANKS)
    pair = [rank // 2 * 2, rank // 2 * 2 + 1]
    for k in steps:
        at = 100 * (k - 3)
        trace.step(k, at, 100)
        if on_gpu:
            trace.kernel("gemm", at + 10, 40, launched_at=at + 5)
        else:
            trace.op("aten::mm", at + 10, 40)
        if on_gpu and k in reduces_in:
            for place, (group, description) in enumerate(((range(RANKS), "mesh_dp"), (pair, "mesh_tp"))):
                named = {"Seq": k} if numbered else {}
                at_us = at + 50 + 20 * place
                trace.nccl(
                    kind,
                    at_us,
                    15,
                    launched_at=at + 8,
                    group=group,
                    description=description,
                    **(named | dict(ids or {})),
                )
    return summarize_trace(decode(trace.write(folder / f"rank{rank}.json")), rank, SummaryOptions())


def job(folder: Path, **odd: Any) -> dict[int, str]:
    """Return the reasons of a job of which rank 2 is the odd one."""
    shared = {key: odd.pop(key) for key in ("numbered", "kind") if key in odd}
    others = {key.removeprefix("others_"): odd.pop(key) for key in [*odd] if key.startswith("others_")}
    ranks = [rank_of(folder, r, **shared, **(odd if r == 2 else others)) for r in range(RANKS)]
    return ranks_that_share_no_collective(ranks)


NAMELESS = {"Process Group Name": "", "Process Group Description": "", "Process Group Ranks": "", "Collective name": ""}


@pytest.mark.parametrize("numbered", [True, False])
def test_ranks_that_reduce_together_share_collectives(tmp_path: Path, numbered: bool) -> None:
    assert job(tmp_path, numbered=numbered) == {}


@pytest.mark.parametrize(
    "odd",
    [
        {"reduces_in": ()},
        {"reduces_in": (), "numbered": False},
        {"ids": NAMELESS},
        {"ids": {"Seq": 0}},
        {"ids": {"Process Group Ranks": "[4, 5]"}},
    ],
)
def test_a_rank_whose_collectives_are_lost_or_not_told_apart(tmp_path: Path, odd: dict[str, Any]) -> None:
    assert job(tmp_path, **odd) == {
        2: "it shares no collective with the other ranks of its groups, which have some in its steps"
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"reduces_in": (5,)},  # the other steps are dealt with one by one
        {"reduces_in": (), "kind": "all_to_all"},  # its shares may be empty
        {"reduces_in": (), "kind": "broadcast"},
        {"reduces_in": (), "others_reduces_in": (4,)},  # one step may be that before its first recorded one
        {"steps": (3, 4), "reduces_in": (), "others_reduces_in": (5, 6)},  # gradients are accumulated in its steps
        {"on_gpu": False},
        {"reduces_in": (), "others_ids": NAMELESS},  # kernels of other libraries name no group
    ],
)
def test_a_rank_that_need_not_share_a_collective(tmp_path: Path, odd: dict[str, Any]) -> None:
    assert job(tmp_path, **odd) == {}


def test_ranks_of_remote_calls_need_not_share_a_collective(tmp_path: Path) -> None:
    ranks = [rank_of(tmp_path, r, reduces_in=() if r == 2 else STEPS) for r in range(RANKS)]
    ranks[2] = replace(ranks[2], strategies=("rpc",))
    assert ranks_that_share_no_collective(ranks) == {}


def test_if_half_of_the_ranks_share_none_it_is_no_loss(tmp_path: Path) -> None:
    lossy = [rank_of(tmp_path, r, reduces_in=() if r < 3 else STEPS) for r in range(RANKS)]
    assert ranks_that_share_no_collective(lossy) == {}
    assert set(ranks_that_share_no_collective(lossy[1:])) == {1, 2}
