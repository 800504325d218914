"""Which names of collectives are those of torch and its backends."""

from __future__ import annotations

import re

__all__ = ["COLLECTIVE", "is_collective_name"]

_WORDS = (
    *("all", "allgather", "allreduce", "alltoall", "any", "async", "barrier", "base", "batch", "broadcast"),
    *("check", "coalesced", "coalescing", "end", "for", "gather", "into", "list", "monitored", "nan", "oop"),
    *("recv", "recvAnySource", "reduce", "reducescatter", "scatter", "send", "sendrecv", "single", "source"),
    *("sparse", "start", "tensor", "tensors", "to", "uneven", "allv", "alltoallv", "v", "wait", "work"),
)
_WORD = f"(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})"
COLLECTIVE = rf"_?{_WORD}(?:_{_WORD})*_?"
"""A pattern of such names: `allreduce`, `_allgather_base_`, `reduce_scatter_tensor_coalesced`, `recv_any_source_`."""
_NAME = re.compile(COLLECTIVE)


def is_collective_name(name: str) -> bool:
    """Return whether torch or a backend has a collective of this name."""
    return _NAME.fullmatch(name) is not None
