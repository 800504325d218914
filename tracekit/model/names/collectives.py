"""The kind of a collective, by any of the names that torch and its backends have for it."""

from __future__ import annotations

import re
from functools import lru_cache

# Searched in this order, in a name without separators: some of the longer names contain a shorter one.
_KINDS_IN_NAMES = (
    ("allreduce", "all_reduce"),
    ("reducescatter", "reduce_scatter"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("all2all", "all_to_all"),
    ("sendrecv", "send_recv"),
    ("broadcast", "broadcast"),
    ("barrier", "barrier"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send"),
    ("recv", "recv"),
    ("dispatch", "dispatch"),
    ("combine", "combine"),
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
    return next((kind for part, kind in _KINDS_IN_NAMES if part in bare), "unknown")
