"""Which ranks cannot be compared with most others, and why? Lengths are nanoseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.exchanges import rank as summary_of
from benchmarks.exchanges import send
from tracekit.health.run_checks import without_incomparable_times
from tracekit.model.summary import RankFailure, RankSummary


def ranks_of(*steps: Sequence[int], lengths: Sequence[int] = (), **others: Any) -> list[RankSummary]:
    """Return ranks with these steps, on GPUs; each rank's steps take the same time."""
    ranks = [summary_of(number, steps=numbers, **({"device": "gpu"} | others)) for number, numbers in enumerate(steps)]
    return [
        replace(summary, steps=tuple(replace(step, step_ns=length_ns) for step in summary.steps))
        for summary, length_ns in zip(ranks, [*lengths, *[100] * len(ranks)], strict=False)
    ]


def reasons(ranks: Sequence[RankSummary | RankFailure]) -> dict[int, str]:
    outcomes = without_incomparable_times(ranks)
    assert without_incomparable_times(outcomes) == outcomes
    return {s.rank: s.unmeasured for s in outcomes if isinstance(s, RankSummary) and s.unmeasured is not None}


def test_ranks_that_agree_keep_their_times() -> None:
    ranks = ranks_of((1, 2, 3), (1, 2, 3), (2, 3, 4))
    assert without_incomparable_times([*ranks, RankFailure(rank=3, notes=())])[:3] == ranks


def test_a_rank_without_kernels_among_gpu_ranks() -> None:
    ranks = ranks_of((1, 2), (1, 2), (1, 2))
    cpu = summary_of(3, steps=(1, 2))
    reason = "it has no kernels, though other ranks have some, and communicates with none of them"
    assert reasons([*ranks, cpu]) == {3: reason}
    talking = summary_of(3, [send(0, 5)], steps=(1, 2))
    assert reasons([*ranks, talking]) == {}, "a rank of a mixed job exchanges messages with the others"
    assert reasons([*ranks, replace(cpu, strategies=("rpc",))]) == {}
    assert reasons([ranks[0], cpu]) == {}, "no majority"


def test_a_rank_without_a_common_step() -> None:
    ranks = ranks_of((1, 2, 3), (1, 2, 3), (1, 2, 3), (7, 8), ())
    assert reasons(ranks) == {
        3: "it completed step 7-8, the other ranks completed 1-3",
        4: "no step of it is complete, the other ranks completed 1-3",
    }
    assert reasons(ranks_of((1, 2), (7, 8))) == {}, "no majority"
    assert reasons(ranks_of((1, 2), (1, 2), (7, 8), strategies=("rpc",))) == {}, "trainers count each for itself"


def test_a_note_names_the_file_and_the_reason() -> None:
    ranks = ranks_of((1, 2), (1, 2), (7, 8), files=("/data/run/some.json",))
    *_, odd = without_incomparable_times(ranks)
    assert isinstance(odd, RankSummary)
    (note,) = odd.notes
    assert (note.id, note.rank, note.file) == ("step-mismatch", 2, "some.json")
    assert note.text == (
        "rank 2: some.json: it completed step 7-8, the other ranks completed 1-2: "
        "its times are n/a and join no comparison"
    )
    assert (odd.steps, len(odd.collectives), odd.is_measured) == ((), 0, False)
