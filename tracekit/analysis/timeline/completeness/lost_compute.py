"""In which steps all compute kernels are missing together with their launches.

The operators that launched them are still there. An optimizer that updates all parameters at once launches kernels
whatever the batch is, for parameters are never empty.
"""

from __future__ import annotations

import numpy as np

from tracekit.analysis.events.kernel_launches import RUNTIME_CATEGORIES, DeviceEvents
from tracekit.analysis.timeline.steps import StepWindows
from tracekit.model.events import ABSENT, Bool, EventTable, Int64

__all__ = ["UPDATES", "windows_without_compute"]

UPDATES = ("aten::_foreach_", "aten::_fused_")
"""How the names of operators begin that update many parameters at once."""


def windows_without_compute(events: EventTable, windows: StepWindows, device: DeviceEvents, computes: Bool) -> Bool:
    """Return a mask [s] of the windows without compute kernels in which parameters are updated as in others.

    In the others each call of such an operator launched a kernel. While a graph is captured an operator launches none,
    and its calls of the runtime are there. `computes` says which device events are compute kernels, bool [m].
    """
    count = len(windows)
    window = windows.index_of_device(device, events.start_ns[device.row])[computes]
    without: Bool = np.bincount(window[window >= 0], minlength=count) == 0
    if not (without & windows.complete).any() or without.all():  # usually
        return np.zeros(count, dtype=np.bool_)
    updates = np.flatnonzero(events.named(lambda name: name.startswith(UPDATES)) & events.in_category("cpu_op"))
    at = windows.index_of(events.start_ns[updates])
    updates, at = updates[at >= 0], at[at >= 0]
    launched = np.isin(events.external_id[updates], _launched_by(events, device, computes))
    in_others = ~without[at]
    names = events.name[updates]
    calls, launching = (
        np.bincount(names[mask], minlength=len(events.strings)) for mask in (in_others, in_others & launched)
    )
    always = (calls > 0) & (calls == launching)
    calling = np.isin(events.external_id[updates], events.external_id[events.in_category(*RUNTIME_CATEGORIES)])
    updated = np.bincount(at[always[names] & ~calling], minlength=count) > 0
    return np.asarray(without & windows.complete & updated)


def _launched_by(events: EventTable, device: DeviceEvents, computes: Bool) -> Int64:
    """Return the ids of the operators that launched compute kernels, int64 [n]."""
    ids = events.external_id[device.launch_row[computes & device.linked]]
    return np.asarray(ids[ids != ABSENT])
