"""Where the steps of a recording begin that has no marks of them, as one that was taken for some seconds on demand.

A step reaches from the end of an optimizer's step to the next, from a label of an engine or framework to the next, or
from a place in the sequence of collectives to where this place comes again. What lies before the first such moment and
behind the last one is of steps that are not whole, and is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from tracekit.model.communication import CommunicationEvents
from tracekit.model.events import Bool, EventTable, Int64
from tracekit.model.intervals import Intervals
from tracekit.rank.kernel_launches import BEFORE_RECORDING
from tracekit.rank.phases import backward_operators, outermost

LABELS = (
    r"step\[",  # SGLang: step[DECODE bs=8], step[EXTEND bs=1 toks=107]
    r"execute_(?:\d+_)?(?:context|new|model)",  # vLLM: execute_context_0(0)_generation_8(8), execute_77_context_...
    r"\[pl\]\[profile\]run_training_batch",  # Lightning's PyTorchProfiler, NeMo's as well
    # The function of Megatron, NeMo and many scripts, as a label or in recorded stacks (training/training.py(9): ...).
    r"(?:.*\(\d+\): )?train(?:ing)?_(?:step|iteration)$",
)
"""How the labels of a step begin, in the order in which they are tried."""

_MOST_COLLECTIVES = 8192  # that are compared with each other
_AS_GOOD = 0.005  # of the collectives: a longer period must explain more of them than this
_REPEATED = 0.75  # of the collectives: the least that a period explains; logging and evaluation come in between
_ABOUT_ONCE = 1.5  # times in a period
_RARELY = 0.5
_CONFIRMED = 0.9  # of the periods: in so many the second sign must be, too
_LEAST_DIFFERENCE = 2  # of operators
_LITTLE = 0.1  # of the operators between two optimizer steps, or collectives


@dataclass(frozen=True, kw_only=True, eq=False)
class FoundSteps:
    """s steps, each of which ends where the next one begins.

    Attributes:
        source: "anchor", "optimizer", "labels" or "collectives".
        edge_ns: where each begins, and where the last one ends, ascending, int64 [s + 1].
        thread: the track that runs them, or -1 if that is not known.
    """

    source: str
    edge_ns: Int64
    thread: int = -1


def find_steps(
    events: EventTable, communication: CommunicationEvents, compute_launch_ns: Int64, anchor: str | None
) -> FoundSteps | None:
    """Return the steps of a recording without marks; None where nothing shows them.

    `compute_launch_ns`: when each computing kernel was launched, int64 [c]; of a CPU rank it is empty.
    `anchor`: matches the names of events on the host that begin a step; None: the optimizer and others are looked for.
    """
    if anchor is not None:
        return _labelled(events, (anchor,), "anchor")
    return (
        _optimizer_steps(events)
        or _labelled(events, LABELS, "labels")
        or _collective_steps(events, communication, compute_launch_ns)
    )


def optimizer_spans(events: EventTable) -> Int64:
    """Return the outermost optimizer steps on the thread that has most of them, in order of time, int64 [k]."""
    return _outermost(events, events.named(lambda name: name.startswith("Optimizer.step#")))


def _outermost(events: EventTable, which: Bool) -> Int64:
    """Return the outermost events of a mask [n] on the thread of the host that has most of them, in order of time."""
    rows = events.each_once(which & ~events.in_category("gpu_user_annotation", "kernel", "gpu_memcpy", "gpu_memset"))
    if not len(rows):
        return rows
    thread = np.bincount(events.track[rows]).argmax()
    return outermost(events, rows[events.track[rows] == thread])


def _labelled(events: EventTable, patterns: tuple[str, ...], source: str) -> FoundSteps | None:
    """Return steps that begin where the first of the patterns matches twice or more."""
    for pattern in patterns:
        begins = re.compile(pattern).search if source == "anchor" else re.compile(pattern).match
        rows = _outermost(events, events.named(lambda name, begins=begins: begins(name) is not None))  # type: ignore[misc]
        if len(rows) > 1:
            return FoundSteps(source=source, edge_ns=events.start_ns[rows], thread=int(events.track[rows[0]]))
    return None


# ---- optimizer steps ------------------------------------------------------------------------------------------------
def _optimizer_steps(events: EventTable) -> FoundSteps | None:
    """Return steps that end with the last optimizer step of an iteration.

    Optimizers between which no backward pass runs are of one iteration. So are those that come in turns.
    """
    spans = optimizer_spans(events)
    if len(spans) < 2:
        return None
    end_ns, names = events.end_ns[spans], events.name[spans].tolist()
    nodes_ns = np.sort(events.start_ns[backward_operators(events)])
    nodes = np.diff(np.searchsorted(nodes_ns, end_ns), prepend=0)
    operators_ns = np.sort(events.start_ns[events.in_category("cpu_op")])
    between = np.searchsorted(operators_ns, events.start_ns[spans][1:]) - np.searchsorted(operators_ns, end_ns[:-1])
    is_last = nodes[1:] > 0 if len(nodes_ns) else between > _LITTLE * between.max(initial=0)
    last = np.flatnonzero(np.append(is_last, True))
    first = np.append(0, last[:-1] + 1)
    groups = [str(names[begin : stop + 1]) for begin, stop in zip(first.tolist(), last.tolist(), strict=True)]
    code = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    if len(code) > 2 and code[-1] not in code[:-1]:
        first, last, code = first[:-1], last[:-1], code[:-1]  # the recording ends between two of them
    period = _period(code)
    if period == 1 and len(code) > 4:
        work = nodes[first][1:]  # the first may not be whole
        if (work[1:] == work[:-1]).mean() < _RARELY:  # optimizers of one class, of models that differ
            period = _period(work)
    if period > 1:
        work = np.diff(np.searchsorted(operators_ns, end_ns[last]))
        last = last[max(range(period), key=lambda at: float(np.median(work[at::period]))) :: period]
    if len(last) < 2:
        return None
    return FoundSteps(source="optimizer", edge_ns=end_ns[last], thread=int(events.track[spans[0]]))


def _period(codes: Int64) -> int:
    """Return after how many places a sequence, int64 [n], repeats itself; 1 if it does not.

    It is the least number after which as many are equal as after any other.
    """
    equal = _equal_after(codes)
    best = max(equal, default=0.0)
    return 1 + next(at for at, share in enumerate(equal) if share >= best - _AS_GOOD) if best >= _REPEATED else 1


def _equal_after(codes: Int64) -> list[float]:
    """Return which share of a sequence, int64 [n], is equal to what comes 1, 2, ... places later, up to n / 2."""
    codes = codes[:_MOST_COLLECTIVES]
    return [float((codes[by:] == codes[:-by]).mean()) for by in range(1, len(codes) // 2 + 1)]


# ---- collectives ----------------------------------------------------------------------------------------------------
def _collective_steps(
    events: EventTable, communication: CommunicationEvents, compute_launch_ns: Int64
) -> FoundSteps | None:
    """Return steps that repeat a sequence of collectives, with as much work before each, and begin before most work.

    A layer repeats such a sequence, too. So each step must have what a layer lacks (`_signs`).
    """
    order = np.lexsort((communication.start_ns, communication.launch_ns))
    order = order[communication.launch_ns[order] != BEFORE_RECORDING]
    if len(order) < 3:
        return None
    operator = events.in_category("cpu_op")
    work_ns = np.sort(compute_launch_ns) if len(compute_launch_ns) else np.sort(events.start_ns[operator])
    launch_ns = communication.launch_ns[order]
    work = _similar(np.diff(np.searchsorted(work_ns, launch_ns), prepend=0))
    columns = (communication.kind, communication.group, communication.size_bytes, communication.dtype)
    code = np.unique(np.stack([*(column[order] for column in columns), work]), axis=1, return_inverse=True)[1].ravel()
    equal, period = _equal_after(code[1:]), _period(code[1:])
    if not equal or equal[period - 1] < _REPEATED:
        return None
    done_ns = (communication.launch_ns + 1 if len(compute_launch_ns) else communication.end_ns)[order]
    signs = _signs(events)
    for length in range(1, period + 1):
        # Noise may make twice the period look better.
        if length < period and (period % length or len(signs) < 2 or equal[length - 1] < _REPEATED):
            continue
        begins = _begins(code, work, length)
        edge_ns = np.minimum(done_ns[begins - 1], launch_ns[begins])
        spans = [np.diff(np.searchsorted(sign, edge_ns)) > 0 for sign in signs]
        if len(edge_ns) > 2 and np.all(spans, axis=0).mean() >= _CONFIRMED:
            return FoundSteps(source="collectives", edge_ns=edge_ns)
    return None


def _begins(code: Int64, work: Int64, period: int) -> Int64:
    """Return the places in a sequence, int64 [n], where a period begins: before that comes the most work of all."""
    once = np.flatnonzero(np.bincount(code)[code] <= _ABOUT_ONCE * len(code) / period)
    once = once[once > 0]  # nothing is known before the first
    if not len(once):
        return once
    begins = once[code[once] == code[once[np.argmax(work[once])]]]
    # Where something else came in between, the same place is a whole number of periods later.
    pairs = zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True)
    between = [np.arange(a, b, period) for a, b in pairs if (b - a) % period == 0]
    return np.unique(np.concatenate([begins, *between]))


def _signs(events: EventTable) -> list[Int64]:
    """Return when there were signs, int64 [k] each and ascending, that are all in each step and not in each layer.

    Where gradients are computed, a step runs both forward and backward. Elsewhere it copies from or to the host, which
    gives the device its input or takes the result.
    """
    node = backward_operators(events)
    if node.any():
        backward = Intervals.of_events(events, node)
        starts_ns = events.start_ns[events.in_category("cpu_op") & ~node]
        signs = [events.start_ns[node], starts_ns[~backward.covers(starts_ns)]]
    else:
        copies = events.in_category("gpu_memcpy") & events.named(lambda name: "HtoD" in name or "DtoH" in name)
        signs = [events.start_ns[copies]]
    return [np.sort(sign) for sign in signs]


def _similar(counts: Int64) -> Int64:
    """Return the counts, int64 [n], of which those that hardly differ are equal: threads may swap some operators."""
    values = np.unique(counts)
    number = np.append(0, np.cumsum(np.diff(values) > _LEAST_DIFFERENCE + _LITTLE * values[:-1]))
    return number[np.searchsorted(values, counts)]
