"""Which module issued a collective: the one whose forward was running, or, in a backward pass, the one whose forward
made the node of the autograd graph that is being evaluated.

Comes in: an event table and launches (track, time). Goes out: for each launch the name of its module. An operator of a
backward pass has the sequence number of the forward operator that made its node, and the thread that ran that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from tracekit.analysis.enclosing import innermost_span
from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.spans import parse_module_span

__all__ = ["modules_of_launches"]


def modules_of_launches(events: EventTable, track: Int64, time_ns: Int64) -> list[str | None]:
    """The module of each launch on thread `track[i]` at `time_ns[i]`: "" for the outermost, None where not known."""
    is_span = events.named(lambda name: parse_module_span(name) is not None)
    spans = events.each_once(is_span & ~events.in_category("gpu_user_annotation"))
    if not len(spans):
        return [None] * len(time_ns)
    running = innermost_span(events, spans, track, time_ns)
    linked = (events.forward_thread > 0) & (events.sequence_number != ABSENT)
    evaluated = innermost_span(
        events, np.flatnonzero(linked & events.in_category("cpu_op", "Operator")), track, time_ns
    )
    forward = _forward_operators(events, np.unique(evaluated[evaluated != ABSENT]))
    made = np.array([forward.get(row, ABSENT) for row in evaluated.tolist()], dtype=np.int64)
    made_in = innermost_span(events, spans, np.where(made == ABSENT, ABSENT, events.track[made]), events.start_ns[made])
    names = []
    for i in range(len(time_ns)):
        span, operator = int(running[i]), int(evaluated[i])
        # A forward that is run again within the backward pass is nearer than the node that asked for it.
        if operator != ABSENT and (span == ABSENT or events.start_ns[operator] > events.start_ns[span]):
            span = int(made_in[i]) if made_in[i] != ABSENT else span
        names.append(None if span == ABSENT else parse_module_span(events.strings[events.name[span]]))
    return names


def _forward_operators(events: EventTable, backward: Int64) -> dict[int, int]:
    """For rows of backward operators the operator that made their node: the last with their number to begin before
    them on the forward thread. Sequence numbers are counted by thread, and a trace numbers threads twice: the one that
    has such operators most often is the forward thread.
    """
    if not len(backward):
        return {}
    is_forward = events.in_category("cpu_op", "Operator") & (events.forward_thread <= 0)
    rows = np.flatnonzero(is_forward & np.isin(events.sequence_number, events.sequence_number[backward]))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    of_number: dict[int, list[int]] = defaultdict(list)
    for row in rows.tolist():
        of_number[int(events.sequence_number[row])].append(row)
    candidates: dict[int, dict[int, int]] = {}
    seen_on: dict[int, Counter[int]] = defaultdict(Counter)
    for row in backward.tolist():
        last_on_track: dict[int, int] = {}
        for earlier in of_number[int(events.sequence_number[row])]:
            if events.start_ns[earlier] >= events.start_ns[row]:
                break
            last_on_track[int(events.track[earlier])] = earlier
        candidates[row] = last_on_track
        seen_on[int(events.forward_thread[row])].update(last_on_track)
    result = {}
    for row, last_on_track in candidates.items():
        if last_on_track:
            votes = seen_on[int(events.forward_thread[row])]
            result[row] = last_on_track[max(last_on_track, key=lambda track: (votes[track], -track))]
    return result
