"""Which module launched a collective, and when each module ran on the host.

In forward it is the module whose forward was running. In backward the autograd engine evaluates a node of its graph:
the module is the one whose forward created that node. An operator of a backward pass has the sequence number of the
forward operator that created its node, and that operator's thread.

A loss that is computed outside of all modules counts as a module of its own, `cross_entropy_loss`. With
`loss_parallel()` it communicates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tracekit.model.events import ABSENT, EventTable, Int64
from tracekit.model.spans import parse_module_span
from tracekit.rank.phases import innermost_span, is_autograd_node
from tracekit.stats.grouped import grouped

_LOSS_OPERATORS = frozenset({"aten::cross_entropy_loss", "aten::log_softmax", "aten::nll_loss_nd"})
_LOSS = "cross_entropy_loss"


@dataclass(frozen=True, kw_only=True, eq=False)
class HostIntervals:
    """k intervals of host time in which a module, or a module inside it, ran.

    Attributes:
        track: int64 [k].
        start_ns: int64 [k].
        end_ns: int64 [k].
    """

    track: Int64
    start_ns: Int64
    end_ns: Int64


def modules_of_launches(events: EventTable, track: Int64, time_ns: Int64) -> list[str | None]:
    """Return the name of the module of each launch on thread `track[i]` at `time_ns[i]`.

    The outermost module is ""; None means that the module is not known.
    """
    spans = _module_spans(events)
    if not len(spans):
        return [None] * len(time_ns)
    running = innermost_span(events, spans, track, time_ns)
    linked = (events.forward_thread > 0) & (events.sequence_number != ABSENT)
    node = innermost_span(events, np.flatnonzero(linked & events.in_category("cpu_op")), track, time_ns)
    forward = _forward_operators(events, np.unique(node[node != ABSENT]))
    forward_row = np.array([forward.get(row, ABSENT) for row in node.tolist()], dtype=np.int64)
    forward_span = innermost_span(
        events, spans, np.where(forward_row == ABSENT, ABSENT, events.track[forward_row]), events.start_ns[forward_row]
    )
    # A forward that is recomputed inside the backward pass is the inner one of the two.
    in_node = (node != ABSENT) & ((running == ABSENT) | (events.start_ns[node] > events.start_ns[running]))
    span = np.where(in_node & (forward_span != ABSENT), forward_span, running)
    names = {
        row: None if row == ABSENT else _module_of(events.strings[events.name[row]]) for row in np.unique(span).tolist()
    }
    return [names[row] for row in span.tolist()]


def _module_spans(events: EventTable) -> Int64:
    """Return the rows of the capture's spans around modules, and of losses outside of them, in order of time."""
    on_host = ~events.in_category("gpu_user_annotation")
    spans = events.each_once(events.named(lambda name: parse_module_span(name) is not None) & on_host)
    losses = events.each_once(events.named(_LOSS_OPERATORS.__contains__) & on_host)
    if not len(losses):
        return spans
    inside = innermost_span(events, spans, events.track[losses].astype(np.int64), events.start_ns[losses])
    spans = np.concatenate((spans, losses[inside == ABSENT]))
    return spans[np.argsort(events.start_ns[spans], kind="stable")]


def _module_of(span: str) -> str | None:
    """Return the module of a span."""
    return _LOSS if span in _LOSS_OPERATORS else parse_module_span(span)


def intervals_of_modules(events: EventTable, names: Iterable[str]) -> dict[str, HostIntervals]:
    """Return the intervals of each of the `names` that has spans: its forwards, and the backward nodes that they
    created.

    Nodes of a module that follow one another on a thread are one interval, from the first to the last. A node of
    unknown module belongs to the module of the node before it, such as the accumulation of a gradient.
    """
    spans = _module_spans(events)
    nodes = events.each_once(events.named(is_autograd_node))
    nodes = nodes[np.lexsort((events.start_ns[nodes], events.track[nodes]))]
    node_modules = _modules_of_nodes(events, spans, nodes)
    of_span = np.array([_module_of(events.strings[name]) for name in events.name[spans].tolist()], dtype=object)
    numbers = {name: number for number, name in enumerate(dict.fromkeys(node_modules))}
    name_of_node = np.array([numbers[name] for name in node_modules], dtype=np.int64)
    same_track = np.concatenate(([False], events.track[nodes][1:] == events.track[nodes][:-1]))[: len(nodes)]
    result = {}
    for module in names:
        module_spans = spans[of_span == module]
        if not len(module_spans):
            continue
        inside = np.array([name is not None and _is_inside(name, module) for name in numbers], dtype=np.bool_)[
            name_of_node
        ]
        goes_on = same_track & np.concatenate(([False], inside[:-1]))[: len(nodes)]
        begin = np.flatnonzero(inside & ~goes_on)
        ends_ns = np.where(inside, events.end_ns[nodes], 0)
        last_ns = np.maximum.reduceat(ends_ns, begin) if len(begin) else ends_ns[:0]
        result[module] = HostIntervals(
            track=np.concatenate((events.track[module_spans], events.track[nodes[begin]])).astype(np.int64),
            start_ns=np.concatenate((events.start_ns[module_spans], events.start_ns[nodes[begin]])),
            end_ns=np.concatenate((events.end_ns[module_spans], last_ns)),
        )
    return result


def _is_inside(name: str, module: str) -> bool:
    """Return whether module `name` is `module` or inside it."""
    return not module or name == module or name.startswith(f"{module}.")


def _modules_of_nodes(events: EventTable, spans: Int64, nodes: Int64) -> list[str | None]:
    """Return the module whose forward created each node; where it is not known, that of the previous node on the
    thread.
    """
    forward = _forward_operators(events, nodes[events.sequence_number[nodes] != ABSENT])
    forward_row = np.array([forward.get(row, ABSENT) for row in nodes.tolist()], dtype=np.int64)
    forward_span = innermost_span(
        events, spans, np.where(forward_row == ABSENT, ABSENT, events.track[forward_row]), events.start_ns[forward_row]
    )
    names: list[str | None] = []
    for i, (span, track) in enumerate(zip(forward_span.tolist(), events.track[nodes].tolist(), strict=True)):
        if span != ABSENT:
            names.append(_module_of(events.strings[events.name[span]]))
        elif forward_row[i] == ABSENT and i and events.track[nodes[i - 1]] == track:
            names.append(names[-1])
        else:
            names.append(None)
    return names


def _forward_operators(events: EventTable, backward: Int64) -> dict[int, int]:
    """For rows of backward operators the operator that made their node: the last with their number to begin before
    them on the forward thread. Sequence numbers are counted by thread, and a trace numbers threads twice: the one that
    has such operators most often is the forward thread.
    """
    if not len(backward):
        return {}
    is_forward = events.in_category("cpu_op") & (events.forward_thread <= 0)
    rows = np.flatnonzero(is_forward & np.isin(events.sequence_number, events.sequence_number[backward]))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    of_number = grouped(zip(events.sequence_number[rows].tolist(), rows.tolist(), strict=True))
    candidates: dict[int, dict[int, int]] = {}
    seen_on: dict[int, Counter[int]] = defaultdict(Counter)
    for row in backward.tolist():
        last_on_track: dict[int, int] = {}
        for earlier in of_number.get(int(events.sequence_number[row]), ()):
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
