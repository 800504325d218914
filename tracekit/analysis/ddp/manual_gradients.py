"""Gradients that the training loop averages by hand: how long that is exposed, and what DDP would save.

Each backward pass is replayed with DDP's buckets, as those of DDP are with other limits (`bucket_whatif`). What it is
compared with is not replayed but measured. So the error of the saving has what transfers took longer than usual, as on
a busy machine: buckets may or may not escape that.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tracekit.analysis.ddp.backward_passes import GroupPasses, elements_of, groups_that_reduce, joined_passes
from tracekit.analysis.ddp.bucket_replay import Parameters, default_buckets
from tracekit.analysis.ddp.bucket_whatif import CAPS_MB, CapOutcome, best_limit, outcomes
from tracekit.analysis.ddp.tables import MANUAL_GRADIENT_TIMES, MANUAL_REDUCTIONS, ManualReductions
from tracekit.analysis.section import Unavailable
from tracekit.analysis.stats.transfer_fit import TransferFit, fit_transfers
from tracekit.analysis.stats.uncertainty import is_worthwhile
from tracekit.findings.ddp import gradients_by_hand
from tracekit.findings.finding import Finding
from tracekit.findings.thresholds import NOTABLE_SAVING, NOTABLE_SHARE
from tracekit.model.run import Run

__all__ = ["manual_data_parallel", "manual_whatif"]

_DEFAULT_BYTES = 25 << 20  # the limit of DDP's buckets, but for the first
_NOT_RECORDED = "not all gradients, or not all ranks that reduce together, are recorded"
_NOTHING_SAVED = "a replay with the buckets of DistributedDataParallel saves no more than its error"


def manual_data_parallel(run: Run) -> tuple[Finding, ...]:
    """Return one finding about the steps in which gradients were reduced by hand, if it takes a notable time."""
    steps = list(_steps(run))
    if not steps:
        return ()
    reductions = ManualReductions.concatenate([of_step for _, of_step in steps])
    exposed_ns = int(reductions.added_ns.sum())
    share = exposed_ns / max(sum(step_ns for step_ns, _ in steps), 1)
    count = statistics.median(len(np.unique(of_step.launch_ns)) for _, of_step in steps)
    in_backward = int(reductions.in_backward.sum())
    saving, evidence = _saving(manual_whatif(run), run.mean_rank_step_ns())
    found = gradients_by_hand(
        severity="warning" if share >= NOTABLE_SHARE else "info",
        cause="transfer",
        time_ns=exposed_ns // len(steps),
        evidence={
            "all_reduces_per_step": count,
            "parameters": int(reductions.parameters.max()) or None,
            "in_backward": in_backward,
            "after_backward": 2 * in_backward < len(reductions),
            "exposed_ns": exposed_ns // len(steps),
            "exposed_share": share,
            **evidence,
        },
        **saving,
    )
    return (found,)


def _steps(run: Run) -> Iterator[tuple[int, ManualReductions]]:
    """Yield the length of each complete step in which a rank reduces by hand, and these reductions."""
    for summary in run.ranks:
        reductions = summary[MANUAL_REDUCTIONS]
        for step in summary.steps if len(reductions) else ():
            of_step = reductions.rows(reductions.step == step.step)
            if step.complete and len(of_step):
                yield step.step_ns, of_step


def _saving(outcome: CapOutcome | Unavailable, step_ns: float) -> tuple[dict[str, Any], dict[str, object]]:
    """Return the fields of the finding that say what a replay with buckets saves, and its evidence of that."""
    if isinstance(outcome, Unavailable):
        return {}, {"no_replay": outcome.reason}
    if not is_worthwhile(outcome.saving_ns, outcome.error_ns, step_ns):
        return {}, {"buckets": outcome.buckets, "no_replay": _NOTHING_SAVED}
    return (
        {"saving_ns": outcome.saving_ns, "saving_error_ns": outcome.error_ns},
        {"buckets": outcome.buckets, "bucket_cap_mb": None if outcome.present else outcome.bucket_cap_mb},
    )


def manual_whatif(run: Run) -> CapOutcome | Unavailable:
    """Return what DDP would save, with its default buckets unless others save notably more of a step."""
    groups = list(_groups(run))
    if not groups:
        return Unavailable(reason=_NOT_RECORDED)
    fits = [fit_transfers(group.stretches) for group in groups]
    now = [[(each.measured_ns, each.ended_ns) for each in group.passes] for group in groups]
    late_ns = max(statistics.median(_late_ns(group, fit)) for group, fit in zip(groups, fits, strict=True))
    caps = outcomes(groups, fits, now, _DEFAULT_BYTES, CAPS_MB, np.inf, late_ns).caps
    default, best = next(cap for cap in caps if cap.present), best_limit(caps, step_ns := run.mean_rank_step_ns())
    return best if best.saving_ns - default.saving_ns > NOTABLE_SAVING * step_ns else default


def _groups(run: Run) -> Iterator[GroupPasses]:
    """Yield the passes of groups by hand, as those of one module whose parameters are in DDP's default buckets."""
    for matched, summaries, reduced in groups_that_reduce(run, MANUAL_REDUCTIONS):
        of_passes = [of_rank.rows(of_rank.backward_pass >= 0) for of_rank in reduced]
        gradients = [summary[MANUAL_GRADIENT_TIMES] for summary in summaries]
        elements = np.array(elements_of(gradients[0], 0) if gradients else (), dtype=np.int64)
        alike = all((times.elements == np.resize(elements, len(times))).all() for times in gradients)
        if not len(elements) or not alike or not all(map(len, (*of_passes, *gradients))):
            continue
        sizes = elements * int(of_passes[0].size_bytes.sum()) // int(gradients[0].elements.sum())
        dtypes = ("",) * len(elements)
        parameters = Parameters(size_bytes=tuple(sizes.tolist()), dtypes=dtypes, buckets=(), rebuilt=True)
        layout = {0: replace(parameters, buckets=default_buckets(parameters))}
        passes = joined_passes(run, matched, of_passes, gradients, layout)
        if not isinstance(passes, Unavailable):
            yield passes


def _late_ns(group: GroupPasses, fit: TransferFit) -> Iterator[float]:
    """Yield by how much the transfers of each pass together took another time than usual."""
    late_ns = fit.late_ns(group.stretches) * group.stretches.transfers
    for each in group.passes:
        until_ns = group.stretches.end_ns - each.observed.origin_ns
        yield abs(float(late_ns[(until_ns > 0) & (until_ns <= each.ended_ns)].sum()))
