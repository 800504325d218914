"""What the transfers of data parallelism depend on: the data that has to be there before them, and needs them.

Gradients are needed by the optimizer, not by the work behind the wait for them. Parameters that are gathered are known
since the last step; those that are gathered again in the backward pass could have been kept. Everything else is needed
where it is waited for, and not known before it was sent.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.ddp.parts import BUCKET_REDUCTIONS
from tracekit.analysis.fsdp.parts import FSDP_REGATHERS
from tracekit.model.communication import KINDS
from tracekit.model.events import Int64
from tracekit.model.summary import RankSummary

__all__ = ["GRADIENTS", "OTHER", "PARAMETERS", "REGATHERED", "purposes_of"]

OTHER, GRADIENTS, PARAMETERS, REGATHERED = range(4)
_SHARDED = frozenset({"fsdp1", "fsdp2", "hsdp", "zero1", "zero2", "zero3"})
_DATA_PARALLEL = _SHARDED | {"ddp", "manual_dp"}
_ALL_REDUCE, _REDUCE_SCATTER, _ALL_GATHER = (KINDS.index(k) for k in ("all_reduce", "reduce_scatter", "all_gather"))


def purposes_of(summary: RankSummary, parallelism: str | None, rows: Int64) -> Int64:
    """Return what some collectives of a process group are for, int64 [k]. rows: of the rank's collectives, int64 [k].

    DDP says which reductions are of its buckets: others, such as those of SyncBatchNorm, are needed at once.
    """
    kind, launch_ns = summary.collectives.kind[rows], summary.collectives.launch_ns[rows]
    of_bucket = np.isin(launch_ns, summary[BUCKET_REDUCTIONS].launch_ns)
    alone = _DATA_PARALLEL.issuperset(summary.strategies)  # then groups need no names to be told apart
    in_dp = parallelism == "dp" or (parallelism is None and alone)
    sharded = in_dp and not _SHARDED.isdisjoint(summary.strategies)
    reduces = of_bucket | (sharded or (in_dp and "manual_dp" in summary.strategies))
    gradients = ((kind == _ALL_REDUCE) & reduces) | ((kind == _REDUCE_SCATTER) & sharded)
    again = np.isin(launch_ns, summary[FSDP_REGATHERS].launch_ns) & (kind == _ALL_GATHER) & sharded
    chosen = [gradients, again, (kind == _ALL_GATHER) & sharded]
    return np.select(chosen, [GRADIENTS, REGATHERED, PARAMETERS], OTHER).astype(np.int64)
