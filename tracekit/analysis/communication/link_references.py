"""What the time of a link is compared with, and from when on the link is slow.

Others that carry the same size across as many hosts come first. Where there are none, there are two more references.
Links elsewhere are one: those within hosts for the only link between hosts, although a network may be slower without
anything being wrong. The other one is NVLink, for two GPUs that it joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.analysis.communication.nvlink import has_nvlink, longest_over_nvlink_ns, usual_over_nvlink_ns
from tracekit.model.events import Float64, Int64

__all__ = ["SLOW_LINK", "Reference", "UsualTime", "usual_of_alike", "usual_without_alike"]

SLOW_LINK = 1.2  # times the usual: links differ by less than that without anything being wrong

Reference = Literal["others alike", "links within hosts", "links between hosts", "NVLink"]
"""What the transfers of a link are compared with; the first of these that there is."""


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
