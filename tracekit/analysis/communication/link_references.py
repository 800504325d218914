"""What the time of a link is compared with, and from when on the link is slow.

Others that carry the same size across as many hosts come first. Where there are none, there are two more references.
Links elsewhere are one: those within hosts for the only link between hosts, although a network may be slower without
anything being wrong. The other one is NVLink, for two GPUs that it joins: how long messages take over it is known
without another link.

NVLink joins the GPUs of hosts whose boards have it. Messages that take longer than a single NVLink needs do not use it,
as where peer access is off and they pass through the memory of the host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.model.events import Float64, Int64

__all__ = ["SLOW_LINK", "Reference", "UsualTime", "usual_of_alike", "usual_without_alike"]

SLOW_LINK = 1.2  # times the usual: links differ by less than that without anything being wrong

Reference = Literal["others alike", "links within hosts", "links between hosts", "NVLink"]
"""What the transfers of a link are compared with; the first of these that there is."""

# Names of GPUs as CUDA reports them. PCIe cards have no NVLink, and bridges (NVL) join only some of them. Not all GPUs
# of hosts with V100-SXM2 are joined with each other. Parts of a GPU (MIG) do not reach each other over it.
_JOINED = re.compile(r"^(?!.*\bMIG\b).*(\bA[18]00-SXM|\bH100\b.*\bHBM3|\bH20\b|\bH200\b(?! NVL)|\bG?B[23]00\b)")

_LATENCY_NS = 20_000  # NCCL's smallest messages take about as long between hosts, and less within one

# NCCL's send and receive between two A100s that four NVLinks join, measured with `sendrecv_perf`
# (github.com/NVIDIA/nccl-tests/issues/331). Other boards join two GPUs by more links.
_USUAL_BYTES_PER_NS = 72.0
# What NCCL counts on from one NVLink of an A100 (src/graph/topo.h, SM80_NVLINK_BW). Later ones carry more.
_LEAST_BYTES_PER_NS = 20.0


@dataclass(frozen=True, kw_only=True)
class UsualTime:
    """How long the transfers of a link usually take.

    Attributes:
        usual_ns: how long.
        limit_ns: above which the link is slow.
        reference: what says so.
    """

    usual_ns: float
    limit_ns: float
    reference: Reference


def usual_of_alike(usual_ns: float) -> UsualTime | None:
    """Return the usual time of a link, or None if that is 0.

    usual_ns: the median of other links that carry the same size across as many hosts.
    """
    return _beyond(usual_ns, "others alike")


def usual_without_alike(
    elsewhere_ns: Sequence[float] | Int64 | Float64, *, hosts: int, size_bytes: int, devices: Sequence[str | None]
) -> UsualTime | None:
    """Return what is usual for a link whose size no other link carries across as many hosts; None if nothing tells.

    elsewhere_ns: the times of links that carry it across another number of hosts. devices: the names of both ends'.
    """
    if len(elsewhere_ns):
        return _beyond(float(np.median(elsewhere_ns)), "links within hosts" if hosts > 1 else "links between hosts")
    if hosts == 1 and all(map(has_nvlink, devices)):
        usual_ns, limit_ns = usual_over_nvlink_ns(size_bytes), longest_over_nvlink_ns(size_bytes)
        return UsualTime(usual_ns=usual_ns, limit_ns=limit_ns, reference="NVLink")
    return None


def _beyond(usual_ns: float, reference: Reference) -> UsualTime | None:
    if not usual_ns:
        return None
    return UsualTime(usual_ns=usual_ns, limit_ns=SLOW_LINK * usual_ns, reference=reference)


def has_nvlink(device_name: str | None) -> bool:
    """Return whether NVLink joins GPUs of this name with all others of their host."""
    return _JOINED.search(device_name or "") is not None


def usual_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes from when both ranks are there, if NVLink joins them."""
    return _LATENCY_NS + size_bytes / _USUAL_BYTES_PER_NS


def longest_over_nvlink_ns(size_bytes: int) -> float:
    """Return how long a message takes over a single NVLink, of the several that join two GPUs."""
    return _LATENCY_NS + size_bytes / _LEAST_BYTES_PER_NS
