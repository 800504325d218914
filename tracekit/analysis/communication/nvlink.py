"""How long messages take over NVLink: known without another link to compare with.

NVLink joins the GPUs of hosts whose boards have it. Messages that take longer than a single NVLink needs do not use it,
as where peer access is off and they pass through the memory of the host.
"""

from __future__ import annotations

import re

__all__ = ["has_nvlink", "longest_over_nvlink_ns", "usual_over_nvlink_ns"]

# Names as CUDA reports them. PCIe cards have no NVLink, and bridges (NVL) join only some of them. Not all GPUs of hosts
# with V100-SXM2 are joined with each other. Parts of a GPU (MIG) do not reach each other over it.
_JOINED = re.compile(r"^(?!.*\bMIG\b).*(\bA[18]00-SXM|\bH100\b.*\bHBM3|\bH20\b|\bH200\b(?! NVL)|\bG?B[23]00\b)")

_LATENCY_NS = 20_000  # NCCL's smallest messages take about as long between hosts, and less within one

# NCCL's send and receive between two A100s that four NVLinks join, measured with `sendrecv_perf`
# (github.com/NVIDIA/nccl-tests/issues/331). Other boards join two GPUs by more links.
_USUAL_BYTES_PER_NS = 72.0

# What NCCL counts on from one NVLink of an A100 (src/graph/topo.h, SM80_NVLINK_BW). Later ones carry more.
_LEAST_BYTES_PER_NS = 20.0


def has_nvlink(device_name: str | None) -> bool:
    """Return whether NVLink joins GPUs of this name with all others of their host."""
    return _JOINED.search(device_name or "") is not None


def usual_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes from when both ranks are there, if NVLink joins them."""
    return _LATENCY_NS + size_bytes / _USUAL_BYTES_PER_NS


def longest_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes over a single NVLink, of the several that join two GPUs."""
    return _LATENCY_NS + size_bytes / _LEAST_BYTES_PER_NS
