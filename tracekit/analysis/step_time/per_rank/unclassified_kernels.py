"""Which kernels of one rank look like communication although no rule is for them, and for how long."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tracekit.analysis.events.kernel_names import function_of_kernel
from tracekit.analysis.step_time.tables import UnclassifiedKernel
from tracekit.analysis.timeline.lanes import Lanes, complete_steps
from tracekit.model.communication import KINDS
from tracekit.model.events import EventTable
from tracekit.model.intervals import Intervals
from tracekit.model.names.collectives import kind_of_collective
from tracekit.model.summary import StepParts

__all__ = ["unclassified_kernels"]


def unclassified_kernels(events: EventTable, lanes: Lanes, steps: Sequence[StepParts]) -> list[UnclassifiedKernel]:
    """Return a row for each function: times within the complete steps among `steps`, counts by launch."""
    communication = lanes.communication_events
    is_unclassified = communication.kind == KINDS.index("unclassified")
    if not is_unclassified.any():
        return []
    complete = complete_steps(lanes, steps)
    name = events.name[communication.row]
    names_of_function: dict[str, list[int]] = defaultdict(list)
    for number in np.unique(name[is_unclassified]).tolist():
        names_of_function[function_of_kernel(events.strings[number])].append(number)
    result = []
    for function, names in names_of_function.items():
        mask = is_unclassified & np.isin(name, names)
        time = Intervals.union_of(communication.start_ns[mask], communication.end_ns[mask]) & complete.time
        count = int((mask & complete.counted).sum())
        if count or len(time):
            result.append(
                UnclassifiedKernel(
                    pattern=_pattern(function, [events.strings[number] for number in names]),
                    kind=kind_of_collective(function),
                    count=count,
                    total_ns=time.len_ns,
                )
            )
    return result


def _pattern(function: str, names: Sequence[str]) -> str:
    """Return a regular expression that is found in all these names of kernels of the function."""
    text = function if all(function in name for name in names) else function.rpartition("::")[2]
    return re.escape(text)
