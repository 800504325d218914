"""Gradients that are reduced in every micro-batch, though an update needs only their sum over all of them.

A micro-batch ends with a backward pass. Its gradients are in the reductions that the pass launches outside of the nodes
of the autograd graph, or in those that accumulate gradients. What a node itself communicates, as tensor parallelism and
SyncBatchNorm do, is needed at once.

    micro-batch 1        micro-batch 2        micro-batch 3
    forward | backward   forward | backward   forward | backward   Optimizer.step
                 ==           :       ==           :       ==      the first two reduce what the third does again
"""

from __future__ import annotations

import numpy as np

from tracekit.explain.ddp.tables import EARLY_REDUCTIONS, EarlyReductions
from tracekit.findings.ddp import MICRO_BATCH_ENTRIES
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SAVING
from tracekit.model.communication import DTYPES, KINDS
from tracekit.model.events import ABSENT, Bool, Int64
from tracekit.model.intervals import Intervals
from tracekit.model.run import Run
from tracekit.rank.lanes import complete_steps
from tracekit.rank.phases import AUTOGRAD_NODE_PREFIX, PHASES, innermost_span, is_autograd_node
from tracekit.rank.recorded_steps import RecordedSteps
from tracekit.stats.rows_by_key import number_rows, rows_by_key

_REDUCES = tuple(KINDS.index(kind) for kind in ("all_reduce", "reduce", "reduce_scatter"))
_NUMBERS = (ABSENT, *(i for i, name in enumerate(DTYPES) if "float" in name))
_LEAST_BYTES = 1 << 16  # smaller than the gradients of any model, larger than metrics
_BACKWARD = PHASES.index("backward")
_ACCUMULATES = tuple(
    AUTOGRAD_NODE_PREFIX + node for node in ("torch::autograd::AccumulateGrad", "RegisterPostBackwardFunction")
)
_UPDATE = "Optimizer.step#"
_OPTIONS = {"fsdp2": "set_requires_gradient_sync(False)", "fsdp1": "no_sync()", "ddp": "no_sync()"}


def gradient_reductions(recorded: RecordedSteps) -> Int64:
    """Return the communication events that reduce gradients of known sizes, in order of launch, int64 [n]."""
    communication, in_node = recorded.lanes.communication_events, recorded.once(needed_by_nodes)
    others = [index for index, key in enumerate(communication.groups) if key.parallelism not in (None, "dp")]
    which = np.flatnonzero(
        np.isin(communication.kind, _REDUCES)
        & ~np.isin(communication.group, others)
        & np.isin(communication.dtype, _NUMBERS)
        & (communication.size_bytes > 0)
        & (recorded.phases.at(communication.launch_ns) == _BACKWARD)
        & ~in_node
    )
    return np.asarray(which[np.argsort(communication.launch_ns[which], kind="stable")])


def needed_by_nodes(recorded: RecordedSteps) -> Bool:
    """Return which communication a node of the autograd graph launched that serves no accumulation, bool [n].

    The engine accumulates a gradient right after the node that it comes from.
    """
    events, communication = recorded.trace.events, recorded.lanes.communication_events
    nodes = np.flatnonzero(events.named(is_autograd_node))
    nodes = nodes[np.lexsort((events.start_ns[nodes], events.track[nodes]))]
    accumulates = events.named(lambda name: name.startswith(_ACCUMULATES))
    node = innermost_span(events, nodes, communication.launch_track.astype(np.int64), communication.launch_ns)
    serves = np.append(accumulates, False)
    for row in set(node[node != ABSENT].tolist()):
        after = nodes[(events.track[nodes] == events.track[row]) & (events.start_ns[nodes] >= events.end_ns[row])][:1]
        serves[row] |= accumulates[after].any()
    return np.asarray((node != ABSENT) & ~serves[node])


def early_reductions(recorded: RecordedSteps) -> EarlyReductions:
    """Return the reductions of complete steps that a later backward pass before the same update repeats."""
    events, lanes, phases = recorded.trace.events, recorded.lanes, recorded.phases
    communication, which = lanes.communication_events, recorded.once(gradient_reductions)
    rows = np.flatnonzero(events.named(lambda name: name.startswith(_UPDATE)) & events.on_tracks(lanes.threads))
    updates = Intervals.of_events(events, rows)
    which = which[~updates.covers(communication.launch_ns[which])]  # an optimizer may need the gradients of each pass
    launch_ns, sizes = communication.launch_ns[which], communication.size_bytes
    is_backward = phases.launch_phase == _BACKWARD
    begins_ns = phases.change_ns[is_backward & ~np.append(False, is_backward[:-1])[: len(is_backward)]]
    update, backward_pass = np.searchsorted(updates.start_ns, launch_ns), np.searchsorted(begins_ns, launch_ns, "right")
    what = number_rows(*(column[which] for column in (communication.kind, communication.group, sizes)))
    early, passes = np.zeros(len(which), dtype=np.bool_), np.ones(len(which), dtype=np.int32)
    for of_update in rows_by_key(update[update < len(updates)]).values():
        several = [of_update[here] for here in rows_by_key(backward_pass[of_update]).values()]
        of_passes = [sorted(what[here].tolist()) for here in several]
        if sizes[which[several[-1]]].sum() < _LEAST_BYTES:
            continue
        alike = [here for here, of_pass in zip(several, of_passes, strict=True) if of_pass == of_passes[-1]]
        for here in alike[:-1]:
            early[here], passes[here] = True, len(alike)
    complete = complete_steps(lanes, recorded.steps)
    early &= complete.counted[which]
    return EarlyReductions(
        launch_ns=launch_ns[early],
        step=lanes.windows.step[lanes.window[which[early]]].astype(np.int64),
        backward_passes=passes[early],
        exposed_ns=complete.exposed_ns[which[early]],
    )


def micro_batch_findings(run: Run) -> list[Finding]:
    """Find gradients that are reduced several times before one update. What the last time adds to them is needed."""
    common, step_ns = sorted(run.common_steps()), run.mean_rank_step_ns()
    parts = [early.rows(np.isin(early.step, common)) for early in (s[EARLY_REDUCTIONS] for s in run.ranks)]
    early = EarlyReductions.concatenate(parts)
    if not len(early) or not step_ns:
        return []
    time_ns = int(early.exposed_ns.sum()) // (len(common) * sum(summary.is_measured for summary in run.ranks))
    found = MICRO_BATCH_ENTRIES["ddp" if {"fsdp1", "fsdp2"}.isdisjoint(run.strategies) else "fsdp"](
        cause="transfer",
        time_ns=time_ns,
        evidence={
            "reductions_per_update": int(np.median(early.backward_passes)),
            "share": time_ns / step_ns,
            "option": next((option for slug, option in _OPTIONS.items() if slug in run.strategies), None),
        },
        remedy="accumulate",
        conditions=[NOTABLE_SAVING.reached_by(time_ns / step_ns)],
    )
    return [found]
