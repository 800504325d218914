"""The kind of a collective, by any of the names that torch and its backends have for it."""

from __future__ import annotations

import re
from functools import lru_cache

# Searched in this order, in a name without separators: some of the longer names contain a shorter one.
_KINDS = (
    *("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "send_recv", "broadcast", "barrier"),
    *("gather", "scatter", "reduce", "send", "recv", "dispatch", "combine"),
)
_MOST_NAMES = 4096


@lru_cache(_MOST_NAMES)
def kind_of_collective(name: str) -> str:
    """Return the kind of a collective; "unknown" if its name tells none.

    Names are those of operators, such as `allreduce_coalesced`, `c10d::_allgather_base_` and
    `_c10d_functional::reduce_scatter_tensor`, and those of backends, such as `nccl:_reduce_scatter_base` and
    `nccl:all_gather_into_tensor_coalesced`.
    """
    bare = re.sub(r"[_:]", "", name.lower().removeprefix("_c10d_functional::").removeprefix("c10d::"))
    bare = bare.replace("all2all", "alltoall")
    return next((kind for kind in _KINDS if kind.replace("_", "") in bare), "unknown")
