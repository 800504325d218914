"""What the collectives of data parallelism are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.exchanges import rank
from tracekit.explain.ddp.tables import BUCKET_REDUCTIONS, BucketReductions
from tracekit.explain.whatif.graph.run_communication import GRADIENTS, OTHER, PARAMETERS, purposes_of
from tracekit.model.communication import KINDS, Collectives
from tracekit.model.summary import RankSummary

ISSUED = ("all_gather", "all_reduce", "reduce_scatter", "broadcast")


def trained(*strategies: str, buckets_at_ns: tuple[int, ...] = ()) -> RankSummary:
    """Return a rank that issues each kind of `ISSUED`, at 0, 10, 20 and 30."""
    none = Collectives.empty()
    columns = {name: np.zeros(len(ISSUED), dtype=values.dtype) for name, values in vars(none).items()}
    columns |= {"kind": np.array([KINDS.index(kind) for kind in ISSUED], dtype=np.int32)}  # type: ignore[arg-type]
    columns |= {"launch_ns": np.arange(0, 40, 10)}
    summary = replace(rank(0, collectives=Collectives(**columns)), strategies=strategies)
    empty = vars(BucketReductions.empty())
    buckets = {name: np.zeros(len(buckets_at_ns), dtype=values.dtype) for name, values in empty.items()}
    return summary.with_part(
        BUCKET_REDUCTIONS, BucketReductions(**buckets | {"launch_ns": np.array(buckets_at_ns, dtype=np.int64)})
    )


@pytest.mark.parametrize(
    ("summary", "parallelism", "expected"),
    [
        (trained("fsdp2"), "dp", [PARAMETERS, GRADIENTS, GRADIENTS, OTHER]),
        (trained("fsdp2"), None, [PARAMETERS, GRADIENTS, GRADIENTS, OTHER]),
        (trained("fsdp2", "tp"), None, [OTHER] * 4),  # it may be that of tensor parallelism
        (trained("fsdp2", "tp"), "tp", [OTHER] * 4),
        (trained("manual_dp"), "dp", [OTHER, GRADIENTS, OTHER, OTHER]),
        (trained("ddp", buckets_at_ns=(10,)), "dp", [OTHER, GRADIENTS, OTHER, OTHER]),
        (trained("ddp", buckets_at_ns=(15,)), "dp", [OTHER] * 4),  # such as SyncBatchNorm's
    ],
)
def test_what_collectives_are_for(summary: RankSummary, parallelism: str | None, expected: list[int]) -> None:
    assert purposes_of(summary, parallelism, np.arange(len(ISSUED))).tolist() == expected
