"""Whether a rank computes on an accelerator whose records are not read, by its events or by what its header says.

Only where the file says that there is such a device do unknown categories tell of one. Anybody may record events of
categories of their own on a CPU or a GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from tracekit.model.events import DecodedTrace
from tracekit.rank.kernel_launches import DEVICE_CATEGORIES, RUNTIME_CATEGORIES

# Categories of Kineto for what accelerators do that are no GPUs (ActivityType.cpp), and those of Ascend's profiler.
_OF_DEVICE = re.compile(r"(?:async_)?(mtia|hpu|privateuse1|npu|ascend)(?:_\w+)?", re.IGNORECASE)
_KNOWN = frozenset(
    {
        *("", "cpu_op", "user_annotation", "gpu_user_annotation", "python_function", "cuda_sync", "Trace"),
        *("overhead", "collective_comm", *DEVICE_CATEGORIES, *RUNTIME_CATEGORIES),
    }
)
# Devices that torch.distributed names as `cuda:nccl`. Each library of collectives of another accelerator ends in "ccl".
_UNDERSTOOD = frozenset({"cpu", "cuda", "hip", "xpu", "mps", "meta", "undefined"})
_LIBRARY = re.compile(r"(?!(?:n|r|x|one)?ccl$)\w*ccl")
_NAME = re.compile(
    r"ascend|\bnpu\b|\bcann\b|gaudi|\bhpu\b|mtia|artemis|\btpu\b|trainium|inferentia|\bmlu\d*|cambricon|\bmusa\b|spyre",
    re.IGNORECASE,
)
_SHOWN = 4  # categories
_UNNAMED = "without a category"


def other_device(trace: DecodedTrace) -> str | None:
    """Return the kind of accelerator that a rank has and that is no GPU, and what is recorded; None if it has none."""
    count = _count_of_categories(trace)
    kind = next((match[1].lower() for match in map(_OF_DEVICE.fullmatch, count) if match is not None), None)
    understood = count.keys() <= _KNOWN and not count.keys().isdisjoint(DEVICE_CATEGORIES)
    if kind is None and not understood:
        kind = next(_kinds_named(trace, has_unknown=not count.keys() <= _KNOWN), None)
    if kind is None:
        return None
    shown = sorted(count, key=lambda category: (category in _KNOWN, -count[category]))[:_SHOWN]
    return f"{kind} (seen: {', '.join(f'{count[each]:,} {each or _UNNAMED}' for each in shown)})"


def _count_of_categories(trace: DecodedTrace) -> dict[str, int]:
    events = trace.events
    count = np.bincount(events.category + 1)
    return {events.strings[number]: int(count[number + 1]) for number in np.flatnonzero(count[1:]).tolist()}


def _kinds_named(trace: DecodedTrace, *, has_unknown: bool) -> Iterator[str]:
    """Yield what the probe, the backends, the processes and the devices of a file call a device that is not read.

    A host may have a device that the rank does not use, so a device's name alone does not count.
    """
    header = trace.header
    if header.metadata is not None and header.metadata.device.type not in _UNDERSTOOD:
        yield header.metadata.device.type
    for part in (header.backend or "").lower().split(","):
        device, _, library = part.strip().rpartition(":")
        if (device and device not in _UNDERSTOOD) or _LIBRARY.fullmatch(library):
            yield device or library
    names = (*(track.process_name for track in trace.events.tracks), *(header.device_names if has_unknown else ()))
    yield from (name for name in names if _NAME.search(name) is not None)
