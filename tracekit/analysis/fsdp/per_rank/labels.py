"""What FSDP's labels in a trace show: which module it gathers, reduces or begins to use.

FSDP2 writes such labels; for FSDP1 and ZeRO 3 the capture does. They tell for each collective its module, and when what
it gathers was asked for and needed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tracekit.analysis.events.innermost_span import innermost_span
from tracekit.model.communication import KINDS, CommunicationEvents
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.names.modules import clean_module_name
from tracekit.model.spans import parse_fsdp_span

__all__ = ["FsdpLabel", "FsdpLabels", "fsdp_labels"]

Action = Literal["gather", "gather_and_use", "use", "reduce", "other"]

# `FSDP::all_gather (blocks.0) [pg=2]`; the outermost module has no name, and a hyphen is in the pseudonym of an action
_FSDP2_LABEL = re.compile(r"FSDP::([\w-]+)(?: for .*)?(?: \((.*)\))?(?: \[pg=\d+\])?")
_FSDP2_ACTIONS: dict[str, Action] = {
    "all_gather": "gather",
    "all_gather_copy_out": "use",
    "post_backward_reduce": "reduce",
}
_FSDP1_ACTIONS: dict[str, Action] = {
    "unshard": "gather_and_use",
    "prefetch": "gather",
    "use": "use",
    "reduce": "reduce",
}
_FSDP1_WORK_LABEL = (
    "FullyShardedDataParallel._"  # around FSDP's work; `FullyShardedDataParallel.forward` is around the module's
)


@dataclass(frozen=True, kw_only=True)
class FsdpLabel:
    action: Action
    module: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class FsdpLabels:
    """The labels of one trace.

    Attributes:
        of_name: labels by the index of their text.
        rows: int64 [k], all of them on host threads, in order of time.
    """

    of_name: dict[int, FsdpLabel]
    rows: Int64

    def at(self, events: EventTable, row: int) -> FsdpLabel:
        return self.of_name[int(events.name[row])]

    def around(self, events: EventTable, communication: CommunicationEvents) -> Int64:
        """Return the row of the innermost label that names an action around each launch, or ABSENT: int64 [n]."""
        action = np.array([self.of_name[name].action for name in events.name[self.rows].tolist()], dtype=object)
        track = communication.launch_track.astype(np.int64)
        return innermost_span(events, self.rows[action != "use"], track, communication.launch_ns)

    def issued_ns(self, enclosing: Int64, communication: CommunicationEvents) -> Int64:
        """Return when the first collective of the same label was issued: int64 [n]."""
        rows, which = np.unique(enclosing, return_inverse=True)
        first_ns = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(first_ns, which, communication.launch_ns)
        return np.where(enclosing == ABSENT, communication.launch_ns, first_ns[which])

    def needed_ns(self, events: EventTable, enclosing: Int64, communication: CommunicationEvents) -> Int64:
        """Return when the host needed the module that each all-gather brings: int64 [n].

        ABSENT for other kinds, where that moment is not in the trace, and where another all-gather of the module comes
        first.
        """
        needed_ns = np.full(len(communication), ABSENT, dtype=np.int64)
        uses: dict[str | None, list[int]] = defaultdict(list)
        for row in self.rows.tolist():
            if self.at(events, row).action == "use":
                uses[self.at(events, row).module].append(int(events.start_ns[row]))
        gathers: dict[int, list[int]] = defaultdict(list)
        for i in np.flatnonzero((enclosing != ABSENT) & (communication.kind == KINDS.index("all_gather"))).tolist():
            gathers[int(enclosing[i])].append(i)
        next_issue_ns: dict[str | None, int] = {}
        for row in sorted(gathers, key=lambda row: -int(events.start_ns[row])):
            label = self.at(events, row)
            issue_ns = int(communication.launch_ns[gathers[row]].min())
            if label.action == "gather_and_use":
                needed_ns[gathers[row]] = int(events.end_ns[row])
            elif label.action == "gather":
                moments = uses[label.module]
                place = bisect_left(moments, issue_ns)
                if place < len(moments) and moments[place] <= next_issue_ns.get(label.module, moments[place]):
                    needed_ns[gathers[row]] = moments[place]
            next_issue_ns[label.module] = issue_ns
        return needed_ns


def fsdp_labels(events: EventTable) -> FsdpLabels:
    """Return the labels of a trace."""
    labels: dict[int, FsdpLabel] = {}
    for i, text in enumerate(events.strings):
        if text.startswith("FSDP::") and (match := _FSDP2_LABEL.fullmatch(text)) is not None:
            action = _FSDP2_ACTIONS.get(match[1], "other")
            module = None if action == "other" else clean_module_name(match[2] or "")
            labels[i] = FsdpLabel(action=action, module=module)
        elif text.startswith(_FSDP1_WORK_LABEL):
            labels[i] = FsdpLabel(action="other", module=None)
        elif (span := parse_fsdp_span(text)) is not None:
            labels[i] = FsdpLabel(action=_FSDP1_ACTIONS[span.action], module=span.module)
    rows = events.each_once(np.isin(events.name, list(labels)) & ~events.in_category("gpu_user_annotation"))
    return FsdpLabels(of_name=labels, rows=rows)
