"""By how much the clock of a device is behind that of its host, where kernels seem to begin before their launch.

Kineto converts the times of the device. Where that goes wrong, all of them are too early (kineto#919). No kernel can
begin before its launch, so they are later by at least the largest such lead.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tracekit.analysis.events.kernel_launches import (
    DEVICE_CATEGORIES,
    RUNTIME_CATEGORIES,
    DeviceEvents,
    device_events,
)
from tracekit.model.events import ABSENT, EventTable, Int64

_TOLERATED_NS = 10_000
_LEAST_SHARE = 0.01  # of the launches: fewer are wrong links, not a wrong clock

__all__ = ["on_host_clock"]


def on_host_clock(events: EventTable) -> tuple[EventTable, DeviceEvents, int]:
    """Return the events on the host's clock, the device events among them, and by how many ns these were shifted."""
    device = device_events(events)
    linked = device.linked
    lead_ns = events.start_ns[device.launch_row[linked]] - events.start_ns[device.row[linked]]
    if not len(lead_ns) or lead_ns.max() <= _TOLERATED_NS:
        return events, device, 0
    lead_ns = lead_ns[~np.isin(events.correlation[device.row[linked]], _ambiguous_ids(events))]
    if not len(lead_ns) or (lead_ns > _TOLERATED_NS).mean() <= _LEAST_SHARE:
        return events, device, 0
    behind_ns = int(np.quantile(lead_ns, 1 - _LEAST_SHARE, method="lower"))
    on_device = events.in_category(*DEVICE_CATEGORIES, "gpu_user_annotation")
    shifted = replace(events, start_ns=events.start_ns + behind_ns * on_device)
    return shifted, device_events(shifted), behind_ns


def _ambiguous_ids(events: EventTable) -> Int64:
    """Return the correlation ids that several calls of the runtime have."""
    ids = events.correlation[events.in_category(*RUNTIME_CATEGORIES) & (events.correlation != ABSENT)]
    distinct, count = np.unique(ids, return_counts=True)
    return distinct[count > 1]
